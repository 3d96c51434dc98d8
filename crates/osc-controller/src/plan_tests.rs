//! Every decision of osc-controller, as a table of situations.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt;
use osm_api::condition::{PUBLISHED, REASON_DELETED};
use osm_api::config::{OperatingSystemConfig, OperatingSystemConfigSpec, Published};
use osm_api::content::spec_for;
use osm_api::pool_settings::PoolSettings;
use osm_api::profile::OperatingSystemProfileSpec;
use osm_api::{MachineDeployment, Settings};
use osm_render::ClusterEndpoint;
use osm_runtime::settings::Current;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::pool_settings::SettingsProblem;
use crate::view::ProfileView;

const NAME: &str = "pool-kube-system-config";

fn plan(gathered: &Gathered) -> Plan {
    let (profiles, abandoned) = (&CompiledProfiles::default(), &AtomicBool::new(false));
    super::plan(gathered, Some(&Renderer { profiles, abandoned }))
}

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn claimant(md: &MachineDeployment) -> Arc<PoolView> {
    Arc::new(PoolView::of(md))
}

fn pool(uid: &str, revision: Option<&str>, kubelet: &str) -> Arc<PoolView> {
    claimant(&machine_deployment(uid, revision, kubelet))
}

fn owner() -> MachineDeployment {
    machine_deployment("uid-1", Some("1"), "1.34.2")
}

fn machine_deployment(uid: &str, revision: Option<&str>, kubelet: &str) -> MachineDeployment {
    let mut md = json!({
        "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": {"name": "pool", "namespace": "kube-system", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {},
            "generation": if kubelet == "1.34.2" { 1 } else { 2 }},
        "spec": {"template": {"spec": {
            "versions": {"kubelet": kubelet},
            "providerSpec": {"value": {"cloudProvider": "aws", "cloudProviderSpec": {}, "operatingSystem": "ubuntu", "operatingSystemSpec": {}}},
        }}},
    });
    if let Some(revision) = revision {
        md["metadata"]["annotations"][names::REVISION] = json!(revision);
    }
    serde_json::from_value(md).unwrap()
}

fn profile_spec(version: &str, text: &str) -> OperatingSystemProfileSpec {
    serde_json::from_value(json!({
        "osName": "ubuntu", "osVersion": "24.04", "version": version, "templateEngine": "Handlebars",
        "supportedCloudProviders": [{"name": "aws"}],
        "bootstrapConfig": {"files": [{"path": "/etc/boot", "content": {"inline": {"data": text}}}]},
        "provisioningConfig": {"files": [{"path": "/etc/node", "content": {"inline": {"data": "kubelet {{kubelet.version}}\n"}}}]},
    }))
    .unwrap()
}

fn view(spec: &OperatingSystemProfileSpec) -> ProfileView {
    ProfileView {
        generation: 1,
        judged: 1,
        accepted: Some(osm_render::resolve(spec).unwrap()),
        refusal: None,
        since: Instant::now(),
    }
}

fn requested(name: &str) -> RequestedProfile {
    RequestedProfile {
        namespace: "kube-system".into(),
        name: name.into(),
    }
}

/// A profile that was edited just now.
fn found(view: ProfileView) -> ProfileLookup {
    ProfileLookup::Found(FoundProfile {
        requested: requested("osp-ubuntu"),
        view: Arc::new(view),
        edited_for: Duration::ZERO,
    })
}

fn rendering(version: &str, text: &str) -> ProfileLookup {
    found(view(&profile_spec(version, text)))
}

/// A pool with a good profile, and no config yet.
fn gathered() -> Gathered {
    Gathered {
        now: now(),
        name: NAME.into(),
        claimants: vec![claimant(&owner())],
        older_claimant_possible: false,
        owner_is_served: true,
        config: None,
        lost_content: false,
        cluster_uid: "cluster".into(),
        other_cluster: None,
        full_at: None,
        presence: PoolPresence::Present,
        requested_profile: Some(requested("osp")),
        profile: rendering("v1.0.0", "{{cluster.apiServer}}\n"),
        settings: SettingsLookup::Found(Arc::new(Current {
            settings: Settings::default(),
            digest: "settings".into(),
            refused: None,
        })),
        endpoint: Some(Choice {
            endpoint: ClusterEndpoint {
                api_server: "https://api:6443".into(),
                ca: "CA".into(),
            },
            is_one_of_several: false,
        }),
        finalizers_are_left: true,
    }
}

