//! Every decision of osc-controller, as a table of situations.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use osm_api::config::{
    OperatingSystemConfig, OperatingSystemConfigSpec, OperatingSystemConfigStatus, Published, UserDataBytes,
};
use osm_api::content::spec_for;
use osm_api::pool_settings::PoolSettings;
use osm_api::profile::OperatingSystemProfileSpec;
use osm_api::{MachineDeployment, Settings};
use osm_render::ClusterEndpoint;
use osm_runtime::settings::Current;
use serde_json::{Value, json};

use super::*;
use crate::finalizer::Finalizers;

const NAME: &str = "pool-kube-system-config";

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
        "metadata": {"name": "pool", "namespace": "kube-system", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {}},
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

fn found(spec: &OperatingSystemProfileSpec) -> FoundProfile {
    let accepted = osm_render::resolve(spec).unwrap();
    let profile = osm_render::compile(&accepted).map(Arc::new);
    FoundProfile {
        namespace: "kube-system".into(),
        name: "osp-ubuntu".into(),
        generation: 1,
        judged: 1,
        refusal: None,
        accepted: Some((accepted, profile)),
    }
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
        cluster_uid: "cluster".into(),
        other_cluster: None,
        full_at: None,
        presence: PoolPresence::Present,
        requested_profile: Some(RequestedProfile {
            namespace: "kube-system".into(),
            name: "osp".into(),
        }),
        profile: ProfileLookup::Found(Box::new(found(&profile_spec(
            "v1.0.0",
            "{{cluster.apiServer}}\n",
        )))),
        settings: SettingsLookup::Found(Arc::new(Current {
            settings: Settings::default(),
            digest: "settings".into(),
            refused: None,
        })),
        settings_refused: None,
        endpoint: Some(Choice {
            endpoint: ClusterEndpoint {
                api_server: "https://api:6443".into(),
                ca: "CA".into(),
            },
            is_one_of_several: false,
        }),
        waiting: None,
        removes_finalizers: false,
        abandoned: Arc::default(),
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
        let condition = planned
            .verdict
            .condition(&status.conditions, generation, gathered.now);
        status.conditions = vec![condition];
        status.profile = planned.profile;
        match planned.rendered {
            RenderedStatus::Last => {}
            RenderedStatus::Nothing => status.rendered = None,
            RenderedStatus::New { rendered, .. } => status.rendered = Some(rendered.pack()),
        }
        status.retired = planned.retired;
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
        credential_expires: "2026-01-01T00:00:00Z".into(),
    });
    Arc::new(config)
}

