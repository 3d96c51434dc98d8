//! Describes a cluster before a migration: what was found, what becomes of it, and why it can't be migrated.
//! `read` reads, `judge` decides.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::ResourceExt;
use osm_api::names::{self, CLOUD_INIT_SETTINGS, SETTINGS_CONFIG_MAP};
use osm_api::settings::Settings;
use osm_api::{MachineDeployment, OperatingSystemConfig, pool};
use serde_json::{Value, json};

use super::compare::{self, Outcome, Report};
use super::found::{self, Found};
use super::go_flags::{self, Mapped};
use super::tokens::{self, Token};
use super::{listed, pods};
use crate::cluster::{Flags, Needs, Object, Reader, Readers};
use crate::diff;
use crate::input;
use crate::output;
use crate::snapshot::Snapshot;

/// What a person has decided about.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Decisions")]
pub struct Source {
    /// Settings document; its fields win over those that follow from the flags of the upstream OSM
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Flag of the upstream OSM that --settings replaces, or that is not needed; repeatable
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
    /// Whether the MachineDeployments are in another cluster than the Deployments.
    pub has_worker: bool,
    /// Where the flags lead to.
    pub place: Place,
    pub has_settings: bool,
    /// OperatingSystemConfigs of OSM.
    pub rendered: usize,
    /// The flag `-namespace`.
    pub namespace: Option<String>,
    /// Secrets that must exist, and do not.
    pub missing_secrets: Vec<String>,
    /// Non-expiring tokens next to the user data.
    pub tokens: Vec<Token>,
    /// Names of the configs of pools for which OSM has published nothing.
    pub unpublished: Vec<String>,
    pub accept_refused: bool,
}

impl Facts {
    /// Whether OSM is installed.
    fn is_installed(&self, found: &Found) -> bool {
        !found.own_deployments.is_empty() || self.rendered > 0
    }
}

/// Where the upstream OSM has its profiles and configs, and where MachineDeployments are.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Place {
    /// Everything is in the cluster of its Deployment.
    #[default]
    Here,
    /// MachineDeployments alone are in another cluster.
    Split,
    /// Everything but its Deployment is in another cluster, as with KKP.
    Worker,
}

impl Place {
    fn of(words: &[String]) -> Self {
        let has = |flag| !go_flags::value(words, flag).is_empty();
        match (has("worker-cluster-kubeconfig"), has("kubeconfig")) {
            (true, _) => Self::Split,
            (false, true) => Self::Worker,
            (false, false) => Self::Here,
        }
    }
}

/// What the Deployment of the upstream OSM runs.
fn words(found: &Found) -> Vec<String> {
    let container = found.controller.as_ref().and_then(found::controller_container);
    container.map(pods::command_line).unwrap_or_default()
}

/// Maps the flags. If they name a Secret with credentials of registries, its keys are read in the cluster of
/// the profiles.
///
/// # Errors
/// A Secret that can't be read, or settings that are not valid.
pub async fn flags(reader: &Reader, words: &[String], source: &Source) -> Result<Mapped> {
    let own = match &source.settings {
        Some(path) => Some(input::settings_document(Some(path))?.document),
        None => None,
    };
    let mut handled = source.handled_flag.iter();
    let is_handled = handled.any(|flag| flag.trim_start_matches('-') == go_flags::REGISTRY_SECRET);
    let secret = match go_flags::value(words, go_flags::REGISTRY_SECRET).split_once('/') {
        Some((namespace, name)) if !is_handled => reader.get::<Secret>(namespace, name).await?,
        _ => None,
    };
    let secret = secret.map(Into::into);
    Ok(go_flags::map(words, &source.handled_flag, own.as_ref(), secret))
}