/// The config after the plan was carried out.
fn done(gathered: &Gathered, plan: Plan) -> Arc<ConfigView> {
    let current = gathered.config.as_deref().cloned().unwrap_or_default();
    let mut config = OperatingSystemConfig::new(NAME, OperatingSystemConfigSpec::default());
    config.metadata = current.metadata.clone();
    match plan.object {
        ObjectPlan::Create(meta, pool) | ObjectPlan::Replace(meta, pool) | ObjectPlan::Claim(meta, pool) => {
            let generation = current.metadata.generation.unwrap_or(0) + 1;
            config.spec = spec_for(pool);
            config.metadata = ObjectMeta {
                generation: Some(generation),
                ..meta
            };
        }
        _ => config.spec.pool_ref = current.rendered_for.as_ref().map(|of| of.pool.clone()),
    }
    config.metadata.uid = Some("config".into());
    config.metadata.resource_version = Some("1".into());
    let mut status = current.status;
    if let Some(planned) = plan.status {
        let generation = config.metadata.generation;
        let verdicts = std::iter::once(&planned.verdict).chain(&planned.refused);
        let conditions =
            verdicts.map(|verdict| verdict.condition(&status.conditions, generation, gathered.now));
        status.conditions = conditions.collect();
        status.profile = gathered.requested_profile.clone();
        match planned.rendered {
            RenderedStatus::Last => {}
            RenderedStatus::Retired(retired) => (status.rendered, status.retired) = (None, Some(retired)),
            RenderedStatus::New { stored, content, .. } => {
                status.rendered = Some(stored.with_documents(&content));
            }
        }
    }
    config.status = Some(status);
    Arc::new(ConfigView::of(config))
}

/// As it is once secret-syncer has published it.
fn published(config: &ConfigView) -> Arc<ConfigView> {
    let mut config = config.clone();
    config.status.published = Some(Published {
        digest: rendered(&config).digest.clone(),
        revision: "1".into(),
        bootstrap_secret: "b".into(),
        provisioning_secret: "p".into(),
        credential_expiration_time: "2026-01-01T00:00:00Z".into(),
    });
    Arc::new(config)
}

fn new(plan: &Plan) -> Option<&Stored> {
    plan.status.as_ref()?.rendered.now()
}

/// Whether a plan renders another content than the config has.
fn renders_anew(plan: &Plan, before: &ConfigView) -> bool {
    new(plan).is_some_and(|new| new.digest != rendered(before).digest)
}

/// A pool whose config is up to date.
fn current() -> Gathered {
    let mut gathered = gathered();
    gathered.config = Some(done(&gathered, plan(&gathered)));
    gathered
}

fn verdict(plan: &Plan) -> (&'static str, bool) {
    let verdict = &plan.status.as_ref().expect("a verdict").verdict;
    (verdict.reason.as_str(), verdict.status)
}

fn message(plan: &Plan) -> &str {
    &plan.status.as_ref().expect("a verdict").verdict.message
}

/// Reason and message of the condition `Current`.
fn refused(plan: &Plan) -> (&str, &str) {
    let refused = plan.status.as_ref().and_then(|status| status.refused.as_ref());
    refused.map_or(("", ""), |refused| (refused.reason.as_str(), &refused.message))
}

#[track_caller]
fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{message:?} does not have {part:?}");
    }
}

/// The condition that secret-syncer sets.
fn published_says(reason: Reason) -> Condition {
    let verdict = Verdict {
        type_: PUBLISHED,
        status: false,
        reason,
        message: String::new(),
    };
    verdict.condition(&[], None, now())
}

impl Gathered {
    fn config(&self) -> &ConfigView {
        self.config.as_ref().unwrap()
    }

    fn config_mut(&mut self) -> &mut ConfigView {
        Arc::make_mut(self.config.as_mut().unwrap())
    }
}

/// uids and reasons of the pools that get no config.
fn rejected(plan: &Plan) -> Vec<(&str, &str)> {
    let rejected = plan.rejected.iter();
    rejected
        .map(|rejected| (rejected.pool.uid.as_str(), rejected.reason.as_str()))
        .collect()
}

/// Whether a plan leaves the object and its status as they are.
fn is_idle(plan: &Plan) -> bool {
    matches!(plan.object, ObjectPlan::Keep) && plan.status.is_none()
}

fn rendered(config: &ConfigView) -> &Stored {
    config.status.rendered.as_ref().expect("rendered")
}

fn digest(config: &ConfigView) -> &str {
    &rendered(config).digest
}

#[test]
fn a_new_pool_is_created_rendered() {
    let plan = plan(&gathered());
    assert_eq!(verdict(&plan), ("Rendered", true));
    let ObjectPlan::Create(meta, pool) = &plan.object else {
        panic!("{:?}", plan.object)
    };
    assert_eq!((meta.name.as_deref(), pool.uid.as_str()), (Some(NAME), "uid-1"));
    let new = new(&plan).unwrap();
    assert_eq!(new.revision.as_deref(), Some("1"));
    assert!(!new.digest.is_empty() && new.user_data_bytes.is_some());
    assert_eq!(new.api_server.as_deref(), Some("https://api:6443"));
}

#[test]
fn a_current_config_is_left_alone() {
    let gathered = current();
    let same = plan(&gathered);
    assert!(matches!(same.object, ObjectPlan::Keep), "{:?}", same.object);
    assert_eq!(*done(&gathered, same), *gathered.config());
}

