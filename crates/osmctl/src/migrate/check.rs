//! What a cluster is like before a migration: what was found, what becomes of it, and why it can't be migrated. `read` reads, `judge` decides.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use jiff::Timestamp;
use kube::ResourceExt;
use osm_api::condition::{self, PUBLISHED};
use osm_api::names::{self, CLOUD_INIT_SETTINGS, SETTINGS_CONFIG_MAP};
use osm_api::settings::Settings;
use osm_api::{MachineDeployment, pool};
use serde_json::{Map, Value, json};

use super::compare::{self, Outcome, Report};
use super::find::{self, Found};
use super::go_flags::{self, Mapped};
use super::{kinds, rights};
use crate::cluster::{self, Editor, Flags, Needs, Object, Right};
use crate::diff;
use crate::input;
use crate::output;
use crate::progress::Progress;
use crate::snapshot::{ClusterPool, Snapshot};

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

impl Checked {
    /// Whether the cluster can be migrated.
    pub fn exit_code(&self) -> ExitCode {
        match self.problems.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }
}

/// What [`judge`] needs besides.
#[derive(Default)]
pub struct Facts {
    /// Permissions that the user lacks.
    pub missing: Vec<Right>,
    pub has_settings: bool,
    /// OperatingSystemConfigs of OSM.
    pub rendered: usize,
    /// Secrets that must exist, and do not.
    pub missing_secrets: Vec<String>,
    pub accept_refused: bool,
}

/// What the user may do.
pub struct Permitted {
    /// Whether the cluster has cert-manager.
    pub has_cert_manager: bool,
    /// Permissions that the user lacks.
    pub missing: Vec<Right>,
}

impl Permitted {
    /// Asks for every permission of a migration.
    ///
    /// # Errors
    /// A request that fails.
    pub async fn ask(editor: &Editor<'_>, namespace: &str) -> Result<Self> {
        let has_cert_manager = editor.has_group(kinds::CERTIFICATE.group).await?;
        let missing = rights::missing(editor, namespace, has_cert_manager).await?;
        Ok(Self {
            has_cert_manager,
            missing,
        })
    }

    /// Fails if one of these permissions is missing.
    ///
    /// # Errors
    /// Everything that is missing.
    pub fn require(self, is_needed: impl Fn(&Right) -> bool) -> Result<Self> {
        match self.missing.iter().any(is_needed) {
            true => bail!("nothing was changed: {}", lacking(&self.missing)),
            false => Ok(self),
        }
    }
}

/// All permissions that are missing, with the next step.
pub fn lacking(missing: &[Right]) -> String {
    let lines: Vec<String> = missing.iter().map(|right| format!("\n  {right}")).collect();
    format!(
        "permissions are missing; ask the administrator of the cluster for these:{}",
        lines.concat()
    )
}

