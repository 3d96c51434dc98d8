//! What a cluster is like before a migration: what was found, what becomes of it, and why it can't be migrated. `read` reads, `judge` decides.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use osm_api::names::{self, CLOUD_INIT_SETTINGS, SETTINGS_CONFIG_MAP};
use osm_api::settings::Settings;
use osm_api::{MachineDeployment, OperatingSystemConfig, pool};
use serde_json::{Map, Value, json};

use super::compare::{self, Outcome, Report};
use super::found::{self, Found};
use super::go_flags::{self, Mapped};
use super::pods;
use crate::cluster::{self, Flags, Needs, Object, Reader};
use crate::diff;
use crate::input;
use crate::output;
use crate::snapshot::Snapshot;

/// Most names that a message lists.
const MAX_NAMED: usize = 5;

/// What a person has decided about.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Decisions")]
pub struct Source {
    /// Settings document; its fields win over those that follow from the flags of the Go implementation
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Flag of the Go implementation that --settings replaces, or that is not needed; repeatable
    #[arg(long, value_name = "NAME")]
    handled_flag: Vec<String>,
    /// Webhook configuration that belongs to another program; repeatable
    #[arg(long, value_name = "NAME")]
    keep_webhook: Vec<String>,
    /// Migrate although OSM would refuse pools
    #[arg(long)]
    accept_refused: bool,
}

/// What was read of a cluster, and what follows from it.
#[derive(Default)]
pub struct Checked {
    pub found: Found,
    pub mapped: Mapped,
    /// Values of the chart.
    pub values: Value,
    pub snapshot: Snapshot,
    /// What becomes of pools and profiles.
    pub report: Report,
    /// Why the cluster can't be migrated.
    pub problems: Vec<String>,
    pub notes: Vec<String>,
}

/// What [`judge`] needs besides.
#[derive(Default)]
pub struct Facts {
    pub has_settings: bool,
    /// OperatingSystemConfigs of OSM.
    pub rendered: usize,
    /// Secrets that must exist, and do not.
    pub missing_secrets: Vec<String>,
    pub accept_refused: bool,
}

/// Reads a cluster, and decides whether it can be migrated.
///
/// # Errors
/// A cluster that can't be read, or settings that are not valid.
pub async fn read(reader: &Reader, flags: &Flags, source: &Source) -> Result<Checked> {
    let namespace = flags.namespace();
    let own = match &source.settings {
        Some(path) => Some(input::settings_document(Some(path))?.document),
        None => None,
    };
    let mut checked = Checked {
        found: found::read(reader, namespace, &source.keep_webhook).await?,
        ..Checked::default()
    };
    if let Some(deployment) = &checked.found.controller
        && let Some(container) = found::controller_container(deployment)
    {
        let words = pods::command_line(container);
        checked.mapped = go_flags::map(&words, &source.handled_flag, own.as_ref());
    }
    let settings = reader.get::<ConfigMap>(namespace, flags.settings_config_map());
    let has_settings = settings.await?.is_some();
    let configs = reader.objects::<OperatingSystemConfig>(Some(namespace)).await?;
    let mut missing_secrets = Vec::new();
    for name in &checked.mapped.secrets {
        if reader.get::<Secret>(CLOUD_INIT_SETTINGS, name).await?.is_none() {
            missing_secrets.push(name.clone());
        }
    }
    if checked.found.controller.is_some() {
        let needs = Needs {
            profiles: true,
            custom_profiles: true,
            endpoint: true,
            ..Needs::default()
        };
        checked.snapshot = cluster::read_all(flags, needs).await?;
        let settings = Settings::from_document(checked.mapped.settings.clone()).unwrap_or_default();
        let settings = diff::with_endpoint(&checked.snapshot, settings);
        checked.report = compare::report(&checked.snapshot, &settings);
    }
    checked.values = values(&checked.mapped, &checked.snapshot, namespace);
    let facts = Facts {
        has_settings,
        rendered: configs.iter().filter(|config| is_of_osm(config)).count(),
        missing_secrets,
        accept_refused: source.accept_refused,
    };
    judge(&mut checked, namespace, &facts);
    Ok(checked)
}

/// Whether osc-controller has written a config. Only its configs name their pool.
fn is_of_osm(config: &Object) -> bool {
    config.value.pointer("/spec/poolRef").is_some()
}

/// Values of the chart; none while the settings are not valid, because no one may copy or print them.
fn values(mapped: &Mapped, snapshot: &Snapshot, namespace: &str) -> Value {
    if mapped.is_invalid {
        return Value::Null;
    }
    let mut values = Map::from_iter([("settings".to_owned(), mapped.settings.clone())]);
    values.extend(mapped.values.clone());
    let namespaces = snapshot.machine_deployments.iter();
    let mut namespaces: Vec<&str> = namespaces
        .filter_map(|md| pool::annotation(md, names::PROFILE_NAMESPACE))
        .filter(|named| *named != namespace)
        .collect();
    namespaces.sort_unstable();
    namespaces.dedup();
    if !namespaces.is_empty() {
        values.insert("profileNamespaces".to_owned(), json!(namespaces));
    }
    if snapshot.machine_deployments.iter().any(has_finalizer) {
        values.insert("removeGoFinalizers".to_owned(), json!(true));
    }
    Value::Object(values)
}