#[test]
fn nothing_new_is_started_beside_the_upstream_osm_and_the_pool_says_why() {
    let problem = "it renews the Lease n/x; stop it";
    let beside = |gathered: &Gathered| plan(gathered).beside_the_upstream_osm(gathered, problem);
    // Without a config, or with one of the upstream OSM, an Event says so. Others are rejected for their own
    // reason.
    let mut waiting = gathered();
    waiting.claimants.push(claimant(&namesake()));
    for config in [None, Some(Arc::new(of_go()))] {
        waiting.config = config;
        let held = beside(&waiting);
        assert!(is_idle(&held) && held.requeue_after.is_none(), "{held:?}");
        let reasons = [("uid-0", "NameCollision"), ("uid-1", "UpstreamOSMRunning")];
        assert_eq!(rejected(&held), reasons);
        assert_says(&held.rejected[1].message, &["nothing new is rendered", problem]);
    }
    // What is published stays, and is written again if someone edits it.
    let mut gathered = current();
    assert_eq!(verdict(&beside(&gathered)), ("Rendered", true));
    let before = gathered.config().clone();
    gathered.claimants = vec![pool("uid-1", Some("2"), "1.34.2")];
    let held = beside(&gathered);
    assert_eq!(verdict(&held), ("UpstreamOSMRunning", false));
    assert_says(message(&held), &[problem]);
    assert!(held.rejected.is_empty() && held.subject.is_some());
    // The condition is written once.
    let config = done(&gathered, held);
    assert_eq!(rendered(&config), rendered(&before));
    gathered.config = Some(config);
    assert_eq!(*done(&gathered, beside(&gathered)), *gathered.config());
    // Afterwards, it goes on.
    assert!(renders_anew(&plan(&gathered), &before));
}

#[test]
fn a_config_that_the_upstream_osm_deletes_is_restored_beside_it_unless_it_has_its_own() {
    let beside = |gathered: &Gathered| plan(gathered).beside_the_upstream_osm(gathered, "it runs");
    let mut lost = Gathered {
        lost_content: true,
        ..gathered()
    };
    let created = beside(&lost);
    assert!(matches!(created.object, ObjectPlan::Create(..)), "{created:?}");
    assert!(
        created.rejected.is_empty() && new(&created).is_some(),
        "{created:?}"
    );
    // It is written after the object.
    let config = done(&lost, created);
    let mut without = (*config).clone();
    without.status.rendered = None;
    lost.config = Some(Arc::new(without));
    assert!(new(&beside(&lost)).is_some());
    // Then it is like every other.
    lost.config = Some(config);
    assert_eq!(*done(&lost, beside(&lost)), *lost.config());
    lost.claimants = vec![pool("uid-1", Some("2"), "1.34.2")];
    assert_eq!(verdict(&beside(&lost)), ("UpstreamOSMRunning", false));

    for of_another in [of_go(), (*current().config.unwrap()).clone()] {
        let mut other = of_another;
        other.status.rendered = None;
        if let Some(rendered_for) = &mut other.rendered_for {
            rendered_for.pool.uid = "another".into();
        }
        lost.config = Some(Arc::new(other));
        let held = beside(&lost);
        assert!(new(&held).is_none(), "{held:?}");
    }
}

#[test]
fn a_pool_without_revision_is_rendered_and_follows_the_revision() {
    let mut gathered = gathered();
    gathered.claimants = vec![pool("uid-1", None, "1.34.2")];
    gathered.config = Some(done(&gathered, plan(&gathered)));
    assert_eq!(rendered(gathered.config()).revision, None);
    // The template was edited before the first revision: nothing depends on the old one.
    gathered.claimants = vec![pool("uid-1", None, "1.35.0")];
    assert!(renders_anew(&plan(&gathered), gathered.config()));
    gathered.claimants = vec![pool("uid-1", Some("1"), "1.35.0")];
    let config = done(&gathered, plan(&gathered));
    assert_eq!(rendered(&config).revision.as_deref(), Some("1"));
}

#[test]
fn an_edited_template_waits_for_its_revision_and_annotations_do_not() {
    let mut gathered = current();
    let before = gathered.config.clone().unwrap();
    gathered.claimants = vec![pool("uid-1", Some("1"), "1.35.0")];
    let waiting = plan(&gathered);
    assert_eq!(verdict(&waiting), ("WaitingForRevision", true));
    assert!(matches!(waiting.object, ObjectPlan::Keep));
    gathered.config = Some(done(&gathered, waiting));
    assert_eq!(digest(gathered.config()), digest(&before));
    // After a restore of etcd: what was rendered was rendered for an edit that is lost.
    let mut restored = gathered.clone();
    restored.claimants = vec![pool("uid-1", Some("2"), "1.35.0")];
    restored.config = Some(done(&restored, plan(&restored)));
    restored.claimants = vec![pool("uid-1", Some("2"), "1.34.2")];
    assert_eq!(verdict(&plan(&restored)), ("Rendered", true));
    // Scaling a pool edits its object as well, and writes nothing.
    let mut scaled = current();
    let mut md = owner();
    md.metadata.generation = Some(7);
    scaled.claimants = vec![claimant(&md)];
    assert_eq!(new(&plan(&scaled)), Some(rendered(scaled.config())));
    gathered.claimants = vec![pool("uid-1", Some("2"), "1.35.0")];
    let stamped = plan(&gathered);
    assert_eq!(verdict(&stamped), ("Rendered", true));
    let config = done(&gathered, stamped);
    assert_ne!(digest(&config), digest(&before));
    assert_eq!(rendered(&config).revision.as_deref(), Some("2"));

    let mut gathered = current();
    let mut md = owner();
    md.annotations_mut()
        .insert(format!("{}MaxPods", names::KUBELET_CONFIG_PREFIX), "many".into());
    gathered.claimants = vec![claimant(&md)];
    assert_eq!(verdict(&plan(&gathered)), ("AnnotationInvalid", false));
}

