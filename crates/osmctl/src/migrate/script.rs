//! Prints a migration as a shell script: the steps in the safe order, each with its reason and a check before
//! it, and the way back.

use osm_api::names;
use osm_user_data::yaml;
use serde_json::Value;

use super::check::Checked;
use super::found::WEBHOOK;
use crate::cluster::{Object, Target};

/// The script, with names in `@` where it depends on the cluster.
const TEMPLATE: &str = include_str!("script.sh");

/// Ends the values of the chart in the script. No line of YAML is this word alone.
const END: &str = "END-OF-VALUES";

/// The script for a cluster that can be migrated.
pub fn script(checked: &Checked, target: &Target, namespace: &str, settings: &str) -> String {
    let found = &checked.found;
    let kubeconfig = target.kubeconfig.as_ref();
    let kubeconfig =
        kubeconfig.map(|file| format!("export KUBECONFIG={}\n", quoted(&file.display().to_string())));
    let context = |flag: &str| match &target.context {
        Some(context) => format!("{flag} {} ", quoted(context)),
        None => String::new(),
    };
    let deployments: Vec<&Object> = found.controller.iter().chain(&found.webhook).collect();
    let webhooks: Vec<&Object> = found.webhooks.iter().collect();
    let start = |object: &&Object| {
        lines(
            &format!("start {}", replicas(object)),
            std::slice::from_ref(object),
        )
    };
    let starts: String = deployments.iter().map(start).collect();
    let commands = checked.mapped.commands.iter();
    let create_secrets: String = commands.map(|command| format!("  {command}\n")).collect();
    let mut values = yaml::write(&checked.values).unwrap_or_else(|_| checked.values.to_string());
    if !values.ends_with('\n') {
        values.push('\n');
    }
    let parts = [
        ("@KUBECONFIG@", kubeconfig.unwrap_or_default()),
        ("@SERVER@", quoted(&target.server)),
        ("@NAMESPACE@", quoted(namespace)),
        ("@DEFAULT_PROFILE@", names::DEFAULT_PROFILE.to_owned()),
        ("@LEASE@", names::GO_LEASE.to_owned()),
        ("@CONTEXT@", context("--context")),
        ("@HELM_CONTEXT@", context("--kube-context")),
        ("@SERVICE@", format!("{namespace}/{WEBHOOK}")),
        ("@SETTINGS@", settings.to_owned()),
        ("@DELETE_WEBHOOKS@\n", lines("delete", &webhooks)),
        ("@STOP@\n", lines("stop", &deployments)),
        ("@ARE_STOPPED@\n", lines("is_stopped", &deployments)),
        ("@DELETE_DEPLOYMENTS@\n", lines("delete", &deployments)),
        (
            "@RESTORE_DEPLOYMENTS@\n",
            lines("restore", &deployments) + &starts,
        ),
        ("@RESTORE_WEBHOOKS@\n", lines("restore_webhook", &webhooks)),
        ("@CREATE_SECRETS@\n", create_secrets),
        ("@END@", END.to_owned()),
        // Last, so that nothing in them is taken for a name.
        ("@VALUES@", values),
    ];
    let mut script = TEMPLATE.to_owned();
    for (name, text) in parts {
        script = script.replace(name, &text);
    }
    script
}

/// A line for each object.
fn lines(command: &str, objects: &[&Object]) -> String {
    let line = |object: &&Object| format!("  {command} {}\n", named(object));
    objects.iter().map(line).collect()
}

/// An object as kubectl names it: resource, name and namespace.
fn named(object: &Object) -> String {
    let kind = &object.kind;
    let name = quoted(&format!("{}.{}/{}", kind.plural, kind.group, object.name()));
    match object.namespace() {
        Some(namespace) => format!("{name} --namespace {}", quoted(namespace)),
        None => name,
    }
}

/// Replicas of a Deployment; of one that is stopped already, those that it needs at least.
fn replicas(deployment: &Object) -> i64 {
    let replicas = deployment.value.pointer("/spec/replicas").and_then(Value::as_i64);
    replicas.unwrap_or(1).max(1)
}

/// A word of a shell.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use serde_json::json;

    use super::super::found::fixtures::{INSTALLERS, found};
    use super::*;

    fn of(installer: &str) -> String {
        let target = Target {
            server: "https://api.example:6443".to_owned(),
            context: Some("it's mine".to_owned()),
            kubeconfig: Some("/home/me/kube config".into()),
        };
        let mut checked = Checked {
            found: found(installer, &[], &[]),
            values: json!({"settings": {"note": "it's @SERVER@\nEND"}}),
            ..Checked::default()
        };
        let command =
            "kubectl get secret x --output go-template='{{.}}' | kubectl apply --server-side --filename -";
        checked.mapped.commands = vec![command.to_owned()];
        script(&checked, &target, "kube-system", "osm-settings")
    }

    #[test]
    fn shellcheck_accepts_the_script_and_no_name_is_left() {
        for (installer, text) in INSTALLERS {
            let script = of(text);
            assert!(script.contains("--context 'it'\\''s mine' \"$@\""), "{script}");
            assert!(script.contains("note: |"), "{script}");
            let own = script.replace("it's @SERVER@", "");
            let is_place =
                |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
            let left: Vec<&str> = own.split('@').filter(|word| is_place(word)).collect();
            assert_eq!(left, Vec::<&str>::new(), "{installer}");
            // Not every machine has it.
            let checker = Command::new("shellcheck")
                .args(["--shell=sh", "--exclude=SC2329", "-"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn();
            let Ok(mut checker) = checker else { continue };
            checker
                .stdin
                .take()
                .unwrap()
                .write_all(script.as_bytes())
                .unwrap();
            let output = checker.wait_with_output().unwrap();
            let found = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{found}");
        }
    }
}