/// Reads a cluster, and decides whether it can be migrated.
///
/// # Errors
/// A cluster that can't be read, or settings that are not valid.
pub async fn read(
    editor: &Editor<'_>,
    flags: &Flags,
    source: &Source,
    permitted: Permitted,
) -> Result<Checked> {
    let namespace = flags.namespace();
    let Permitted {
        has_cert_manager,
        missing,
    } = permitted;
    let own = match &source.settings {
        Some(path) => Some(input::settings_document(Some(path))?.document),
        None => None,
    };
    let seen = find::read(editor, namespace, has_cert_manager).await?;
    let mut checked = Checked {
        found: find::sort(&seen, &source.keep_webhook),
        ..Checked::default()
    };
    if let Some(deployment) = &checked.found.controller
        && let Some(container) = find::controller_container(deployment)
    {
        let words = find::command_line(container);
        let mut files = BTreeMap::new();
        for (flag, path) in go_flags::files(&words) {
            if let Some((map, key)) = find::mounted(deployment, container, &path)
                && let Some(map) = editor.get(kinds::CONFIG_MAP, Some(namespace), &map).await?
                && let Some(data) = map.value.pointer("/data")
                && let Some(text) = data.get(&key).and_then(Value::as_str)
            {
                files.insert(flag, text.to_owned());
            }
        }
        checked.mapped = go_flags::map(&words, &source.handled_flag, &files, own.as_ref());
    }
    let has_settings = editor
        .get(kinds::CONFIG_MAP, Some(namespace), flags.settings_config_map())
        .await?
        .is_some();
    let configs = editor.list(kinds::CONFIG, Some(namespace)).await?;
    let mut missing_secrets = Vec::new();
    for name in &checked.mapped.secrets {
        let place = Some(CLOUD_INIT_SETTINGS);
        if editor.get_metadata(kinds::SECRET, place, name).await?.is_none() {
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
        let progress = Progress::new();
        checked.report = compare::report(&checked.snapshot, &settings, |done, total| {
            progress.count("comparing pools", done, total);
        });
    }
    checked.values = values(&checked.mapped, &checked.snapshot, namespace);
    let facts = Facts {
        missing,
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
    let names_pool = |field: &str| config.value.pointer(field).is_some();
    names_pool("/spec/poolRef") || names_pool("/spec/machineDeployment")
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
    if !facts.missing.is_empty() {
        problems.push(lacking(&facts.missing));
    }
    notes.append(&mut mapped.notes);
    notes.append(&mut found.kept);
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
    if !found.tokens.is_empty() {
        notes.push(format!(
            "the non-expiring token in {CLOUD_INIT_SETTINGS} can read every Secret there; `osmctl migrate finish` deletes it when no machine needs it"
        ));
    }
    if found.controller.is_some() {
        notes.push(
            "make sure that no installer creates these objects again; for KubeOne, set operatingSystemManager.deploy to false, and run \
             `kubeone apply`"
                .to_owned(),
        );
    }
}

/// Pools whose user data OSM has not published. Without a revision, machine-controller creates no machine of a pool.
pub fn unpublished(snapshot: &Snapshot) -> Vec<String> {
    let is_published = |pool: &ClusterPool<'_>| {
        let status = pool.config.and_then(|config| config.status.as_ref());
        let published = status.and_then(|status| condition::find(&status.conditions, PUBLISHED));
        !pool.is_of_the_go_implementation() && published.is_some_and(|condition| condition.status == "True")
    };
    let pools = snapshot.pools();
    let has_machines = |pool: &&ClusterPool<'_>| {
        let md = pool.machine_deployment;
        md.is_some_and(|md| pool::annotation(md, names::REVISION).is_some())
    };
    let pools = pools.iter().filter(has_machines);
    pools
        .filter(|pool| !is_published(pool))
        .map(ToString::to_string)
        .collect()
}