#[test]
fn failures_keep_the_last_good_content_and_say_why() {
    type Break = fn(&mut Gathered);
    fn edit(gathered: &mut Gathered, path: &str, value: Value) {
        let mut md = owner();
        *md.spec.template.pointer_mut(path).unwrap() = value;
        md.annotations_mut().insert(names::REVISION.into(), "2".into());
        gathered.claimants = vec![claimant(&md)];
    }
    const PROVIDER: &str = "/spec/providerSpec/value";
    let cases: [(&str, &str, Break); 14] = [
        ("ProviderSpecInvalid", "cloudProvider", |g| {
            edit(g, PROVIDER, json!({"cloudProvider": 5}))
        }),
        ("UnknownOperatingSystem", "operatingSystem", |g| {
            edit(g, &format!("{PROVIDER}/operatingSystem"), json!("beos"))
        }),
        ("UnsupportedOperatingSystem", "flatcar", |g| {
            edit(g, &format!("{PROVIDER}/operatingSystem"), json!("flatcar"))
        }),
        ("UnsupportedCloudProvider", "azure", |g| {
            edit(g, &format!("{PROVIDER}/cloudProvider"), json!("azure"))
        }),
        ("KubeletVersionInvalid", "versions.kubelet", |g| {
            edit(g, "/spec/versions", json!({}))
        }),
        ("SettingsInvalid", "settings", |g| {
            g.settings = SettingsLookup::Missing;
        }),
        ("PoolSettingsInvalid", "proxy.http", |g| {
            let wanted = PoolSettings::parse("proxy: {http: here}").unwrap();
            let error = wanted.merge(&Settings::default(), None).unwrap_err();
            g.settings = SettingsLookup::Refused(error.into());
        }),
        ("PoolSettingsNotFound", "--pool-settings-namespaces", |g| {
            g.settings = SettingsLookup::Refused(SettingsProblem::NamespaceNotRead("team".into()));
        }),
        ("EndpointUnknown", "cluster-info", |g| g.endpoint = None),
        (
            "ProfileNotFound",
            "profiles are not read in namespace team",
            |g| {
                g.profile = ProfileLookup::Unread("team".into());
            },
        ),
        (
            "ProfileNotFound",
            "kube-system/osp-ubuntu does not exist; create it, or name another one in the MachineDeployment's annotation",
            |g| g.profile = ProfileLookup::Missing(vec![requested("osp-ubuntu")]),
        ),
        (
            "ProfileNotFound",
            "kube-system/mine or shared/mine does not exist; create it, or correct spec.profileAliases",
            |g| {
                let requested = |namespace: &str| RequestedProfile {
                    namespace: namespace.to_owned(),
                    name: "mine".to_owned(),
                };
                g.profile = ProfileLookup::Missing(["kube-system", "shared"].map(requested).to_vec());
            },
        ),
        ("ProfileNotAccepted", "can't be parsed", |g| {
            let mut refused = view(&profile_spec("v1.0.0", ""));
            (refused.accepted, refused.refusal) = (None, Some("templates can't be parsed".into()));
            g.profile = found(refused);
        }),
        ("TemplateFailed", "line 2", |g| {
            g.profile = rendering("v2.0.0", "\n{{nothing.here}}");
        }),
    ];
    for (reason, text, break_it) in cases {
        let mut gathered = current();
        break_it(&mut gathered);
        let failed = plan(&gathered);
        assert_eq!(verdict(&failed), (reason, false));
        assert_says(message(&failed), &[text]);
        assert!(failed.subject.is_some(), "{reason}: no Event");
        let after = done(&gathered, failed);
        let before = gathered.config.clone().unwrap();
        assert_eq!(after.status.rendered, before.status.rendered, "{reason}");

        // The same of a pool that has nothing yet: it is still in the table.
        gathered.config = None;
        let failed = plan(&gathered);
        assert!(
            matches!(failed.object, ObjectPlan::Create(..)),
            "{reason}: {:?}",
            failed.object
        );
        assert_eq!(done(&gathered, failed).status.rendered, None, "{reason}");
    }
}