fn new(plan: &Plan) -> Option<&Rendered> {
    match &plan.status.as_ref()?.rendered {
        RenderedStatus::New { rendered, .. } => Some(rendered.rendered()),
        _ => None,
    }
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

fn rendered(config: &ConfigView) -> &Rendered {
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
    assert!(!new.digest.is_empty());
    assert!(plan.starts_something(None));
}

#[test]
fn only_a_new_config_or_other_content_starts_something() {
    let mut gathered = current();
    let starts = |gathered: &Gathered| plan(gathered).starts_something(gathered.config.as_deref());
    assert!(!starts(&gathered), "the same content");
    gathered.claimants = vec![pool("uid-1", Some("2"), "1.34.2")];
    assert!(starts(&gathered), "another revision");
}

#[test]
fn a_current_config_is_left_alone() {
    let gathered = current();
    let plan = plan(&gathered);
    assert!(matches!(plan.object, ObjectPlan::Keep), "{:?}", plan.object);
    assert_eq!(done(&gathered, plan), gathered.config.unwrap());
}

#[test]
fn a_pool_without_revision_is_rendered_and_follows_the_revision() {
    let mut gathered = gathered();
    gathered.claimants = vec![pool("uid-1", None, "1.34.2")];
    gathered.config = Some(done(&gathered, plan(&gathered)));
    assert_eq!(rendered(gathered.config.as_ref().unwrap()).revision, None);
    // The template was edited before the first revision: nothing depends on the old one.
    gathered.claimants = vec![pool("uid-1", None, "1.35.0")];
    assert!(renders_anew(&plan(&gathered), gathered.config.as_ref().unwrap()));
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
    assert_eq!(digest(gathered.config.as_ref().unwrap()), digest(&before));
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
    assert_eq!(verdict(&plan(&gathered)), ("InvalidAnnotation", false));
}

#[test]
fn failures_keep_the_last_good_content_and_say_why() {
    type Break = fn(&mut Gathered);
    type AnyBreak = Box<dyn Fn(&mut Gathered)>;
    let change = |path: &str, value: Value| {
        let path = path.to_owned();
        move |gathered: &mut Gathered| {
            let mut md = owner();
            *md.spec.template.pointer_mut(&path).unwrap() = value.clone();
            md.annotations_mut().insert(names::REVISION.into(), "2".into());
            gathered.claimants = vec![claimant(&md)];
        }
    };
    let cases: Vec<(AnyBreak, &str, &str)> = vec![
        (
            Box::new(change("/spec/providerSpec/value", json!({"cloudProvider": 5}))),
            "InvalidProviderSpec",
            "cloudProvider",
        ),
        (
            Box::new(change("/spec/providerSpec/value/operatingSystem", json!("beos"))),
            "UnknownOperatingSystem",
            "operatingSystem",
        ),
        (
            Box::new(change(
                "/spec/providerSpec/value/operatingSystem",
                json!("flatcar"),
            )),
            "UnsupportedOperatingSystem",
            "flatcar",
        ),
        (
            Box::new(change("/spec/providerSpec/value/cloudProvider", json!("azure"))),
            "UnsupportedCloudProvider",
            "azure",
        ),
        (
            Box::new(change("/spec/versions", json!({}))),
            "InvalidKubeletVersion",
            "versions.kubelet",
        ),
        (
            Box::new((|g| g.settings = SettingsLookup::Missing) as Break),
            "SettingsMissing",
            "settings",
        ),
        (
            Box::new(
                (|g| {
                    let wanted = PoolSettings::parse("proxy: {http: here}").unwrap();
                    let error = wanted.merge(&Settings::default(), None).unwrap_err();
                    g.settings = SettingsLookup::Refused(error.into());
                }) as Break,
            ),
            "PoolSettingsInvalid",
            "proxy.http",
        ),
        (
            Box::new((|g| g.endpoint = None) as Break),
            "EndpointUnknown",
            "cluster-info",
        ),
        (
            Box::new(
                (|g| {
                    let requested = |namespace: &str| RequestedProfile {
                        namespace: namespace.to_owned(),
                        name: "mine".to_owned(),
                    };
                    g.profile = ProfileLookup::Missing(["kube-system", "shared"].map(requested).to_vec());
                }) as Break,
            ),
            "ProfileNotFound",
            "OperatingSystemProfile kube-system/mine or shared/mine does not exist",
        ),
        (
            Box::new(
                (|g| {
                    let mut profile = found(&profile_spec("v1.0.0", ""));
                    (profile.accepted, profile.refusal) = (None, Some("templates can't be parsed".into()));
                    g.profile = ProfileLookup::Found(Box::new(profile));
                }) as Break,
            ),
            "ProfileNotAccepted",
            "can't be parsed",
        ),
        (
            Box::new(
                (|g| {
                    g.profile =
                        ProfileLookup::Found(Box::new(found(&profile_spec("v2.0.0", "\n{{nothing.here}}"))))
                }) as Break,
            ),
            "TemplateFailed",
            "line 2",
        ),
    ];
    for (break_it, reason, text) in cases {
        let mut gathered = current();
        break_it(&mut gathered);
        let failed = plan(&gathered);
        assert_eq!(verdict(&failed), (reason, false));
        assert!(
            message(&failed).contains(text),
            "{reason}: {:?} does not name {text:?}",
            message(&failed)
        );
        assert!(failed.subject.is_some(), "{reason}: no Event");
        let after = done(&gathered, failed);
        let before = gathered.config.clone().unwrap();
        assert_eq!(after.status.rendered, before.status.rendered, "{reason}");

        // The same of a pool that has nothing yet: it is in the table all the same.
        gathered.config = None;
        let failed = plan(&gathered);
        assert!(
            matches!(failed.object, ObjectPlan::Create(..)),
            "{reason}: {:?}",
            failed.object
        );
        let status = done(&gathered, failed).status.clone();
        assert_eq!(status.rendered, None, "{reason}");
        assert_eq!(
            status.profile, gathered.requested_profile,
            "{reason}: it is in the table"
        );
    }
}

#[test]
fn a_pool_that_waits_for_a_thread_says_so_and_keeps_its_content() {
    let mut gathered = current();
    gathered.profile = ProfileLookup::Busy;
    let waiting = plan(&gathered);
    assert_eq!(verdict(&waiting), ("WaitingForThread", true));
    assert_eq!(waiting.requeue_after, Some(BUSY_REQUEUE));
    let before = gathered.config.clone().unwrap();
    assert_eq!(done(&gathered, waiting).status.rendered, before.status.rendered);
    gathered.config = None;
    let waiting = plan(&gathered);
    assert_eq!(verdict(&waiting), ("WaitingForThread", false));
    assert!(
        matches!(waiting.object, ObjectPlan::Create(..)),
        "{:?}",
        waiting.object
    );
}

#[test]
fn marker_text_in_an_annotation_or_a_setting_is_refused() {
    let marker = "%%osm-late{api/token,raw}%%";
    let mut gathered = current();
    let mut md = owner();
    md.annotations_mut().insert(
        format!("{}ContainerLogMaxSize", names::KUBELET_CONFIG_PREFIX),
        marker.into(),
    );
    gathered.claimants = vec![claimant(&md)];
    assert_eq!(verdict(&plan(&gathered)), ("InvalidAnnotation", false));

    let mut gathered = current();
    let settings = Settings {
        pause_image: Some(marker.to_owned()),
        ..Settings::default()
    };
    gathered.settings = SettingsLookup::Found(Arc::new(Current {
        settings,
        digest: "settings".into(),
        refused: None,
    }));
    assert_eq!(verdict(&plan(&gathered)), ("ReservedText", false));
}

#[test]
fn a_profile_or_setting_takes_effect_at_once() {
    let mut gathered = current();
    gathered.profile = ProfileLookup::Found(Box::new(found(&profile_spec("v2.0.0", "new\n"))));
    assert!(renders_anew(&plan(&gathered), gathered.config.as_ref().unwrap()));
    let mut gathered = current();
    let before = gathered.config.clone().unwrap();
    gathered.endpoint.as_mut().unwrap().endpoint.api_server = "https://other:6443".into();
    assert_ne!(digest(&done(&gathered, plan(&gathered))), digest(&before));
}

#[test]
fn a_refused_edit_of_the_profile_renders_the_last_good_and_says_so() {
    let mut gathered = gathered();
    let mut profile = found(&profile_spec("v1.0.0", "good\n"));
    (profile.generation, profile.judged, profile.refusal) = (2, 2, Some("line 3".into()));
    gathered.profile = ProfileLookup::Found(Box::new(profile));
    let plan = plan(&gathered);
    assert_eq!(verdict(&plan), ("Rendered", true));
    assert!(
        message(&plan).contains("not accepted") && message(&plan).contains("line 3"),
        "{}",
        message(&plan)
    );
}

#[test]
fn a_refused_edit_of_the_settings_is_reported_by_every_pool_until_it_is_corrected() {
    let mut gathered = current();
    let before = gathered.config.clone().unwrap();
    gathered.settings_refused = Some("ConfigMap osm/settings: pauseImge: unknown field".into());
    let planned = plan(&gathered);
    assert_eq!(verdict(&planned), ("Rendered", true));
    assert!(matches!(planned.object, ObjectPlan::Keep));
    assert!(
        message(&planned).contains("the last valid settings are used: ConfigMap osm/settings: pauseImge"),
        "{planned:?}"
    );
    gathered.config = Some(done(&gathered, planned));
    gathered.settings_refused = None;
    assert_eq!(done(&gathered, plan(&gathered)).status, before.status);

    // Also where it holds the pool up.
    gathered.settings_refused = Some("pauseImge: unknown field".into());
    gathered.profile = ProfileLookup::Unnamed;
    let planned = plan(&gathered);
    assert_eq!(verdict(&planned), ("ProfileNotFound", false));
    assert!(message(&planned).contains("pauseImge"), "{planned:?}");
}

#[test]
fn a_new_revision_waits_for_its_profile_but_not_for_ever() {
    let mut gathered = current();
    let mut profile = found(&profile_spec("v1.0.0", "{{cluster.apiServer}}\n"));
    (profile.generation, profile.judged) = (2, 1);
    gathered.profile = ProfileLookup::Found(Box::new(profile));
    // The content has this revision already: the last good one stays in force.
    assert_eq!(verdict(&plan(&gathered)), ("Rendered", true));
    gathered.claimants = vec![pool("uid-1", Some("2"), "1.34.2")];
    let waiting = plan(&gathered);
    assert_eq!(verdict(&waiting), ("WaitingForProfile", true));
    assert!(matches!(waiting.object, ObjectPlan::Keep));
    assert!(waiting.requeue_after.unwrap() <= Duration::from_secs(10));
    gathered.waiting = waiting.waiting;
    assert_eq!(
        gathered.waiting,
        Some(Waiting {
            revision: "2".into(),
            since: now()
        })
    );
    gathered.now += SignedDuration::from_secs(11);
    let plan = plan(&gathered);
    assert_eq!(verdict(&plan), ("Rendered", true));
    assert!(
        message(&plan).contains("was not validated in time"),
        "{}",
        message(&plan)
    );
}

#[test]
fn edits_of_the_status_by_other_clients_are_reverted() {
    type Edit = fn(&mut Rendered);
    let edits: [Edit; 4] = [
        |rendered| rendered.digest = "other".into(),
        |rendered| rendered.revision = Some("9".into()),
        |rendered| rendered.profile = None,
        |rendered| rendered.needs_kubeconfig_secret = true,
    ];
    for (i, edit) in edits.into_iter().enumerate() {
        let mut gathered = current();
        let before = gathered.config.clone().unwrap();
        edit(
            Arc::make_mut(gathered.config.as_mut().unwrap())
                .status
                .rendered
                .as_mut()
                .unwrap(),
        );
        assert_eq!(done(&gathered, plan(&gathered)).status, before.status, "edit {i}");
    }
    let mut gathered = current();
    let before = gathered.config.clone().unwrap();
    Arc::make_mut(gathered.config.as_mut().unwrap()).status.rendered = None;
    assert_eq!(done(&gathered, plan(&gathered)).status, before.status);
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
    let altered = Verdict {
        type_: osm_api::condition::PUBLISHED,
        status: false,
        reason: Reason::ContentModified,
        message: String::new(),
    };
    let config = Arc::make_mut(gathered.config.as_mut().unwrap());
    config.status.conditions.push(altered.condition(&[], None, now()));
    assert!(anyway(&plan(&gathered)));
}

#[test]
fn what_else_a_spec_holds_is_removed_once_the_new_content_is_published() {
    let mut gathered = current();
    let config = Arc::make_mut(gathered.config.as_mut().unwrap());
    config.has_bare_spec = false;
    config.metadata.labels = None;
    // Its labels are put back at once, and the rest of the spec stays.
    let ObjectPlan::Claim(meta, _) = plan(&gathered).object else {
        panic!("a claim")
    };
    assert!(meta.labels.unwrap().contains_key(names::POOL));
    let config = Arc::make_mut(gathered.config.as_mut().unwrap());
    config.metadata.labels = current().config.unwrap().metadata.labels.clone();
    assert!(matches!(plan(&gathered).object, ObjectPlan::Keep));
    gathered.config = Some(published(gathered.config.as_ref().unwrap()));
    assert!(matches!(plan(&gathered).object, ObjectPlan::Replace(..)));
    // Where the next content is rendered, it waits for that.
    gathered.claimants = vec![pool("uid-1", Some("2"), "1.35.0")];
    assert!(matches!(plan(&gathered).object, ObjectPlan::Keep));
    // What can't be decoded is published by nobody.
    let config = Arc::make_mut(gathered.config.as_mut().unwrap());
    config.is_unreadable = true;
    assert!(matches!(plan(&gathered).object, ObjectPlan::Replace(..)));
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
    assert_eq!(
        planned.status.as_ref().unwrap().retired.as_ref().unwrap().uid,
        "uid-1"
    );
    gathered.config = Some(done(&gathered, planned));
    gathered.presence = PoolPresence::Present;
    let waiting = plan(&gathered);
    assert!(
        matches!(waiting.object, ObjectPlan::Keep) && waiting.status.is_none(),
        "secret-syncer's turn"
    );

    let mut config = (**gathered.config.as_ref().unwrap()).clone();
    let undone = Verdict {
        type_: osm_api::condition::PUBLISHED,
        status: false,
        reason: osm_api::condition::REASON_DELETED,
        message: String::new(),
    };
    config.status.conditions.push(undone.condition(&[], None, now()));
    gathered.config = Some(Arc::new(config));
    // Also when a successor of the same name waits already.
    for claimants in [vec![], vec![pool("uid-2", Some("1"), "1.34.2")]] {
        gathered.claimants = claimants;
        assert!(matches!(plan(&gathered).object, ObjectPlan::Delete { .. }));
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
        assert!(
            plan.status.is_none_or(|status| status.retired.is_none()),
            "{presence:?}"
        );
    }
}

#[test]
fn where_every_config_is_of_another_cluster_no_new_one_is_made() {
    let mut gathered = gathered();
    gathered.other_cluster = Some("uid-of-the-other".into());
    let plan = plan(&gathered);
    assert!(matches!(plan.object, ObjectPlan::Keep) && plan.status.is_none() && plan.requeue_after.is_some());
    let [rejection] = plan.rejected.as_slice() else {
        panic!("{:?}", plan.rejected)
    };
    assert_eq!(rejection.reason, "ClusterChanged");
    assert!(
        rejection.message.contains("uid-of-the-other"),
        "{}",
        rejection.message
    );
}

#[test]
fn a_machine_deployment_recreated_under_the_same_name_retires_its_predecessor_first() {
    let mut gathered = current();
    gathered.claimants = vec![pool("uid-2", Some("1"), "1.34.2")];
    gathered.presence = PoolPresence::Gone;
    let plan = plan(&gathered);
    assert_eq!(verdict(&plan), ("Retired", false));
    assert_eq!(plan.status.unwrap().retired.unwrap().uid, "uid-1");
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
    let [rejected] = plan.rejected.as_slice() else {
        panic!("{:?}", plan.rejected)
    };
    assert_eq!(
        (rejected.reason.as_str(), rejected.pool.uid.as_str()),
        ("NameConflict", "uid-0")
    );
    for words in [
        "the older MachineDeployment kube-system/pool",
        "may boot with its user data and credentials",
        "delete one of the two",
    ] {
        assert!(rejected.message.contains(words), "{}", rejected.message);
    }
}

#[test]
fn one_whose_name_is_too_long_does_not_hold_up_the_other() {
    // The name of the script Secret is longer than that of the bootstrap Secret, and only pools of `edge` need it.
    let long = "x".repeat(names::MAX_NAME - names::bootstrap_secret_name("", "kube-system").len());
    let named = |md: MachineDeployment, name: String| {
        let mut md = md;
        md.metadata.name = Some(name);
        md
    };
    let owner = named(owner(), long.clone());
    let mut edge = named(namesake(), format!("{long}-kube"));
    *edge
        .spec
        .template
        .pointer_mut("/spec/providerSpec/value/cloudProvider")
        .unwrap() = json!("edge");
    let (owner, edge) = (claimant(&owner), claimant(&edge));
    assert_eq!(owner.pool_ref.config_name(), edge.pool_ref.config_name());

    let mut gathered = gathered();
    gathered.claimants = vec![owner.clone(), edge.clone()];
    let planned = plan(&gathered);
    assert_eq!(verdict(&planned), ("Rendered", true));
    assert_eq!(planned.rejected[0].reason, "NameConflict");
    // It never gives way to a younger one.
    gathered.claimants = vec![edge, owner];
    let planned = plan(&gathered);
    assert!(matches!(planned.object, ObjectPlan::Keep) && planned.status.is_none());
    let reasons: Vec<_> = planned
        .rejected
        .iter()
        .map(|rejected| rejected.reason.as_str())
        .collect();
    assert_eq!(reasons, ["NameTooLong", "NameConflict"]);
}

#[test]
fn a_name_is_given_to_no_pool_while_an_older_one_may_come() {
    let mut gathered = gathered();
    gathered.older_claimant_possible = true;
    let waiting = plan(&gathered);
    assert!(
        matches!(waiting.object, ObjectPlan::Keep) && waiting.status.is_none() && waiting.rejected.is_empty()
    );
    assert!(waiting.requeue_after.is_some());
    // Who has it goes on.
    let mut gathered = current();
    gathered.older_claimant_possible = true;
    gathered.claimants = vec![pool("uid-1", Some("2"), "1.35.0")];
    assert!(renders_anew(&plan(&gathered), gathered.config.as_ref().unwrap()));
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
    assert!(matches!(plan.object, ObjectPlan::Keep) && plan.status.is_none() && plan.requeue_after.is_none());
    let told: Vec<_> = plan
        .rejected
        .iter()
        .map(|rejected| (rejected.pool.uid.as_str(), rejected.reason.as_str()))
        .collect();
    assert_eq!(
        told,
        [("uid-1", "NamespaceNotServed"), ("uid-0", "NamespaceNotServed")]
    );
    for (rejected, namespace) in plan
        .rejected
        .iter()
        .zip(["namespace kube-system ", "namespace system "])
    {
        assert!(rejected.message.contains(namespace), "{}", rejected.message);
    }
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
        ("settings", |g| g.settings = SettingsLookup::Missing),
        ("an edit", |g| {
            Arc::make_mut(g.config.as_mut().unwrap()).has_bare_spec = false;
        }),
        ("a list that is under way", |g| g.older_claimant_possible = true),
    ];
    for (what, change) in changes {
        let mut gathered = current();
        change(&mut gathered);
        let gathered = not_served(gathered);
        let held = plan(&gathered);
        assert!(
            matches!(held.object, ObjectPlan::Keep),
            "{what}: {:?}",
            held.object
        );
        assert_eq!(verdict(&held), ("NamespaceNotServed", false), "{what}");
        assert!(
            message(&held).contains("the published user data stays valid"),
            "{what}: {}",
            message(&held)
        );
        assert_eq!(held.subject.as_ref().unwrap().uid, "uid-1", "{what}");
        let status = held.status.as_ref().unwrap();
        assert_eq!(status.rendered, RenderedStatus::Last, "{what}");
        assert_eq!(status.retired, None, "{what}");
        let others: Vec<_> = held
            .rejected
            .iter()
            .map(|rejected| rejected.reason.as_str())
            .collect();
        assert_eq!(
            others,
            vec!["NameConflict"; gathered.claimants.len() - 1],
            "{what}"
        );
    }
    // It is retired where it is gone, as any other.
    let mut gone = not_served(current());
    (gone.claimants, gone.presence) = (vec![], PoolPresence::Gone);
    assert_eq!(verdict(&plan(&gone)), ("Retired", false));
    // Served again, it is rendered at once.
    let mut gathered = current();
    gathered.claimants = vec![pool("uid-1", Some("2"), "1.35.0")];
    let held = not_served(gathered.clone());
    gathered.config = Some(done(&held, plan(&held)));
    assert_eq!(verdict(&plan(&gathered)), ("Rendered", true));
}