fn has_finalizer(md: &MachineDeployment) -> bool {
    md.finalizers()
        .iter()
        .any(|finalizer| finalizer == names::GO_FINALIZER)
}

/// Decides whether a cluster can be migrated.
pub fn judge(checked: &mut Checked, namespace: &str, facts: &Facts) {
    let Checked {
        found,
        mapped,
        snapshot,
        report,
        problems,
        notes,
        ..
    } = checked;
    let is_installed = !found.own_deployments.is_empty() || facts.rendered > 0;
    match &found.controller {
        None if is_installed => problems.push(format!(
            "the cluster is already migrated: OSM is installed in namespace {namespace}, and no Deployment of the Go implementation is; \
             there is nothing to do"
        )),
        None => problems.push(format!(
            "namespace {namespace} has no Deployment of the Go implementation; check --context and --namespace"
        )),
        Some(controller) if is_installed && controller.value.pointer("/spec/replicas") == Some(&json!(0)) => problems.push(
            "the migration has begun: OSM is installed, and the Go implementation is stopped; continue with the script that stopped it"
                .to_owned(),
        ),
        Some(_) if is_installed => problems.push(format!(
            "OSM already runs in namespace {namespace}, together with the Go implementation; each would replace the objects of the other. \
             Stop one of them by hand"
        )),
        Some(_) => {}
    }
    if facts.has_settings && found.controller.is_some() {
        problems.push(format!(
            "a settings document exists in namespace {namespace}, which osmctl has not written, and the chart would not replace it; \
             delete the ConfigMap {SETTINGS_CONFIG_MAP}, or migrate by the manual steps of docs/migration.md"
        ));
    }
    if mapped.namespace.as_ref().is_some_and(|named| named != namespace) {
        problems.push(format!(
            "the flag -namespace of the Go implementation names another namespace than that of its Deployment, {namespace}; \
             migrate by the manual steps of docs/migration.md"
        ));
    }
    problems.append(&mut mapped.problems);
    problems.append(&mut found.problems);
    for name in &facts.missing_secrets {
        problems.push(format!(
            "the flag -node-http-proxy contains a user and a password; create the Secret {CLOUD_INIT_SETTINGS}/{name} with the keys \
             username and password"
        ));
    }
    let refused = report
        .pools
        .iter()
        .filter(|pool| matches!(pool.outcome, Outcome::Refused(_)));
    let refused: Vec<String> = refused
        .map(|pool| format!("{}/{}", pool.namespace, pool.name))
        .collect();
    if !refused.is_empty() && !facts.accept_refused {
        problems.push(format!(
            "OSM would refuse {}; correct their profiles, or pass --accept-refused if these pools need no new machines",
            listed(&refused)
        ));
    }
    notes.append(&mut mapped.notes);
    notes.extend(snapshot.unread.iter().map(|unread| unread.message.clone()));
    let finalizers = snapshot
        .machine_deployments
        .iter()
        .filter(|md| has_finalizer(md))
        .count();
    if finalizers > 0 {
        notes.push(format!(
            "{} with a finalizer of the Go implementation; the value removeGoFinalizers removes it when they are deleted",
            output::count(finalizers, "MachineDeployment")
        ));
    }
    if !snapshot.custom_profiles.is_empty() {
        notes.push("the cluster has CustomOperatingSystemProfiles; set the value customProfiles if OSM has to copy them".to_owned());
    }
    if found.controller.is_some() {
        notes.push(
            "make sure that no installer creates these objects again; for KubeOne, set operatingSystemManager.deploy to false, and run \
             `kubeone apply`"
                .to_owned(),
        );
    }
}