#[test]
fn a_pool_that_waits_long_for_a_thread_says_so_and_keeps_its_content() {
    let mut gathered = current();
    let waiting = super::plan(&gathered, None);
    assert_eq!(verdict(&waiting), ("WaitingForThread", true));
    assert_eq!(waiting.requeue_after, Some(BUSY_REQUEUE));
    let before = gathered.config().status.rendered.clone();
    assert_eq!(done(&gathered, waiting).status.rendered, before);
    gathered.config = None;
    let waiting = super::plan(&gathered, None);
    assert_eq!(verdict(&waiting), ("WaitingForThread", false));
    assert!(matches!(waiting.object, ObjectPlan::Create(..)));
    // What needs no thread is not held up.
    gathered.claimants.clear();
    (gathered.config, gathered.presence) = (current().config, PoolPresence::Gone);
    assert_eq!(verdict(&super::plan(&gathered, None)), ("Retired", false));
}

#[test]
fn a_profile_or_setting_takes_effect_at_once() {
    let mut gathered = current();
    gathered.profile = rendering("v2.0.0", "new\n");
    assert!(renders_anew(&plan(&gathered), gathered.config()));
    let mut gathered = current();
    let before = gathered.config.clone().unwrap();
    gathered.endpoint.as_mut().unwrap().endpoint.api_server = "https://other:6443".into();
    assert_ne!(digest(&done(&gathered, plan(&gathered))), digest(&before));
}

#[test]
fn a_refused_edit_of_the_profile_renders_the_last_good_and_says_so() {
    let mut gathered = gathered();
    let mut profile = view(&profile_spec("v1.0.0", "good\n"));
    (profile.generation, profile.judged, profile.refusal) = (2, 2, Some("line 3".into()));
    gathered.profile = found(profile);
    let plan = plan(&gathered);
    assert_eq!(verdict(&plan), ("Rendered", true));
    assert_eq!(refused(&plan).0, "ProfileNotAccepted");
    assert_says(refused(&plan).1, &["not accepted", "line 3"]);
    // The other condition has no part of it, so that a repair ends it.
    assert_eq!(message(&plan), "rendered from profile osp-ubuntu v1.0.0");
}

#[test]
fn a_refused_edit_of_the_settings_is_reported_by_every_pool() {
    let mut gathered = current();
    gathered.settings = SettingsLookup::Found(Arc::new(Current {
        settings: Settings::default(),
        digest: "settings".into(),
        refused: Some("ConfigMap osm/settings: pauseImge: unknown field".into()),
    }));
    let planned = plan(&gathered);
    assert_eq!(verdict(&planned), ("Rendered", true));
    assert!(matches!(planned.object, ObjectPlan::Keep));
    assert_eq!(refused(&planned).0, "SettingsInvalid");
    assert_says(
        refused(&planned).1,
        &["the last valid settings are used: ConfigMap osm/settings: pauseImge"],
    );
    // Also where something else holds the pool up.
    gathered.profile = ProfileLookup::Unnamed;
    let planned = plan(&gathered);
    assert_eq!(verdict(&planned), ("ProfileNotFound", false));
    assert_says(refused(&planned).1, &["pauseImge"]);
}

#[test]
fn a_new_revision_waits_for_its_profile_but_not_for_ever() {
    let mut gathered = current();
    let mut edited = view(&profile_spec("v1.0.0", "{{cluster.apiServer}}\n"));
    (edited.generation, edited.judged) = (2, 1);
    gathered.profile = found(edited);
    // The content has this revision already: the last good one stays in force.
    assert_eq!(verdict(&plan(&gathered)), ("Rendered", true));
    gathered.claimants = vec![pool("uid-1", Some("2"), "1.34.2")];
    let mut after = |seconds: u64| {
        if let ProfileLookup::Found(found) = &mut gathered.profile {
            found.edited_for = Duration::from_secs(seconds);
        }
        plan(&gathered)
    };
    let waiting = after(8);
    assert_eq!(verdict(&waiting), ("WaitingForProfile", true));
    assert!(matches!(waiting.object, ObjectPlan::Keep));
    assert_eq!(waiting.requeue_after, Some(Duration::from_secs(2)));
    let plan = after(10);
    assert_eq!(verdict(&plan), ("Rendered", true));
    assert_says(message(&plan), &["was not validated in time"]);
}

#[test]
fn edits_of_the_status_by_other_clients_are_reverted() {
    type EditRendered = fn(&mut Stored);
    let edits: [EditRendered; 5] = [
        |rendered| rendered.digest = "other".into(),
        |rendered| rendered.revision = Some("9".into()),
        |rendered| rendered.profile = None,
        |rendered| rendered.needs_kubeconfig_secret = true,
        |rendered| *rendered = Stored::default(),
    ];
    for (i, edit) in edits.into_iter().enumerate() {
        let mut gathered = current();
        let before = gathered.config.clone().unwrap();
        edit(gathered.config_mut().status.rendered.as_mut().unwrap());
        assert_eq!(done(&gathered, plan(&gathered)).status, before.status, "edit {i}");
    }
}