#[test]
fn a_name_that_is_too_long_is_rejected() {
    let mut gathered = gathered();
    let mut md = owner();
    md.metadata.name = Some("x".repeat(240));
    gathered.claimants = vec![claimant(&md)];
    let plan = plan(&gathered);
    assert!(matches!(plan.object, ObjectPlan::Keep) && plan.status.is_none());
    assert_eq!(plan.rejected[0].reason, "NameTooLong");
    assert!(
        plan.rejected[0].message.contains("by 16"),
        "{}",
        plan.rejected[0].message
    );
}

#[test]
fn beyond_the_limit_a_further_pool_gets_no_config_and_the_others_keep_theirs() {
    let mut further = gathered();
    further.full_at = Some(7);
    let mut younger = machine_deployment("uid-0", Some("1"), "1.33.0");
    (younger.metadata.name, younger.metadata.namespace) = (Some("pool-kube".into()), Some("system".into()));
    further.claimants.push(claimant(&younger));
    let plan = plan(&further);
    assert!(matches!(plan.object, ObjectPlan::Keep) && plan.status.is_none());
    let rejected: Vec<_> = plan
        .rejected
        .iter()
        .map(|rejected| (rejected.pool.uid.as_str(), rejected.reason.as_str()))
        .collect();
    assert_eq!(
        rejected,
        [("uid-1", "TooManyMachineDeployments"), ("uid-0", "NameConflict")]
    );
    let message = &plan.rejected[0].message;
    assert!(
        message.contains("limits.machineDeployments") && message.contains("(7)"),
        "{message}"
    );
}

