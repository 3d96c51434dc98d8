//! Every decision of secret-syncer, as a table of situations.

use osm_api::config::{OperatingSystemConfigStatus, Retired};
use osm_render::LateValues;

use super::*;
use crate::key::DigestKey;
use crate::view::{BindingView, Meta, RoleView};

const MANAGEMENT: &str = "management-uid";
const WORKER: &str = "worker-uid";
const POOL: &str = "0123456789abcdef0123";

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn hours(hours: i64) -> Timestamp {
    now() + SignedDuration::from_hours(hours)
}

fn config() -> ConfigView {
    ConfigView {
        name: "pool-kube-system-config".into(),
        uid: "config-uid".into(),
        resource_version: "9".into(),
        generation: 3,
        made_in: Some(WORKER.into()),
        machine_deployment: Some(MachineDeploymentRef {
            namespace: "kube-system".into(),
            name: "pool".into(),
            uid: "md-uid".into(),
            revision: Some("1".into()),
            template_digest: "t".into(),
        }),
        is_edge: false,
        late_bound: vec![],
        status: OperatingSystemConfigStatus {
            rendered: Some(Rendered {
                generation: 3,
                digest: "d".into(),
                revision: Some("1".into()),
                settings_digest: None,
                user_data_bytes: None,
            }),
            ..Default::default()
        },
        reference: Default::default(),
    }
}

/// A pool of which nothing has been published.
fn fresh() -> Gathered {
    Gathered {
        now: now(),
        name: "pool-kube-system-config".into(),
        config: Some(Arc::new(config())),
        pool: POOL.into(),
        clusters: Clusters { management: MANAGEMENT.into(), worker: WORKER.into() },
        made: Made::default(),
        strays: vec![],
        node_account: Some("node-account".into()),
        inputs_mac: "inputs".into(),
        values: LateValues::new(),
        verified: false,
        source_problem: None,
        waiting_since: now(),
        inherited: None,
        foreign: None,
        credentials: Credentials::default(),
        key: DigestKey::of(&[7; 32]).unwrap(),
        may_collect: 1,
    }
}

fn meta(name: &str, annotations: &[(&str, &str)]) -> Meta {
    Meta {
        name: name.into(),
        uid: format!("{name}-uid"),
        resource_version: "5".into(),
        labels: BTreeMap::from([(names::POOL.to_owned(), POOL.to_owned())]),
        annotations: [
            (names::CONFIG, "pool-kube-system-config"),
            (names::MANAGEMENT_CLUSTER_UID, MANAGEMENT),
            (names::OWNER, "kube-system/pool"),
        ]
        .iter()
        .chain(annotations)
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect(),
    }
}

fn document(name: &str, keep_until: Timestamp) -> Arc<SecretView> {
    let annotations = [(names::KEEP_UNTIL, keep_until.to_string())];
    let annotations: Vec<_> = annotations.iter().map(|(key, value)| (*key, value.as_str())).collect();
    Arc::new(SecretView {
        meta: meta(name, &annotations),
        content: Some("p".into()),
        immutable: true,
        key: None,
    })
}

/// A pool of which everything stands.
fn standing() -> Gathered {
    let mut gathered = fresh();
    let (expires, renew) = (hours(20).to_string(), hours(8).to_string());
    let annotations = [
        (names::MACHINE_DEPLOYMENT_REVISION, "1"),
        (names::INPUTS_MAC, "inputs"),
        (names::PUBLISHED_FROM, "config-uid/3"),
        (names::PROVISIONING_SECRET, "document"),
        (names::BOUND_TO, "account-uid/node-account/document-uid"),
        (names::EXPIRES, &expires),
        (names::RENEW_AT, &renew),
    ];
    let mut bootstrap = meta("pool-kube-system-bootstrap-config", &annotations);
    let sealed = seal(&gathered.key, "content", &bootstrap.annotations);
    bootstrap.annotations.insert(names::CONTENT_MAC.into(), sealed);
    gathered.verified = true;
    gathered.made = Made {
        bootstrap: Some(Arc::new(SecretView {
            meta: bootstrap,
            content: Some("content".into()),
            immutable: false,
            key: None,
        })),
        edge_script: None,
        provisioning: vec![document("document", hours(21))],
        account: Some(Arc::new(meta("account", &[]))),
        role: Some(Arc::new(RoleView { meta: meta("role", &[]), secrets: Some(vec!["document".into()]) })),
        binding: Some(Arc::new(BindingView { meta: meta("binding", &[]), good: true })),
    };
    gathered
}