#[test]
fn documents_that_secret_syncer_finds_to_be_altered_are_written_again() {
    let anyway = |plan: &Plan| {
        matches!(
            plan.status.as_ref().unwrap().rendered,
            RenderedStatus::New { anyway: true, .. }
        )
    };
    let mut gathered = current();
    assert!(!anyway(&plan(&gathered)));
    let altered = published_says(Reason::ContentModified);
    gathered.config_mut().status.conditions.push(altered);
    assert!(anyway(&plan(&gathered)));
}

#[test]
fn what_else_a_spec_holds_is_removed_once_the_new_content_is_published() {
    let mut gathered = current();
    let config = gathered.config_mut();
    config.has_bare_spec = false;
    config.metadata.labels = None;
    // Its labels are put back at once, and the rest of the spec stays.
    let ObjectPlan::Claim(meta, _) = plan(&gathered).object else {
        panic!("a claim")
    };
    assert!(meta.labels.unwrap().contains_key(names::POOL));
    let config = gathered.config_mut();
    config.metadata.labels = current().config.unwrap().metadata.labels.clone();
    assert!(matches!(plan(&gathered).object, ObjectPlan::Keep));
    gathered.config = Some(published(gathered.config()));
    assert!(matches!(plan(&gathered).object, ObjectPlan::Replace(..)));
    // Where the next content is rendered, it waits for that.
    gathered.claimants = vec![pool("uid-1", Some("2"), "1.35.0")];
    assert!(matches!(plan(&gathered).object, ObjectPlan::Keep));
    // An object that can't be decoded is not published.
    let config = gathered.config_mut();
    config.is_unreadable = true;
    assert!(matches!(plan(&gathered).object, ObjectPlan::Replace(..)));
}

fn retired(plan: &Plan) -> Option<&Retired> {
    match &plan.status.as_ref()?.rendered {
        RenderedStatus::Retired(retired) => Some(retired),
        _ => None,
    }
}

#[test]
fn a_pool_is_retired_and_its_config_deleted_once_everything_is_undone() {
    let mut gathered = current();
    gathered.claimants = vec![];
    gathered.presence = PoolPresence::Gone;
    let planned = plan(&gathered);
    assert_eq!(verdict(&planned), ("Retired", false));
    assert!(!planned.starts_something(gathered.config.as_deref()));
    assert!(matches!(planned.object, ObjectPlan::Keep));
    assert_eq!(retired(&planned).unwrap().uid, "uid-1");
    // A MachineDeployment of the same name is another pool.
    gathered.claimants = vec![pool("uid-2", Some("1"), "1.34.2")];
    assert_eq!(retired(&plan(&gathered)).unwrap().uid, "uid-1");
    gathered.claimants = vec![];
    gathered.config = Some(done(&gathered, planned));
    gathered.presence = PoolPresence::Present;
    let waiting = plan(&gathered);
    assert!(is_idle(&waiting), "secret-syncer's turn");

    let undone = published_says(REASON_DELETED);
    gathered.config_mut().status.conditions.push(undone);
    // Also when a successor of the same name waits already.
    for claimants in [vec![], vec![pool("uid-2", Some("1"), "1.34.2")]] {
        gathered.claimants = claimants;
        assert!(matches!(plan(&gathered).object, ObjectPlan::Delete(_)));
    }
}

#[test]
fn nothing_is_retired_on_mere_absence() {
    for (presence, reason) in [
        (PoolPresence::NotWatchedYet, None),
        (PoolPresence::OtherCluster, Some("ClusterChanged")),
    ] {
        let mut gathered = current();
        gathered.claimants = vec![];
        gathered.presence = presence;
        let plan = plan(&gathered);
        assert!(matches!(plan.object, ObjectPlan::Keep), "{presence:?}");
        assert_eq!(
            plan.status.as_ref().map(|status| status.verdict.reason.as_str()),
            reason,
            "{presence:?}"
        );
        assert!(retired(&plan).is_none(), "{presence:?}");
    }
}

#[test]
fn where_every_config_is_of_another_cluster_no_new_one_is_made() {
    let mut gathered = gathered();
    gathered.other_cluster = Some("uid-of-the-other".into());
    let plan = plan(&gathered);
    assert!(is_idle(&plan) && plan.requeue_after.is_some());
    assert_eq!(rejected(&plan), [("uid-1", "ClusterChanged")]);
    assert_says(&plan.rejected[0].message, &["uid-of-the-other"]);
}

/// A pool of another namespace whose name runs together with that of [`owner`].
fn namesake() -> MachineDeployment {
    let mut other = machine_deployment("uid-0", Some("1"), "1.33.0");
    (other.metadata.name, other.metadata.namespace) = (Some("pool-kube".into()), Some("system".into()));
    other
}