#[test]
fn the_address_of_the_api_server_is_recorded_and_changes_no_content() {
    let mut gathered = current();
    let config = Arc::make_mut(gathered.config.as_mut().unwrap());
    assert_eq!(config.api_server(), Some("https://api:6443"));
    // A config of a version that recorded none.
    config.status.rendered.as_mut().unwrap().api_server = None;
    let before = gathered.config.clone().unwrap();
    let plan = plan(&gathered);
    assert!(matches!(plan.object, ObjectPlan::Keep), "{:?}", plan.object);
    let after = done(&gathered, plan);
    assert_eq!(after.api_server(), Some("https://api:6443"));
    assert_eq!(digest(&after), digest(&before));
    // What can't be rendered keeps its record.
    gathered.config = Some(after);
    gathered.settings = SettingsLookup::Missing;
    let held = done(&gathered, super::plan(&gathered));
    assert_eq!(held.api_server(), Some("https://api:6443"));
}

#[test]
fn an_address_that_is_one_of_several_is_reported() {
    let mut gathered = current();
    assert!(!message(&plan(&gathered)).contains("cluster.apiServer"));
    gathered.endpoint.as_mut().unwrap().is_one_of_several = true;
    let plan = plan(&gathered);
    assert!(matches!(plan.object, ObjectPlan::Keep));
    for part in [
        "all new nodes depend on https://api:6443",
        "set cluster.apiServer",
    ] {
        assert!(message(&plan).contains(part), "{}", message(&plan));
    }
}