/// Some of many names.
pub fn listed(names: &[String]) -> String {
    let first: Vec<&str> = names.iter().take(MAX_NAMED).map(String::as_str).collect();
    match names.len().saturating_sub(MAX_NAMED) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::found::fixtures::{INSTALLERS, found};
    use super::super::text;
    use super::*;
    use crate::cluster::Target;
    use crate::snapshot::fixtures;

    fn target() -> Target {
        Target {
            server: "https://api.example".to_owned(),
            context: None,
            kubeconfig: None,
        }
    }

    fn checked() -> Checked {
        let (_, text) = INSTALLERS[0];
        let mut md = fixtures::machine_deployment("kube-system", "workers");
        md.metadata.finalizers = Some(vec![names::GO_FINALIZER.to_owned()]);
        Checked {
            found: found(text, &[], &[]),
            snapshot: Snapshot {
                namespace: "kube-system".to_owned(),
                machine_deployments: vec![md],
                ..Snapshot::default()
            },
            ..Checked::default()
        }
    }

    #[test]
    fn every_reason_against_a_migration_is_reported() {
        type Change = fn(&mut Checked, &mut Facts);
        let cases: [(Change, &str); 10] = [
            (
                |checked, _| checked.found.controller = None,
                "has no Deployment of the Go implementation; check --context",
            ),
            (
                |checked, _| {
                    checked.found.own_deployments = vec![checked.found.controller.take().unwrap()];
                },
                "the cluster is already migrated",
            ),
            (
                |checked, facts| {
                    checked.found.controller = None;
                    facts.rendered = 1;
                },
                "the cluster is already migrated",
            ),
            (|_, facts| facts.rendered = 1, "OSM already runs"),
            (
                |checked, facts| {
                    checked.found.controller.as_mut().unwrap().value["spec"]["replicas"] = json!(0);
                    facts.rendered = 1;
                },
                "continue with the script",
            ),
            (|_, facts| facts.has_settings = true, "a settings document exists"),
            (
                |checked, _| checked.mapped.namespace = Some("other".to_owned()),
                "the flag -namespace",
            ),
            (
                |checked, _| checked.mapped.problems = vec!["the flag -x is not known".to_owned()],
                "the flag -x is not known",
            ),
            (
                |_, facts| facts.missing_secrets = vec!["osm-proxy".to_owned()],
                "create the Secret cloud-init-settings/osm-proxy",
            ),
            (
                |checked, _| {
                    checked.report = compare::report(&checked.snapshot, &Settings::default());
                },
                "OSM would refuse kube-system/workers",
            ),
        ];
        for (change, expected) in cases {
            let (mut checked, mut facts) = (checked(), Facts::default());
            change(&mut checked, &mut facts);
            judge(&mut checked, "kube-system", &facts);
            assert_eq!(checked.problems.len(), 1, "{expected}: {:?}", checked.problems);
            assert!(
                checked.problems[0].contains(expected),
                "{expected}: {:?}",
                checked.problems
            );
        }
    }

    #[test]
    fn values_follow_from_flags_and_pools() {
        let mut checked = checked();
        let md = &mut checked.snapshot.machine_deployments[0];
        let annotations = md.metadata.annotations.as_mut().unwrap();
        annotations.insert(names::PROFILE_NAMESPACE.to_owned(), "team".to_owned());
        let mapped = go_flags::map(&["-log-debug".to_owned()], &[], None);
        assert_eq!(
            values(&mapped, &checked.snapshot, "kube-system"),
            json!({
                "settings": mapped.settings,
                "log": {"filter": "debug"},
                "profileNamespaces": ["team"],
                "removeGoFinalizers": true,
            })
        );
        assert_eq!(
            values(&mapped, &Snapshot::default(), "kube-system"),
            json!({"settings": mapped.settings, "log": {"filter": "debug"}})
        );
    }

    #[test]
    fn no_password_of_a_flag_is_printed() {
        const CANARY: &str = "h0t-and-secret";
        let flags = go_flags::fixtures::text_flags();
        assert!(
            flags.contains(&"node-registry-mirrors") && flags.len() >= 10,
            "{flags:?}"
        );
        let forms = [
            "https://u:@host",
            "u:@host:5000",
            "a.example=https://u:@host/v2",
            "a.example,https://u:@host",
        ];
        for flag in flags {
            for form in forms.map(|form| form.replace(":@", &format!(":{CANARY}@"))) {
                let words = [format!("-{flag}={form}")];
                let mut checked = checked();
                checked.mapped = go_flags::map(&words, &[], None);
                checked.values = values(&checked.mapped, &checked.snapshot, "kube-system");
                judge(&mut checked, "kube-system", &Facts::default());
                let outputs = [
                    text::report(&checked, &target(), "kube-system", false),
                    format!("{:?}", checked.mapped),
                ];
                for output in outputs {
                    assert!(!output.contains(CANARY), "{flag}: {output}");
                }
                assert!(
                    flag == "node-http-proxy" || checked.problems.iter().any(|one| one.contains(flag)),
                    "{flag}: {:?}",
                    checked.problems
                );
            }
        }
    }

    #[test]
    fn values_of_invalid_settings_are_not_printed() {
        // The second is a cluster that can be migrated.
        for (address, is_printed) in [("p4ssw0rd", false), ("10.96.0.10", true)] {
            let mut checked = checked();
            let words = [format!("-cluster-dns={address}")];
            checked.mapped = go_flags::map(&words, &[], None);
            checked.values = values(&checked.mapped, &checked.snapshot, "kube-system");
            judge(&mut checked, "kube-system", &Facts::default());
            let report = text::report(&checked, &target(), "kube-system", false);
            assert_eq!(report.contains(address), is_printed, "{report}");
            assert_eq!(report.contains("Values of the chart"), is_printed, "{report}");
            assert_eq!(checked.problems.is_empty(), is_printed);
        }
    }

    #[test]
    fn configs_of_osm_name_their_pool() {
        let config = |spec: Value| Object::new::<OperatingSystemConfig>(json!({"spec": spec}));
        assert!(is_of_osm(&config(json!({"poolRef": {"name": "workers"}}))));
        assert!(!is_of_osm(&config(json!({"osName": "ubuntu"}))));
    }
}