/// Reads clusters, and decides whether they can be migrated.
///
/// # Errors
/// A cluster that can't be read, or settings that are not valid.
pub async fn read(readers: Readers, flags: &Flags, source: &Source) -> Result<Checked> {
    let namespace = flags.namespace();
    let mut checked = Checked {
        found: found::read(&readers.management, namespace, &source.keep_webhook).await?,
        ..Checked::default()
    };
    let settings = readers
        .management
        .get::<ConfigMap>(namespace, flags.settings_config_map());
    let has_settings = settings.await?.is_some();
    let configs = readers
        .management
        .objects::<OperatingSystemConfig>(Some(namespace))
        .await?;
    let words = words(&checked.found);
    let mut facts = Facts {
        has_worker: flags.has_worker_cluster(),
        place: Place::of(&words),
        has_settings,
        rendered: configs.iter().filter(|config| is_of_osm(config)).count(),
        accept_refused: source.accept_refused,
        ..Facts::default()
    };
    let (readers, of_go) = match facts.place {
        Place::Worker if facts.has_worker => {
            let named = Some(go_flags::value(&words, "namespace")).filter(|named| !named.is_empty());
            (
                readers.only_worker(),
                flags.within(named.unwrap_or(names::KUBE_SYSTEM)),
            )
        }
        _ => (readers, flags.clone()),
    };
    if checked.found.controller.is_some() {
        checked.mapped = self::flags(&readers.management, &words, source).await?;
        facts.namespace = Some(go_flags::value(&words, "namespace").to_owned());
    }
    // Otherwise the cluster with the pools is not selected.
    let is_selected = facts.place == Place::Here || facts.has_worker;
    if checked.found.controller.is_some() && is_selected {
        let needs = Needs {
            profiles: true,
            custom_profiles: true,
            endpoint: true,
            ..Needs::default()
        };
        checked.snapshot = readers.read(&of_go, needs).await?;
        let settings = Settings::from_document(checked.mapped.settings.clone()).unwrap_or_default();
        let settings = diff::with_endpoint(&checked.snapshot, settings);
        checked.report = compare::report(&checked.snapshot, &settings);
    }
    // With neither of them, it is the wrong namespace, and nothing is known about its machines.
    let is_known = checked.found.controller.is_some() || facts.is_installed(&checked.found);
    if is_known && is_selected {
        match tokens::read(&readers.worker).await {
            Ok(tokens) => facts.tokens = tokens,
            Err(failure) => checked.notes.push(format!(
                "it is unknown whether non-expiring tokens of the upstream OSM are left: {failure}"
            )),
        }
    }
    if !facts.tokens.is_empty() {
        // The snapshot above has no pools once the migration has deleted the Deployment.
        let pools = readers.read(&of_go, Needs::default()).await?.machine_deployments;
        facts.unpublished = tokens::unpublished(&configs, &pools);
    }
    for name in &checked.mapped.secrets {
        if readers
            .worker
            .get::<Secret>(CLOUD_INIT_SETTINGS, name)
            .await?
            .is_none()
        {
            facts.missing_secrets.push(name.clone());
        }
    }
    checked.values = values(&checked.mapped, facts.place, &checked.snapshot, namespace);
    judge(&mut checked, namespace, &facts);
    Ok(checked)
}

/// Whether osc-controller has written a config. Only its configs name their pool.
fn is_of_osm(config: &Object) -> bool {
    config.value.pointer("/spec/poolRef").is_some()
}