#[test]
fn an_object_of_the_go_implementation_without_pool_is_not_ours_to_judge() {
    let mut gathered = gathered();
    gathered.claimants = vec![];
    gathered.config = Some(Arc::new(ConfigView::default()));
    let plan = plan(&gathered);
    assert!(matches!(plan.object, ObjectPlan::Keep) && plan.status.is_none());
    // With its MachineDeployment there, it becomes ours.
    let mut gathered = self::gathered();
    gathered.config = Some(Arc::new(ConfigView {
        metadata: ObjectMeta {
            generation: Some(3),
            ..ObjectMeta::default()
        },
        ..ConfigView::default()
    }));
    assert!(matches!(super::plan(&gathered).object, ObjectPlan::Claim(..)));
}

#[test]
fn sizes_are_reported() {
    let gathered = current();
    let bytes: UserDataBytes = rendered(gathered.config.as_ref().unwrap())
        .user_data_bytes
        .unwrap();
    assert!(bytes.bootstrap > 0 && bytes.provisioning > 0);
    let status: &OperatingSystemConfigStatus = &gathered.config.as_ref().unwrap().status;
    assert_eq!(status.published, None);
}

fn being_deleted(since: SignedDuration, finalizers: &[&str]) -> Gathered {
    let mut gathered = gathered();
    let mut md = owner();
    md.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
        now() - since,
    ));
    md.metadata.finalizers = Some(finalizers.iter().map(|name| (*name).to_owned()).collect());
    gathered.claimants = vec![claimant(&md)];
    gathered
}