/// Machines that have not joined, and may have booted before OSM had published every pool.
pub fn waiting(snapshot: &Snapshot, machines: &[Object]) -> Vec<String> {
    let statuses = snapshot
        .configs
        .iter()
        .filter_map(|config| config.status.as_ref());
    let published = statuses.filter_map(|status| condition::find(&status.conditions, PUBLISHED));
    let published = published.map(|condition| condition.last_transition_time.0).max();
    let is_newer = |machine: &Object| {
        let created = machine.text("/metadata/creationTimestamp").parse::<Timestamp>();
        created.is_ok_and(|created| published.is_some_and(|published| created > published))
    };
    let is_waiting =
        |machine: &&Object| machine.text("/status/nodeRef/name").is_empty() && !is_newer(machine);
    let waiting = machines.iter().filter(is_waiting);
    waiting.map(ToString::to_string).collect()
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
    use super::super::find::fixtures::{INSTALLERS, objects, seen};
    use super::super::text;
    use super::*;
    use crate::snapshot::fixtures;

    fn checked() -> Checked {
        let (_, text) = INSTALLERS[0];
        let mut md = fixtures::machine_deployment("kube-system", "workers");
        md.metadata.finalizers = Some(vec![names::GO_FINALIZER.to_owned()]);
        Checked {
            found: find::sort(&seen(objects(text)), &[]),
            snapshot: Snapshot {
                namespace: "kube-system".to_owned(),
                machine_deployments: vec![md],
                ..Snapshot::default()
            },
            ..Checked::default()
        }
    }

    #[test]
    fn a_cluster_of_the_go_implementation_can_be_migrated() {
        let mut checked = checked();
        judge(&mut checked, "kube-system", &Facts::default());
        assert_eq!(checked.problems, Vec::<String>::new());
        assert!(
            checked.notes[0].starts_with("1 MachineDeployment with a finalizer"),
            "{:?}",
            checked.notes
        );
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
                    checked.report = compare::report(&checked.snapshot, &Settings::default(), |_, _| ());
                },
                "OSM would refuse kube-system/workers",
            ),
            (
                |_, facts| {
                    facts.missing = vec![Right {
                        verb: "patch",
                        group: "apps",
                        resource: "deployments",
                        namespace: Some("kube-system".to_owned()),
                    }];
                },
                "patch deployments.apps in namespace kube-system",
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
        let mapped = go_flags::map(&["-log-debug".to_owned()], &[], &BTreeMap::new(), None);
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
                checked.mapped = go_flags::map(&words, &[], &BTreeMap::new(), None);
                checked.values = values(&checked.mapped, &checked.snapshot, "kube-system");
                judge(&mut checked, "kube-system", &Facts::default());
                let outputs = [
                    text::report(&checked, &[], false, false),
                    text::json(&checked, &[], false, "https://api.example", None, "kube-system"),
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
        for (address, is_printed) in [("10.96.0.10", true), ("p4ssw0rd", false)] {
            let mut checked = checked();
            let words = [format!("-cluster-dns={address}")];
            checked.mapped = go_flags::map(&words, &[], &BTreeMap::new(), None);
            checked.values = values(&checked.mapped, &checked.snapshot, "kube-system");
            judge(&mut checked, "kube-system", &Facts::default());
            let report = text::report(&checked, &[], false, false);
            let document = text::json(&checked, &[], false, "https://api.example", None, "kube-system");
            for output in [report.as_str(), document.as_str()] {
                assert_eq!(output.contains(address), is_printed, "{output}");
            }
            assert_eq!(report.contains("Values of the chart"), is_printed, "{report}");
            assert_eq!(checked.problems.is_empty(), is_printed);
        }
    }

    #[test]
    fn a_pool_is_published_when_osm_reports_it() {
        let snapshot = fixtures::snapshot();
        assert_eq!(unpublished(&snapshot), Vec::<String>::new());
        let mut without = snapshot.clone();
        without.configs.clear();
        assert_eq!(unpublished(&without), ["kube-system/workers"]);
        let annotations = without.machine_deployments[0].metadata.annotations.as_mut();
        annotations.unwrap().remove(names::REVISION);
        assert_eq!(unpublished(&without), Vec::<String>::new());
        let mut refused = snapshot;
        let status = refused.configs[0].status.as_mut().unwrap();
        for condition in &mut status.conditions {
            condition.status = "False".to_owned();
        }
        assert_eq!(unpublished(&refused), ["kube-system/workers"]);
    }

    #[test]
    fn machines_that_booted_before_osm_have_to_join_first() {
        let machine = |name: &str, created: &str, node: &str| {
            Object::new(
                kinds::MACHINE,
                json!({"metadata": {"name": name, "creationTimestamp": created}, "status": {"nodeRef": {"name": node}}}),
            )
        };
        // The pool was published at the first second of 2026.
        let machines = [
            machine("joined", "2025-12-31T00:00:00Z", "node"),
            machine("old", "2025-12-31T00:00:00Z", ""),
            machine("same-second", "2026-01-01T00:00:00Z", ""),
            machine("new", "2026-01-01T00:00:01Z", ""),
        ];
        let names = waiting(&fixtures::snapshot(), &machines);
        assert_eq!(names, ["Machine old", "Machine same-second"]);
    }

    #[test]
    fn configs_of_osm_name_their_pool() {
        let config = |spec: Value| Object::new(kinds::CONFIG, json!({"spec": spec}));
        let older = serde_json::to_value(&fixtures::snapshot().configs[0].spec).unwrap();
        assert!(is_of_osm(&config(older)));
        assert!(is_of_osm(&config(json!({"poolRef": {"name": "workers"}}))));
        assert!(!is_of_osm(&config(json!({"osName": "ubuntu"}))));
    }

    #[test]
    fn long_lists_are_shortened() {
        let names = |number: usize| (0..number).map(|i| i.to_string()).collect::<Vec<_>>();
        assert_eq!(listed(&names(MAX_NAMED)), "0, 1, 2, 3, 4");
        assert_eq!(listed(&names(MAX_NAMED + 2)), "0, 1, 2, 3, 4 and 2 more");
    }
}