#[test]
fn of_two_that_claim_one_name_the_second_is_rejected_and_nothing_is_overwritten() {
    let mut gathered = current();
    let other = claimant(&namesake());
    assert_eq!(other.pool_ref.config_name(), NAME);
    gathered.claimants.push(other);
    let plan = plan(&gathered);
    assert!(matches!(plan.object, ObjectPlan::Keep));
    assert_eq!(plan.subject.as_ref().unwrap().uid, "uid-1");
    assert_eq!(rejected(&plan), [("uid-0", "NameCollision")]);
    assert_says(
        &plan.rejected[0].message,
        &[
            "the older MachineDeployment kube-system/pool",
            "may boot with its user data and credentials",
            "delete one of the two",
        ],
    );
}

#[test]
fn one_whose_name_is_too_long_does_not_hold_up_the_other() {
    // The name of the script Secret is longer than that of the bootstrap Secret, and only pools of `edge`
    // need it.
    let long = "x".repeat(names::MAX_NAME - names::bootstrap_secret_name("", "kube-system").len());
    let (mut owner, mut edge) = (owner(), namesake());
    owner.metadata.name = Some(long.clone());
    edge.metadata.name = Some(format!("{long}-kube"));
    let cloud = edge
        .spec
        .template
        .pointer_mut("/spec/providerSpec/value/cloudProvider");
    *cloud.unwrap() = json!("edge");
    let (owner, edge) = (claimant(&owner), claimant(&edge));
    assert_eq!(owner.pool_ref.config_name(), edge.pool_ref.config_name());

    let mut gathered = gathered();
    gathered.claimants = vec![owner.clone(), edge.clone()];
    let planned = plan(&gathered);
    assert_eq!(verdict(&planned), ("Rendered", true));
    assert_eq!(rejected(&planned), [("uid-0", "NameCollision")]);
    // It never gives way to a younger one.
    gathered.claimants = vec![edge, owner];
    let planned = plan(&gathered);
    assert!(is_idle(&planned));
    assert_eq!(
        rejected(&planned),
        [("uid-0", "NameTooLong"), ("uid-1", "NameCollision")]
    );
}

#[test]
fn a_name_is_given_to_no_pool_while_an_older_one_may_come() {
    let mut gathered = gathered();
    gathered.older_claimant_possible = true;
    let waiting = plan(&gathered);
    assert!(is_idle(&waiting) && waiting.rejected.is_empty() && waiting.requeue_after.is_some());
    // Who has it goes on.
    let mut gathered = current();
    gathered.older_claimant_possible = true;
    gathered.claimants = vec![pool("uid-1", Some("2"), "1.35.0")];
    assert!(renders_anew(&plan(&gathered), gathered.config()));
}

/// As gathered for a pool whose namespace is not served.
fn not_served(gathered: Gathered) -> Gathered {
    Gathered {
        owner_is_served: false,
        profile: ProfileLookup::Unnamed,
        ..gathered
    }
}

#[test]
fn a_namespace_that_is_not_served_gets_no_config_and_no_other_pool_is_told_that_it_has_one() {
    let mut gathered = not_served(gathered());
    gathered.claimants.push(claimant(&namesake()));
    let plan = plan(&gathered);
    assert!(is_idle(&plan) && plan.requeue_after.is_none());
    assert_eq!(
        rejected(&plan),
        [("uid-1", "NamespaceNotServed"), ("uid-0", "NamespaceNotServed")]
    );
    assert_says(&plan.rejected[0].message, &["namespace kube-system "]);
    assert_says(&plan.rejected[1].message, &["namespace system "]);
}

#[test]
fn a_pool_keeps_what_it_has_when_its_namespace_is_no_longer_served() {
    type Change = fn(&mut Gathered);
    let changes: &[(&str, Change)] = &[
        ("nothing", |_| {}),
        ("a new revision", |g| {
            g.claimants = vec![pool("uid-1", Some("2"), "1.35.0")]
        }),
        ("a namesake", |g| g.claimants.push(claimant(&namesake()))),
        ("an edit", |g| g.config_mut().has_bare_spec = false),
        ("a list that is under way", |g| g.older_claimant_possible = true),
    ];
    for (what, change) in changes {
        let mut gathered = current();
        change(&mut gathered);
        let gathered = not_served(gathered);
        let held = plan(&gathered);
        assert!(matches!(held.object, ObjectPlan::Keep), "{what}");
        assert_eq!(verdict(&held), ("NamespaceNotServed", false), "{what}");
        assert_says(message(&held), &["the published user data stays valid"]);
        assert_eq!(held.subject.as_ref().unwrap().uid, "uid-1", "{what}");
        let status = held.status.as_ref().unwrap();
        assert_eq!(status.rendered, RenderedStatus::Last, "{what}");
        let others = gathered.claimants.len() - 1;
        assert_eq!(
            rejected(&held),
            vec![("uid-0", "NameCollision"); others],
            "{what}"
        );
    }
    // It is retired where it is gone, as any other.
    let mut gone = not_served(current());
    (gone.claimants, gone.presence) = (vec![], PoolPresence::Gone);
    assert_eq!(verdict(&plan(&gone)), ("Retired", false));
}