#[test]
fn the_go_finalizer_is_handled_only_on_what_is_being_deleted_and_removed_only_on_request() {
    let ours = ["foregroundDeletion", names::GO_FINALIZER];
    let moment = SignedDuration::from_secs(1);
    let mut wanted = being_deleted(moment, &ours);
    assert_eq!(
        finalizer::left_behind(&wanted),
        Finalizers {
            requeue_after: Some(Duration::from_secs(9)),
            ..Finalizers::default()
        },
        "not reported at once"
    );
    wanted.removes_finalizers = true;
    let found = finalizer::left_behind(&wanted);
    assert_eq!(
        found
            .remove
            .iter()
            .map(|finalizer| finalizer.index)
            .collect::<Vec<_>>(),
        [1]
    );
    assert_eq!((found.report, found.requeue_after), (vec![], None));

    let found = finalizer::left_behind(&being_deleted(finalizer::REPORT_DELAY, &ours));
    assert_eq!(
        (found.remove.len(), found.report.len()),
        (0, 1),
        "reported after a while"
    );
    assert!(
        found.report[0].advice().contains("/metadata/finalizers/1"),
        "{}",
        found.report[0].advice()
    );
    let none = Finalizers::default();
    assert_eq!(
        finalizer::left_behind(&being_deleted(finalizer::REPORT_DELAY, &ours[..1])),
        none
    );

    for elsewhere in [true, false] {
        let mut other = wanted.clone();
        if elsewhere {
            other.other_cluster = Some("other".into());
        } else {
            other.presence = PoolPresence::OtherCluster;
        }
        assert_eq!(finalizer::left_behind(&other), none);
    }
    let mut md = owner();
    md.metadata.finalizers = Some(vec![names::GO_FINALIZER.into()]);
    wanted.claimants = vec![claimant(&md)];
    assert_eq!(finalizer::left_behind(&wanted), none);
}

/// What the Go implementation leaves of a pool.
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
fn what_the_go_implementation_made_is_taken_over_and_then_no_longer_looks_like_its_own() {
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
fn what_the_go_implementation_made_stays_where_it_cannot_be_rendered_and_the_condition_explains() {
    let refused = FoundProfile {
        accepted: None,
        ..found(&profile_spec("v1.0.0", "x"))
    };
    let profile = ProfileLookup::Found(Box::new(refused));
    let mut gathered = Gathered {
        profile,
        config: Some(Arc::new(of_go())),
        ..gathered()
    };
    let held = plan(&gathered);
    assert!(matches!(held.object, ObjectPlan::Keep), "{:?}", held.object);
    assert_eq!(verdict(&held), ("ProfileNotAccepted", false));
    assert!(
        message(&held).contains("-l machinedeployment.k8s.io/name=kube-system-pool "),
        "{}",
        message(&held)
    );
    // Nothing of it is said of a pool of our own.
    gathered.config = None;
    assert!(!message(&plan(&gathered)).contains("Go implementation"));
}