/// Values of the chart; none while the settings are not valid, because no one may copy or print them.
fn values(mapped: &Mapped, place: Place, snapshot: &Snapshot, namespace: &str) -> Value {
    if mapped.is_invalid {
        return Value::Null;
    }
    let mut values = mapped.values.clone();
    values.insert("settings".to_owned(), mapped.settings.clone());
    if place != Place::Here {
        values.insert("topology".to_owned(), json!("fleet"));
    }
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
        values.insert("removeUpstreamFinalizers".to_owned(), json!(true));
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
    let is_installed = facts.is_installed(found);
    let is_idle = |controller: &Object| controller.value.pointer("/spec/replicas") == Some(&json!(0));
    match &found.controller {
        None if is_installed => problems.push(format!(
            "the cluster is already migrated: OSM is installed in namespace {namespace}, and no Deployment of the upstream OSM is; \
             there is nothing to migrate"
        )),
        None => problems.push(no_controller(namespace)),
        Some(controller) if is_installed && is_idle(controller) && facts.place == Place::Worker => problems.push(
            "the cluster is already migrated: OSM is installed, and the upstream OSM is stopped; `osmctl fleet sync-kkp` follows its flags"
                .to_owned(),
        ),
        Some(controller) if is_installed && is_idle(controller) => problems.push(
            "the migration has begun: OSM is installed, and the upstream OSM is stopped; continue with the script that stopped it"
                .to_owned(),
        ),
        Some(_) if is_installed => problems.push(format!(
            "OSM already runs in namespace {namespace}, together with the upstream OSM; each would replace the objects of the other. \
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
    match (facts.place, facts.has_worker) {
        (Place::Here, true) if found.controller.is_some() => problems.push(
            "the upstream OSM works in the cluster of its Deployment; leave out --worker-context and --worker-kubeconfig".to_owned(),
        ),
        (Place::Split | Place::Worker, false) => problems.push(
            "the upstream OSM works in another cluster than that of its Deployment; select that one with --worker-context or \
             --worker-kubeconfig"
                .to_owned(),
        ),
        (Place::Here, false) => problems.extend(found.managed.iter().map(|object| {
            format!("{object} is managed by another object, which would restore it; delete that object, or have it stop")
        })),
        _ => {}
    }
    let named = facts.namespace.as_deref().filter(|named| !named.is_empty());
    if facts.place != Place::Worker && named.is_some_and(|named| named != namespace) {
        problems.push(format!(
            "the flag -namespace of the upstream OSM names another namespace than that of its Deployment, {namespace}; \
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
    let needed = match &found.controller {
        Some(controller) if !is_idle(controller) => Some("the upstream OSM runs".to_owned()),
        _ => tokens::why_needed(&facts.unpublished),
    };
    notes.extend(facts.tokens.iter().map(|token| token.note(needed.as_deref())));
    notes.append(&mut mapped.notes);
    notes.extend(snapshot.unread.iter().map(|unread| unread.message.clone()));
    let finalizers = snapshot
        .machine_deployments
        .iter()
        .filter(|md| has_finalizer(md))
        .count();
    if finalizers > 0 {
        notes.push(format!(
            "{} with a finalizer of the upstream OSM; the value removeUpstreamFinalizers removes it when they are deleted",
            output::count(finalizers, "MachineDeployment")
        ));
    }
    if !snapshot.custom_profiles.is_empty() {
        notes.push("the cluster has CustomOperatingSystemProfiles; set the value customProfiles if OSM has to copy them".to_owned());
    }
    if facts.place == Place::Worker {
        notes.extend(
            found
                .controller
                .as_ref()
                .and_then(|controller| stop(controller, namespace)),
        );
        notes.extend(own_profiles(report));
    } else if found.controller.is_some() {
        notes.push(
            "make sure that no installer creates these objects again; for KubeOne, follow docs/kubeone.md: first remove every addon \
             operating-system-manager from its manifest and its folder of addons, and change nothing else there before OSM is installed"
                .to_owned(),
        );
    }
}

fn no_controller(namespace: &str) -> String {
    format!("namespace {namespace} has no Deployment of the upstream OSM; check --context and --namespace")
}

/// How to stop a controller that KKP manages, if it is not stopped.
fn stop(controller: &Object, namespace: &str) -> Option<String> {
    let name = namespace.strip_prefix("cluster-").unwrap_or(namespace);
    (controller.value.pointer("/spec/replicas") != Some(&json!(0))).then(|| {
        format!(
            "the upstream OSM runs; stop it before you install the services, with KKP by `kubectl patch clusters.kubermatic.k8c.io/{name} \
             --type merge -p '{{\"spec\":{{\"componentsOverride\":{{\"operatingSystemManager\":{{\"replicas\":0}}}}}}}}'`; KKP replaces 0 if \
             the Seed's defaultComponentSettings or its default cluster template sets operatingSystemManager.replicas, so remove it there first"
        )
    })
}

/// The profiles of pools that OSM does not install, which have to be copied to the seed.
fn own_profiles(report: &Report) -> Option<String> {
    let defaults = osm_render::defaults();
    let is_default = |name: &str| defaults.iter().any(|(default, _)| default == name);
    let profiles = report.pools.iter().filter_map(|pool| pool.profile.clone());
    let mut names: Vec<String> = profiles.collect();
    names.retain(|name| !is_default(name));
    names.sort_unstable();
    names.dedup();
    (!names.is_empty()).then(|| {
        format!("create these profiles in the namespace of the release in the seed, or in that of its value fallbackProfileNamespace: {}", listed(&names))
    })
}

#[cfg(test)]
mod tests {
    use super::super::found::fixtures::{INSTALLERS, found};
    use k8s_openapi::api::apps::v1::Deployment;

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
        let cases: [(Change, &str); 14] = [
            (
                |checked, _| checked.found.controller = None,
                "has no Deployment of the upstream OSM; check --context",
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
                |_, facts| facts.namespace = Some("other".to_owned()),
                "the flag -namespace",
            ),
            (|_, facts| facts.has_worker = true, "leave out --worker-context"),
            (|_, facts| facts.place = Place::Worker, "with --worker-context"),
            (
                |checked, _| checked.found.managed = vec!["Deployment a/b".to_owned()],
                "would restore it",
            ),
            (
                |checked, facts| {
                    checked.found.controller.as_mut().unwrap().value["spec"]["replicas"] = json!(0);
                    (facts.rendered, facts.place, facts.has_worker) = (1, Place::Worker, true);
                },
                "`osmctl fleet sync-kkp` follows",
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
        let of = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let mapped = go_flags::map(&words, &[], None, None);
            values(&mapped, Place::Here, &checked.snapshot, "kube-system")
        };
        let mut values = of(&[
            "-worker-count=4",
            "-log-debug",
            "-log-format=Console",
            "-leader-elect=false",
        ]);
        let chart = include_str!("../../../../charts/operating-system-manager/values.yaml");
        let (_, section) = chart.split_once("\ncontroller:\n").unwrap();
        let (section, _) = section.split_once("\n\n").unwrap();
        assert!(section.contains("  concurrency: "), "{section}");
        assert!(values["settings"].take().is_object());
        assert_eq!(
            values,
            json!({
                "settings": null,
                "controller": {"concurrency": 4},
                "log": {"filter": "debug", "format": "text"},
                "profileNamespaces": ["team"],
                "removeUpstreamFinalizers": true,
            })
        );
        assert_eq!(
            of(&["-cluster-dns=p4ssw0rd"]),
            Value::Null,
            "nobody looked for passwords in it"
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
                checked.mapped = go_flags::map(&words, &[], None, None);
                checked.values = values(&checked.mapped, Place::Here, &checked.snapshot, "kube-system");
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

    /// A Deployment of KKP as the API server of a seed has it.
    const OF_KKP: &str = r#"{"metadata": {"name": "operating-system-manager", "namespace": "cluster-x7k2",
        "ownerReferences": [{"kind": "Cluster", "name": "x7k2", "controller": true}]},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "operating-system-manager",
            "command": ["/http-prober-bin/http-prober"], "args": ["-endpoint", "https://apiserver-external.cluster-x7k2.svc.cluster.local./healthz",
                "-command", "{\"command\":\"/usr/local/bin/osm-controller\",\"args\":[\"-kubeconfig\",\"/etc/kubernetes/kubeconfig/kubeconfig\",\"-namespace\",\"kube-system\",\"-cluster-dns\",\"169.254.20.10\",\"-health-probe-address\",\"0.0.0.0:8085\"]}"]}]}}}}"#;

    #[test]
    fn a_cluster_of_kkp_can_be_migrated_with_its_seed() {
        let deployment = Object::new::<Deployment>(serde_json::from_str(OF_KKP).unwrap());
        let mut checked = Checked {
            found: found::sort(&[deployment], &[], "cluster-x7k2", &[]),
            ..checked()
        };
        let words = words(&checked.found);
        let place = Place::of(&words);
        checked.mapped = go_flags::map(&words, &[], None, None);
        let facts = Facts {
            has_worker: true,
            namespace: Some(go_flags::value(&words, "namespace").to_owned()),
            place,
            ..Facts::default()
        };
        let values = values(&checked.mapped, place, &Snapshot::default(), "cluster-x7k2");
        assert_eq!(values["settings"]["cluster"]["dnsIPs"], json!(["169.254.20.10"]));
        assert_eq!(values["topology"], "fleet");
        judge(&mut checked, "cluster-x7k2", &facts);
        assert_eq!(checked.problems, Vec::<String>::new());
        let notes = checked.notes.join("\n");
        assert!(
            notes.contains("kubectl patch clusters.kubermatic.k8c.io/x7k2 ") && !notes.contains("KubeOne"),
            "{notes}"
        );
    }
}