#[test]
fn beyond_the_limit_a_further_pool_gets_no_config_and_the_others_keep_theirs() {
    let mut further = gathered();
    further.full_at = Some(7);
    further.claimants.push(claimant(&namesake()));
    let plan = plan(&further);
    assert!(is_idle(&plan));
    assert_eq!(
        rejected(&plan),
        [("uid-1", "TooManyMachineDeployments"), ("uid-0", "NameCollision")]
    );
    assert_says(&plan.rejected[0].message, &["limits.machineDeployments", "(7)"]);
}

#[test]
fn an_address_that_is_one_of_several_is_reported() {
    let mut gathered = current();
    assert!(!message(&plan(&gathered)).contains("cluster.apiServer"));
    gathered.endpoint.as_mut().unwrap().is_one_of_several = true;
    let plan = plan(&gathered);
    assert!(matches!(plan.object, ObjectPlan::Keep));
    assert_says(
        message(&plan),
        &[
            "all new nodes depend on https://api:6443",
            "set cluster.apiServer",
        ],
    );
}

#[test]
fn the_go_finalizer_is_handled_only_on_what_is_being_deleted_and_in_the_right_cluster() {
    let with = |finalizers: &[&str], deleted: Option<Timestamp>| {
        let mut gathered = gathered();
        let mut md = owner();
        md.metadata.deletion_timestamp = deleted.map(Time);
        md.metadata.finalizers = Some(finalizers.iter().map(|name| (*name).to_owned()).collect());
        gathered.claimants = vec![claimant(&md)];
        gathered
    };
    let both = ["foregroundDeletion", names::GO_FINALIZER];
    let left = with(&both, Some(now()));
    let [found] = &plan(&left).finalizers[..] else {
        panic!("one")
    };
    assert_eq!((found.pool.uid.as_str(), found.index), ("uid-1", 1));
    assert_says(&found.advice(), &["/metadata/finalizers/1"]);
    let others = [
        with(&both, None),
        with(&both[..1], Some(now())),
        Gathered {
            finalizers_are_left: false,
            ..left.clone()
        },
        Gathered {
            other_cluster: Some("other".into()),
            ..left.clone()
        },
        Gathered {
            presence: PoolPresence::OtherCluster,
            ..left
        },
    ];
    for other in others {
        assert_eq!(plan(&other).finalizers, []);
    }
}

/// What the upstream OSM leaves of a pool.
fn of_go() -> ConfigView {
    let annotations = names::GO_CONFIG_ANNOTATIONS.map(|name| (name.to_owned(), "1".to_owned()));
    ConfigView {
        metadata: ObjectMeta {
            name: Some(NAME.into()),
            generation: Some(1),
            annotations: Some(annotations.into()),
            ..ObjectMeta::default()
        },
        ..ConfigView::default()
    }
}

#[test]
fn what_the_upstream_osm_made_is_taken_over_and_then_no_longer_looks_like_its_own() {
    let mut gathered = Gathered {
        config: Some(Arc::new(of_go())),
        ..gathered()
    };
    let claimed = plan(&gathered);
    assert_eq!(verdict(&claimed), ("Rendered", true));
    let ObjectPlan::Claim(meta, pool) = &claimed.object else {
        panic!("{:?}", claimed.object)
    };
    assert_eq!(pool.uid, "uid-1");
    let has_annotations = |meta: &ObjectMeta| {
        let annotations = meta.annotations.clone().unwrap();
        names::GO_CONFIG_ANNOTATIONS.map(|name| annotations.contains_key(name))
    };
    assert_eq!(has_annotations(meta), [true; names::GO_CONFIG_ANNOTATIONS.len()]);
    let mut config = published(&done(&gathered, claimed));
    Arc::make_mut(&mut config).has_bare_spec = false;
    gathered.config = Some(config);
    let ObjectPlan::Replace(meta, _) = plan(&gathered).object else {
        panic!("a replacement")
    };
    assert_eq!(
        has_annotations(&meta),
        [false; names::GO_CONFIG_ANNOTATIONS.len()]
    );
}

#[test]
fn what_the_upstream_osm_made_stays_where_it_cannot_be_rendered_and_the_condition_explains() {
    let refused = ProfileView {
        accepted: None,
        ..view(&profile_spec("v1.0.0", "x"))
    };
    let mut gathered = Gathered {
        profile: found(refused),
        config: Some(Arc::new(of_go())),
        ..gathered()
    };
    let held = plan(&gathered);
    assert!(matches!(held.object, ObjectPlan::Keep), "{:?}", held.object);
    assert_eq!(verdict(&held), ("ProfileNotAccepted", false));
    assert_says(
        message(&held),
        &["-l machinedeployment.k8s.io/name=kube-system-pool "],
    );
    // Without a pool, it is not ours to judge.
    let claimants = std::mem::take(&mut gathered.claimants);
    assert!(is_idle(&plan(&gathered)));
    // Nothing of it is said of a pool of our own.
    (gathered.claimants, gathered.config) = (claimants, None);
    assert!(!message(&plan(&gathered)).contains("upstream OSM"));
}