fn edit_config(gathered: &mut Gathered, edit: impl FnOnce(&mut ConfigView)) {
    let mut config = (**gathered.config.as_ref().unwrap()).clone();
    edit(&mut config);
    gathered.config = Some(Arc::new(config));
}

fn edit_bootstrap(gathered: &mut Gathered, edit: impl FnOnce(&mut SecretView)) {
    let mut secret = (**gathered.made.bootstrap.as_ref().unwrap()).clone();
    edit(&mut secret);
    gathered.made.bootstrap = Some(Arc::new(secret));
}

fn causes_of(gathered: &Gathered) -> Vec<Cause> {
    match plan(gathered).step {
        Step::Publish(publish) => publish.causes,
        other => panic!("{other:?}"),
    }
}

fn said(gathered: &Gathered) -> &'static str {
    match plan(gathered).step {
        Step::Say(verdict) => {
            assert!(!verdict.status && !verdict.message.is_empty());
            verdict.reason
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_fresh_pool_is_published() {
    let Step::Publish(publish) = plan(&fresh()).step else { panic!() };
    assert_eq!(publish.causes, [Cause::Missing]);
    assert_eq!((publish.generation, publish.revision.as_str()), (3, "1"));
    assert_eq!(publish.bootstrap_name, "pool-kube-system-bootstrap-config");
    assert_eq!(publish.identity, format!("osm-node-{POOL}"));
    assert_eq!(publish.keep_until, hours(25), "an hour longer than any token that is asked for");
    assert!(!publish.create_node_account);
}

#[test]
fn what_stands_is_kept_until_its_renewal() {
    let plan = plan(&standing());
    let Step::Keep(keep) = plan.step else { panic!("{:?}", plan.step) };
    assert!(keep.outdated.is_empty() && keep.narrow.is_none());
    assert_eq!(plan.again, Some(LOOK_AGAIN), "its renewal is due in hours, but timers don't count sleep");
}

#[test]
fn whatever_differs_is_published_again() {
    type Edit = fn(&mut Gathered);
    type AnyEdit = Box<dyn Fn(&mut Gathered)>;
    let annotate = |key: &'static str, value: &'static str| {
        move |gathered: &mut Gathered| {
            edit_bootstrap(gathered, |secret| {
                secret.meta.annotations.insert(key.into(), value.into());
            });
        }
    };
    let cases: Vec<(&str, AnyEdit, Cause)> = vec![
        (
            "revision",
            Box::new(
                (|g| edit_config(g, |c| c.status.rendered.as_mut().unwrap().revision = Some("2".into())))
                    as Edit,
            ),
            Cause::NewRevision,
        ),
        ("inputs", Box::new((|g| g.inputs_mac = "other".into()) as Edit), Cause::NewContent),
        (
            "config recreated",
            Box::new((|g| edit_config(g, |c| c.uid = "other".into())) as Edit),
            Cause::NewContent,
        ),
        (
            "data altered",
            Box::new((|g| edit_bootstrap(g, |s| s.content = Some("other".into()))) as Edit),
            Cause::Altered,
        ),
        ("data gone", Box::new((|g| edit_bootstrap(g, |s| s.content = None)) as Edit), Cause::Altered),
        (
            "annotation gone",
            Box::new(
                (|g| {
                    edit_bootstrap(g, |s| {
                        s.meta.annotations.remove(names::BOUND_TO);
                    })
                }) as Edit,
            ),
            Cause::TokensDead,
        ),
        ("made immutable", Box::new((|g| edit_bootstrap(g, |s| s.immutable = true)) as Edit), Cause::Altered),
        (
            "orphan mark left",
            Box::new(annotate(names::ORPHANED_SINCE, "2026-01-01T00:00:00Z")),
            Cause::Altered,
        ),
        (
            "account recreated",
            Box::new((|g| g.made.account = Some(Arc::new(meta("new", &[])))) as Edit),
            Cause::TokensDead,
        ),
        ("account gone", Box::new((|g| g.made.account = None) as Edit), Cause::TokensDead),
        (
            "node account recreated",
            Box::new((|g| g.node_account = Some("new".into())) as Edit),
            Cause::TokensDead,
        ),
        ("document gone", Box::new((|g| g.made.provisioning.clear()) as Edit), Cause::TokensDead),
        ("role gone", Box::new((|g| g.made.role = None) as Edit), Cause::RoleAltered),
        (
            "binding altered",
            Box::new((|g| g.made.binding = Some(Arc::new(BindingView::default()))) as Edit),
            Cause::RoleAltered,
        ),
        ("renewal", Box::new((|g| g.now = hours(8)) as Edit), Cause::RenewalDue),
        (
            "annotation with the renewal altered",
            Box::new(annotate(names::RENEW_AT, "soon")),
            Cause::RenewalDue,
        ),
        ("restart", Box::new((|g| g.verified = false) as Edit), Cause::Unverified),
        ("bootstrap gone", Box::new((|g| g.made.bootstrap = None) as Edit), Cause::Missing),
    ];
    let mut gathered = standing();
    annotate(names::RENEW_AT, "2099-01-01T00:00:00Z")(&mut gathered);
    assert_eq!(causes_of(&gathered), [Cause::Altered], "nobody puts a renewal off");
    for (name, edit, cause) in cases {
        let mut gathered = standing();
        edit(&mut gathered);
        let mut causes = causes_of(&gathered);
        if name.starts_with("annotation") {
            // The seal is broken as well.
            assert_eq!(causes.iter().filter(|cause| **cause == Cause::Altered).count(), 1, "{name}");
            causes.retain(|cause| *cause != Cause::Altered);
        }
        assert_eq!(causes, [cause], "{name}");
    }
}

#[test]
fn waiting_is_said_and_takes_nothing_away() {
    let mut gathered = standing();
    edit_config(&mut gathered, |config| config.status.rendered = None);
    assert!(matches!(plan(&gathered).step, Step::None), "not worth a word yet");
    assert!(plan(&gathered).again.is_some_and(|again| again <= Duration::from_secs(3)));
    gathered.waiting_since = now() - SignedDuration::from_secs(3);
    assert_eq!(said(&gathered), "AwaitingRendering");
    let mut gathered = standing();
    gathered.waiting_since = now() - SignedDuration::from_secs(3);
    edit_config(&mut gathered, |config| config.status.rendered.as_mut().unwrap().revision = None);
    assert_eq!(said(&gathered), "AwaitingRevision");
    let mut gathered = fresh();
    gathered.foreign = Some("pool-kube-system-bootstrap-config".into());
    assert_eq!(said(&gathered), "ForeignSecret");
    assert!(plan(&gathered).again.is_some());
}

#[test]
fn only_the_vouched_generation_is_published() {
    let mut gathered = standing();
    edit_config(&mut gathered, |config| config.generation = 4);
    assert!(matches!(plan(&gathered).step, Step::None), "edited by hand");
    // For long: it is said, and until when what was published is good.
    gathered.waiting_since = now() - SignedDuration::from_mins(1);
    edit_config(&mut gathered, |config| {
        config.status.published = Some(osm_api::config::Published {
            digest: "d".into(),
            revision: "1".into(),
            bootstrap_secret: "b".into(),
            provisioning_secret: "p".into(),
            credential_expires: "2027-01-01T00:00:00Z".into(),
        });
    });
    let Step::Say(verdict) = plan(&gathered).step else { panic!() };
    assert_eq!(verdict.reason, "AwaitingRendering");
    assert!(verdict.message.contains("2027-01-01"), "{}", verdict.message);
    // What belongs to whom is not known now.
    gathered.strays = vec![("other".into(), standing().made)];
    assert!(plan(&gathered).orphans.is_empty());
}

#[test]
fn old_documents_go_when_no_token_may_fetch_them_and_the_role_narrows() {
    let mut gathered = standing();
    gathered.made.provisioning =
        vec![document("document", hours(-5)), document("expired", hours(0)), document("fetchable", hours(3))];
    let opened = ["document", "expired", "fetchable"].map(str::to_owned).to_vec();
    gathered.made.role = Some(Arc::new(RoleView { meta: meta("role", &[]), secrets: Some(opened) }));
    let plan = plan(&gathered);
    let Step::Keep(keep) = plan.step else { panic!("{:?}", plan.step) };
    assert_eq!(keep.outdated.iter().map(|secret| secret.meta.name.as_str()).collect::<Vec<_>>(), ["expired"]);
    assert_eq!(keep.narrow.unwrap(), ["document", "fetchable"], "the named one stays whatever its date says");
    assert_eq!(plan.again, Some(LOOK_AGAIN));
    // A document whose date somebody destroyed is kept: its tokens may be alive.
    let mut altered = (*document("altered", hours(0))).clone();
    altered.meta.annotations.clear();
    gathered.made.provisioning.push(Arc::new(altered));
    let Step::Keep(keep) = super::plan(&gathered).step else { panic!() };
    assert!(keep.outdated.iter().all(|secret| secret.meta.name != "altered"));
}

#[test]
fn a_publish_keeps_the_documents_that_machines_may_still_fetch() {
    let mut gathered = standing();
    gathered.made.provisioning.push(document("fetchable", hours(3)));
    gathered.made.provisioning.push(document("outdated", hours(-3)));
    gathered.inputs_mac = "other".into();
    let Step::Publish(publish) = plan(&gathered).step else { panic!() };
    assert_eq!(publish.kept, ["document", "fetchable"]);
}

#[test]
fn a_retired_pool_is_undone_until_nothing_is_left() {
    let mut gathered = standing();
    edit_config(&mut gathered, |config| {
        config.status.retired = Some(Retired { uid: "md-uid".into(), generation: 3 })
    });
    assert!(matches!(plan(&gathered).step, Step::Undo(_)));
    edit_config(&mut gathered, |config| {
        config.status.conditions = vec![undone().condition(&[], Some(3), now())]
    });
    assert!(matches!(plan(&gathered).step, Step::Undo(_)), "something is left");
    gathered.made = Made::default();
    assert!(matches!(plan(&gathered).step, Step::None));
    // Word of another pool's end does not count.
    let mut gathered = standing();
    edit_config(&mut gathered, |config| {
        config.status.retired = Some(Retired { uid: "other".into(), generation: 3 })
    });
    assert!(matches!(plan(&gathered).step, Step::Keep(_)));
}

#[test]
fn a_missing_config_deletes_nothing_for_a_day() {
    let mut gathered = standing();
    let made = std::mem::take(&mut gathered.made);
    gathered.config = None;
    gathered.strays = vec![(POOL.into(), made)];
    let marked = plan(&gathered);
    assert!(matches!(marked.step, Step::None));
    let [OrphanStep::Mark(secrets)] = marked.orphans.as_slice() else { panic!("{:?}", marked.orphans) };
    assert_eq!(secrets.len(), 2);

    let mark = |made: &mut Made, since: Timestamp| {
        for secret in made.bootstrap.iter_mut().chain(&mut made.provisioning) {
            let mut view = (**secret).clone();
            view.meta.annotations.insert(names::ORPHANED_SINCE.into(), since.to_string());
            *secret = Arc::new(view);
        }
    };
    mark(&mut gathered.strays[0].1, now());
    gathered.now = hours(23);
    let waits = plan(&gathered);
    assert!(waits.orphans.is_empty());
    assert_eq!(waits.again, Some(LOOK_AGAIN));
    gathered.now = hours(24);
    assert!(matches!(plan(&gathered).orphans.as_slice(), [OrphanStep::Collect(_)]));
    gathered.may_collect = 0;
    let limited = plan(&gathered);
    assert!(limited.orphans.is_empty() && limited.again.is_some(), "never more than a tenth in an hour");
}

#[test]
fn in_another_worker_cluster_nothing_is_published_or_undone() {
    let retired = Retired { uid: "md-uid".into(), generation: 3 };
    for retired in [None, Some(retired)] {
        for mut gathered in [fresh(), standing()] {
            gathered.clusters.worker = "uid-of-another".into();
            edit_config(&mut gathered, |config| config.status.retired = retired.clone());
            let plan = plan(&gathered);
            let Step::Say(verdict) = plan.step else { panic!("{:?}", plan.step) };
            assert_eq!(verdict.reason, "ClusterChanged");
            let stranger = plan.stranger.unwrap();
            assert!(stranger.contains("uid-of-another") && stranger.contains(WORKER), "{stranger}");
        }
    }
}

#[test]
fn what_was_published_by_way_of_another_management_cluster_is_left_alone() {
    let mut gathered = standing();
    let mut made = std::mem::take(&mut gathered.made);
    let of_another = |meta: &mut Meta| {
        meta.annotations.insert(names::MANAGEMENT_CLUSTER_UID.into(), "uid-of-another".into());
        meta.annotations.insert(names::ORPHANED_SINCE.into(), hours(-48).to_string());
    };
    let secrets = made.bootstrap.iter_mut().chain(&mut made.provisioning);
    secrets.for_each(|secret| of_another(&mut Arc::make_mut(secret).meta));
    made.account.iter_mut().for_each(|account| of_another(Arc::make_mut(account)));
    made.role.iter_mut().for_each(|role| of_another(&mut Arc::make_mut(role).meta));
    made.binding.iter_mut().for_each(|binding| of_another(&mut Arc::make_mut(binding).meta));
    gathered.strays = vec![("other".into(), made)];
    for retired in [false, true] {
        let mut gathered = gathered.clone();
        edit_config(&mut gathered, |config| {
            let retired = retired.then(|| Retired { uid: "md-uid".into(), generation: 3 });
            config.status.retired = retired;
        });
        let plan = plan(&gathered);
        assert!(plan.orphans.is_empty(), "{:?}", plan.orphans);
        assert!(plan.stranger.unwrap().contains("--kubeconfig"));
        if let Step::Undo(made) = plan.step {
            assert!(made.is_empty(), "{made:?}");
        }
    }
    gathered.config = None;
    assert!(plan(&gathered).orphans.is_empty());
    gathered.clusters.management = "uid-of-another".into();
    assert!(matches!(plan(&gathered).orphans.as_slice(), [OrphanStep::Collect(_)]), "the one that may");
}

#[test]
fn objects_of_the_go_implementation_are_left_alone() {
    let mut gathered = fresh();
    edit_config(&mut gathered, |config| config.machine_deployment = None);
    assert!(matches!(plan(&gathered).step, Step::None));
}

/// An edge pool of which everything stands.
fn standing_edge() -> Gathered {
    let mut gathered = standing();
    edit_config(&mut gathered, |config| config.is_edge = true);
    let mut script = (**gathered.made.bootstrap.as_ref().unwrap()).clone();
    script.meta.name = "edge-provider-script-pool-kube-system".into();
    script.content = Some("script".into());
    let sealed = seal(&gathered.key, "script", &script.meta.annotations);
    script.meta.annotations.insert(names::CONTENT_MAC.into(), sealed);
    gathered.made.edge_script = Some(Arc::new(script));
    gathered
}

#[test]
fn an_edge_pools_script_is_kept_like_its_bootstrap_secret() {
    assert!(matches!(plan(&standing_edge()).step, Step::Keep(_)));
    type Edit = fn(&mut SecretView);
    let edits: [Edit; 4] = [
        |script| script.content = Some("other".into()),
        |script| {
            script.meta.annotations.insert(names::EXPIRES.into(), hours(1).to_string());
        },
        |script| script.immutable = true,
        |script| script.meta.labels.clear(),
    ];
    for (i, edit) in edits.into_iter().enumerate() {
        let mut gathered = standing_edge();
        let mut script = (**gathered.made.edge_script.as_ref().unwrap()).clone();
        edit(&mut script);
        gathered.made.edge_script = Some(Arc::new(script));
        assert_eq!(causes_of(&gathered), [Cause::Altered], "edit {i}");
    }
    let mut gathered = standing_edge();
    gathered.made.edge_script = None;
    assert_eq!(causes_of(&gathered), [Cause::Altered]);
    // No longer an edge pool.
    let mut gathered = standing_edge();
    edit_config(&mut gathered, |config| config.is_edge = false);
    let Step::Keep(keep) = plan(&gathered).step else { panic!() };
    assert_eq!(keep.outdated.len(), 1);
}

#[test]
fn an_edge_pool_needs_no_revision() {
    let mut gathered = fresh();
    edit_config(&mut gathered, |config| {
        config.is_edge = true;
        config.status.rendered.as_mut().unwrap().revision = None;
    });
    let Step::Publish(publish) = plan(&gathered).step else { panic!() };
    assert_eq!(publish.edge_script_name.as_deref(), Some("edge-provider-script-pool-kube-system"));
}

fn bootstrap_tokens(groups: &[&str]) -> NodeBootstrap {
    NodeBootstrap {
        kind: NodeBootstrapKind::BootstrapToken,
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
    }
}

#[test]
fn a_token_of_another_kind_or_group_is_another_token() {
    let bound = |by: &str| {
        let mut gathered = standing();
        edit_bootstrap(&mut gathered, |secret| {
            let annotations = &mut secret.meta.annotations;
            annotations.insert(names::BOUND_TO.into(), format!("account-uid/{by}/document-uid"));
            let sealed = seal(&DigestKey::of(&[7; 32]).unwrap(), "content", annotations);
            annotations.insert(names::CONTENT_MAC.into(), sealed);
        });
        gathered
    };
    let by_account = "node-account";
    let by_token = "system:bootstrappers,system:bootstrappers:a,system:bootstrappers:b";
    let wanted = bootstrap_tokens(&["system:bootstrappers:a", "system:bootstrappers:b"]);
    for (stands, wanted, good) in [
        (by_account, NodeBootstrap::default(), true),
        (by_account, wanted.clone(), false),
        (by_token, wanted.clone(), true),
        (by_token, bootstrap_tokens(&["system:bootstrappers:a"]), false),
        (by_token, NodeBootstrap::default(), false),
        ("system:bootstrappers", bootstrap_tokens(&[]), true),
    ] {
        let mut gathered = bound(stands);
        gathered.credentials.node_bootstrap = wanted.clone();
        if good {
            assert!(matches!(plan(&gathered).step, Step::Keep(_)), "{stands} {wanted:?}");
        } else {
            assert_eq!(causes_of(&gathered), [Cause::TokensDead], "{stands} {wanted:?}");
        }
    }

    // Who joins with bootstrap tokens needs no ServiceAccount for it.
    let mut gathered = bound(by_token);
    gathered.credentials.node_bootstrap = wanted.clone();
    gathered.node_account = None;
    assert!(matches!(plan(&gathered).step, Step::Keep(_)));
    gathered.made.bootstrap = None;
    let Step::Publish(publish) = plan(&gathered).step else { panic!() };
    assert!(!publish.create_node_account && publish.node_bootstrap == wanted);

    // Without settings the kind is the one that stands.
    let stands = |by: &str| credentials_without_settings(bound(by).made.bootstrap.as_deref()).node_bootstrap;
    assert_eq!(stands(by_token), wanted);
    assert_eq!(stands("system:bootstrappers"), bootstrap_tokens(&[]));
    assert_eq!(stands(by_account), NodeBootstrap::default());
    assert_eq!(credentials_without_settings(None), Credentials::default());
}

#[test]
fn what_the_go_implementation_made_is_told_of_and_stays_until_it_is_rendered() {
    let go = |conditions| {
        let status = OperatingSystemConfigStatus { conditions, ..Default::default() };
        Some(Arc::new(ConfigView { machine_deployment: None, made_in: None, status, ..config() }))
    };
    let mut gathered = Gathered { config: go(vec![]), pool: String::new(), ..fresh() };
    assert!(matches!(plan(&gathered).step, Step::None), "osc-controller knows no pool to it");
    let verdict = Verdict {
        type_: osm_api::condition::RENDERED,
        status: false,
        reason: "ProfileNotAccepted",
        message: String::new(),
    };
    gathered.config = go(vec![verdict.condition(&[], Some(1), now())]);
    let said = |gathered: &Gathered| match plan(gathered).step {
        Step::Say(verdict) if !verdict.status && verdict.reason == "NotTakenOver" => verdict.message,
        other => panic!("{other:?}"),
    };
    assert!(said(&gathered).contains("no machine can be made"));
    let name = "pool-kube-system-bootstrap-config".to_owned();
    gathered.inherited = Some(Inherited { name: name.clone(), revision: Some("7".into()) });
    let message = said(&gathered);
    assert!(message.contains("at revision 7") && message.contains(&name), "{message}");
}
