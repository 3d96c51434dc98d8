//! Every decision of secret-syncer, as a table of situations.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use osm_api::config::{LateBound, LateBoundKind, LateBoundSource, OperatingSystemConfigStatus};
use osm_api::names;
use osm_user_data::LateValues;

use crate::model::existing::ExistingObjects;
use crate::model::gathered::Gathered;
use crate::model::memory::{MadeFrom, PoolMemory, Repairs};
use crate::model::source::{Inputs, SourceError, SourceProblem};
use crate::model::view::{ConfigView, Meta, RoleView};
use crate::plan::content::Origin;
use crate::plan::findings::Cause;
use crate::plan::fixtures::*;
use crate::plan::requeue::MAX_REQUEUE_INTERVAL;
use crate::plan::steps::PlanError;
use crate::plan::steps::{Keep, Owner, Plan, Step};
use crate::plan::{messages, provisioning_secret};

fn plan(gathered: &Gathered) -> Result<Plan, PlanError> {
    super::plan(gathered).1
}

fn remembered(gathered: &Gathered) -> PoolMemory {
    super::plan(gathered).0
}

fn causes_of(gathered: &Gathered) -> Vec<Cause> {
    published_now(gathered).causes()
}

fn said(gathered: &Gathered) -> &'static str {
    match plan(gathered).unwrap().step {
        Step::SetStatus(verdict) => {
            assert!(!verdict.status && !verdict.message.is_empty());
            verdict.reason.as_str()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_fresh_pool_is_published() {
    let publish = published_now(&fresh());
    assert_eq!(publish.causes(), [Cause::Missing]);
    assert!(matches!(publish.wanted.origin, Origin::Config { .. }));
    assert_eq!(publish.wanted.revision, "1");
}

#[test]
fn what_stands_is_kept_until_its_renewal() {
    let keep = kept(&published());
    assert!(keep.outdated.is_empty() && keep.opened.is_none());
    assert_eq!(
        plan(&published()).unwrap().requeue_after,
        Some(MAX_REQUEUE_INTERVAL),
        "its renewal is due in hours, but timers don't count sleep"
    );
}

#[test]
fn waiting_is_said_and_takes_nothing_away() {
    let mut gathered = published();
    edit_config(&mut gathered, |config| config.status.rendered = None);
    let early = plan(&gathered).unwrap();
    assert!(matches!(early.step, Step::None), "not worth a word yet");
    assert!(
        early
            .requeue_after
            .is_some_and(|after| after <= Duration::from_secs(3))
    );
    gathered.memory.waiting_since = Some(now() - SignedDuration::from_secs(3));
    assert_eq!(said(&gathered), "WaitingForRendering");
    let mut without_revision = published();
    without_revision.memory.waiting_since = gathered.memory.waiting_since;
    edit_rendered(&mut without_revision, |rendered| rendered.revision = None);
    assert_eq!(said(&without_revision), "WaitingForRevision");
    // It also says until when what was published is good.
    edit_config(&mut gathered, |config| {
        config.status.published = Some(osm_api::config::Published {
            digest: "d".into(),
            revision: "1".into(),
            bootstrap_secret: "b".into(),
            provisioning_secret: "p".into(),
            credential_expiration_time: "2027-01-01T00:00:00Z".into(),
        });
    });
    let Step::SetStatus(verdict) = plan(&gathered).unwrap().step else {
        panic!()
    };
    assert_eq!(verdict.reason, "WaitingForRendering");
    assert!(verdict.message.contains("2027-01-01"), "{}", verdict.message);
    // Its bootstrap Secret may be of a predecessor.
    gathered.orphans = vec![("other".into(), published().existing)];
    assert!(plan(&gathered).unwrap().orphans.is_empty());
}

#[test]
fn old_documents_go_when_no_token_may_fetch_them_and_the_role_narrows() {
    let mut gathered = published();
    gathered.existing.provisioning = vec![
        document("document", hours(-5)),
        document("expired", hours(0)),
        document("fetchable", hours(3)),
    ];
    let opened = ["document", "expired", "fetchable"].map(str::to_owned).to_vec();
    gathered.existing.role = Some(Arc::new(RoleView {
        meta: meta("role", &[]),
        secrets: Some(opened),
    }));
    let keep = kept(&gathered);
    assert_eq!(outdated(&keep), ["expired"]);
    assert_eq!(
        keep.opened.unwrap(),
        ["document", "fetchable"],
        "the named one stays whatever its date says"
    );
    // A document whose date someone destroyed is kept: its tokens may still be valid.
    let mut altered = (*document("altered", hours(0))).clone();
    altered.meta.annotations.clear();
    gathered.existing.provisioning.push(Arc::new(altered));
    assert_eq!(outdated(&kept(&gathered)), ["expired"]);
}

#[test]
fn a_publish_keeps_the_documents_that_machines_may_still_fetch() {
    let mut gathered = published();
    gathered
        .existing
        .provisioning
        .push(document("fetchable", hours(3)));
    gathered
        .existing
        .provisioning
        .push(document("outdated", hours(-3)));
    edit_rendered(&mut gathered, |rendered| rendered.digest = "other".into());
    assert_eq!(published_now(&gathered).kept, ["document", "fetchable"]);
}

#[test]
fn a_retired_pool_is_undone_until_nothing_is_left() {
    let mut gathered = published();
    edit_config(&mut gathered, |config| {
        config.status.retired = Some(retired("md-uid"))
    });
    assert!(matches!(plan(&gathered).unwrap().step, Step::Teardown { .. }));
    edit_config(&mut gathered, |config| {
        config.status.conditions = vec![messages::torn_down().condition(&[], Some(3), now())]
    });
    assert!(
        matches!(plan(&gathered).unwrap().step, Step::Teardown { .. }),
        "something is left"
    );
    gathered.existing = ExistingObjects::default();
    assert!(matches!(plan(&gathered).unwrap().step, Step::None));
    // Word of another pool's end does not count.
    let mut gathered = published();
    edit_config(&mut gathered, |config| {
        config.status.retired = Some(retired("other"))
    });
    assert!(matches!(plan(&gathered).unwrap().step, Step::Keep(_)));
}

#[test]
fn an_orphan_has_an_owner_only_if_all_its_objects_name_it() {
    let owner = |edit: &dyn Fn(&mut ExistingObjects)| {
        let mut gathered = published();
        let mut objects = std::mem::take(&mut gathered.existing);
        edit(&mut objects);
        gathered.config = None;
        gathered.orphans = vec![(POOL.into(), objects)];
        let plan = plan(&gathered).unwrap();
        assert!(matches!(plan.step, Step::None));
        assert_eq!(plan.requeue_after, Some(MAX_REQUEUE_INTERVAL));
        let mut orphans = plan.orphans.into_iter();
        orphans.next().unwrap().owner
    };
    fn account(objects: &mut ExistingObjects) -> &mut Meta {
        Arc::make_mut(objects.account.as_mut().unwrap())
    }
    let made_for = Owner {
        namespace: "kube-system".into(),
        name: "pool".into(),
    };
    assert_eq!(owner(&|_| {}), Some(made_for));
    assert_eq!(
        owner(&|o| drop(account(o).annotations.remove(names::OWNER))),
        None
    );
    let name = |o: &mut ExistingObjects, owner: &str| {
        account(o).annotations.insert(names::OWNER, owner.to_owned());
    };
    assert_eq!(owner(&|o| name(o, "kube-system/other")), None);
    // All of them name nothing.
    assert_eq!(
        owner(&|o| {
            (o.bootstrap, o.role, o.binding) = (None, None, None);
            o.provisioning.clear();
            name(o, "");
        }),
        None
    );
}

#[test]
fn in_another_worker_cluster_nothing_is_published_or_undone() {
    for retired in [None, Some(retired("md-uid"))] {
        for mut gathered in [fresh(), published()] {
            gathered.clusters.worker = "uid-of-another".into();
            gathered.orphans = vec![("other".into(), published().existing)];
            edit_config(&mut gathered, |config| config.status.retired = retired.clone());
            let plan = plan(&gathered).unwrap();
            let Step::SetStatus(verdict) = plan.step else {
                panic!("{:?}", plan.step)
            };
            assert_eq!(verdict.reason, "ClusterChanged");
            assert!(plan.orphans.is_empty(), "{:?}", plan.orphans);
            let foreign_cluster = plan.foreign_cluster.unwrap();
            assert!(
                foreign_cluster.contains("uid-of-another") && foreign_cluster.contains(WORKER),
                "{foreign_cluster}"
            );
        }
    }
}

#[test]
fn what_was_published_by_way_of_another_management_cluster_is_left_alone() {
    let mut gathered = published();
    let mut account = (*gathered.existing.account.take().unwrap()).clone();
    account
        .annotations
        .insert(names::MANAGEMENT_CLUSTER_UID, "uid-of-another".into());
    let made = ExistingObjects {
        account: Some(Arc::new(account)),
        ..ExistingObjects::default()
    };
    gathered.existing = ExistingObjects::default();
    gathered.orphans = vec![("other".into(), made)];
    for is_retired in [false, true] {
        let mut gathered = gathered.clone();
        edit_config(&mut gathered, |config| {
            config.status.retired = is_retired.then(|| retired("md-uid"));
        });
        let plan = plan(&gathered).unwrap();
        assert!(plan.orphans.is_empty(), "{:?}", plan.orphans);
        assert!(plan.foreign_cluster.unwrap().contains("--kubeconfig"));
        if let Step::Teardown { objects, .. } = plan.step {
            assert!(objects.is_empty(), "{objects:?}");
        }
    }
    gathered.config = None;
    assert!(plan(&gathered).unwrap().orphans.is_empty());
    gathered.clusters.management = "uid-of-another".into();
    assert_eq!(plan(&gathered).unwrap().orphans.len(), 1, "the one that may");
}

#[test]
fn objects_of_the_upstream_osm_are_left_alone() {
    let mut gathered = fresh();
    edit_config(&mut gathered, |config| config.machine_deployment = None);
    assert!(matches!(plan(&gathered).unwrap().step, Step::None));
}

#[test]
fn an_edge_pool_needs_no_revision() {
    let mut gathered = fresh();
    edit_config(&mut gathered, |config| {
        config.is_edge = true;
        config.status.rendered.as_mut().unwrap().revision = None;
    });
    assert_eq!(causes_of(&gathered), [Cause::Missing]);
}

#[test]
fn what_the_upstream_osm_made_is_told_of_and_stays_until_it_is_rendered() {
    let go = |is_claimed| {
        Some(Arc::new(ConfigView {
            machine_deployment: None,
            made_in: None,
            is_claimed,
            status: OperatingSystemConfigStatus::default(),
            ..config()
        }))
    };
    let mut gathered = Gathered {
        config: go(false),
        ..fresh()
    };
    assert!(
        matches!(plan(&gathered).unwrap().step, Step::None),
        "osc-controller knows no pool to it"
    );
    gathered.config = go(true);
    let said = |gathered: &Gathered| match plan(gathered).unwrap().step {
        Step::SetStatus(verdict) if !verdict.status && verdict.reason == "NotAdopted" => verdict.message,
        other => panic!("{other:?}"),
    };
    let message = said(&gathered);
    let name = "pool-kube-system-bootstrap-config";
    assert!(message.contains(name), "{message}");
}

#[test]
fn repairs_that_do_not_last_end_and_new_content_is_published_with_them() {
    let mut gathered = published();
    edit_bootstrap(&mut gathered, |secret| secret.is_intact = false);
    let repaired = |count| Some(Repairs { last: now(), count });
    gathered.memory.repairs = repaired(19);
    assert_eq!(causes_of(&gathered), [Cause::Modified]);
    gathered.memory = remembered(&gathered);
    assert_eq!(gathered.memory.repairs, repaired(20));
    let refused = plan(&gathered).err().unwrap().to_string();
    assert!(refused.contains("the bootstrap Secret was altered"), "{refused}");
    let mut gathered = Gathered {
        memory: gathered.memory,
        ..published()
    };
    edit_rendered(&mut gathered, |rendered| rendered.digest = "other".into());
    assert!(causes_of(&gathered).contains(&Cause::NewContent));
}

fn late_bound() -> (LateBound, LateBoundSource) {
    let source = LateBoundSource {
        namespace: "n".into(),
        name: "s".into(),
        key: "k".into(),
    };
    let late = LateBound {
        id: "secret".into(),
        kind: LateBoundKind::SecretKey,
        source: Some(source.clone()),
    };
    (late, source)
}

#[test]
fn what_was_seen_is_remembered_though_there_is_no_plan() {
    let before = PoolMemory {
        waiting_since: Some(hours(-1)),
        repairs: Some(Repairs {
            last: now(),
            count: 20,
        }),
        ..PoolMemory::default()
    };
    // The repairs don't last.
    let mut altered = published();
    edit_bootstrap(&mut altered, |secret| secret.is_intact = false);
    altered.memory = before.clone();
    assert!(matches!(plan(&altered), Err(PlanError::RepeatedlyModified(_))));
    let memory = remembered(&altered);
    assert_eq!((memory.repairs, memory.waiting_since), (before.repairs, None));

    // A value is missing.
    let (late, source) = late_bound();
    let mut missing = fresh();
    missing.inputs = Err(SourceError::new(&late, &source, SourceProblem::Missing));
    missing.memory = before;
    edit_config(&mut missing, |config| config.late_bound_values = vec![late]);
    assert!(matches!(plan(&missing), Err(PlanError::Held(_))));
    assert_eq!(remembered(&missing).waiting_since, None);
}

#[test]
fn documents_are_compared_only_where_a_source_may_have_changed_and_nothing_else_is_to_be_done() {
    let rewritten = || Inputs {
        values: LateValues::from([("secret".to_owned(), "value".to_owned())]),
        references: ["Secret/n/s=u/2".to_owned()].into(),
    };
    // A restart alone compares nothing, and what is known from then on spares the comparison.
    let gathered = published();
    assert!(matches!(plan(&gathered).unwrap().step, Step::Keep(_)));
    let known = remembered(&gathered).made_from.unwrap();
    assert_eq!(known.digest, "d");

    let mut gathered = published();
    gathered.inputs = Ok(rewritten());
    let publish = published_now(&gathered);
    assert_eq!(publish.causes(), [Cause::NewContent]);
    assert_eq!(publish.compare.unwrap().provisioning_secret, "document");
    gathered.existing.role = None;
    assert_eq!(
        published_now(&gathered).compare,
        None,
        "there is something to repair"
    );

    let mut running = published();
    running.inputs = Ok(rewritten());
    running.memory.made_from = Some(MadeFrom {
        values: rewritten().values,
        ..known.clone()
    });
    assert!(matches!(plan(&running).unwrap().step, Step::Keep(_)));
    running.memory.made_from = Some(known);
    assert_eq!(
        published_now(&running).compare,
        None,
        "it is known to be another value"
    );
}

/// From now on no machine of the pool fetches a kubeconfig.
fn no_longer_late() -> Gathered {
    let mut gathered = published_late();
    edit_config(&mut gathered, |config| config.needs_kubeconfig_secret = false);
    gathered
}

fn kept(gathered: &Gathered) -> Keep {
    match plan(gathered).unwrap().step {
        Step::Keep(keep) => keep,
        other => panic!("{other:?}"),
    }
}

fn outdated(keep: &Keep) -> Vec<&str> {
    let names = keep.outdated.iter();
    names.map(|secret| secret.meta.name.as_str()).collect()
}

#[test]
fn a_kubeconfig_secret_that_is_no_longer_needed_goes_when_no_token_may_fetch_it() {
    let name = names::kubeconfig_secret_name(POOL);
    let mut gathered = fresh();
    assert!(published_now(&gathered).kept.is_empty());
    edit_config(&mut gathered, |config| config.needs_kubeconfig_secret = true);
    assert_eq!(published_now(&gathered).kept, std::slice::from_ref(&name));

    let mut gathered = no_longer_late();
    gathered.now = hours(7);
    let keep = kept(&gathered);
    assert!(keep.outdated.is_empty() && keep.opened.is_none(), "{keep:?}");
    let soon = (gathered.now + SignedDuration::from_secs(30)).to_string();
    edit_kubeconfig(&mut gathered, |secret| {
        secret.meta.annotations.insert(names::KEEP_UNTIL, soon);
    });
    assert_eq!(plan(&gathered).unwrap().requeue_after.unwrap().as_secs(), 30);
    gathered.now += SignedDuration::from_secs(30);
    let keep = kept(&gathered);
    assert_eq!(outdated(&keep), [name.as_str()]);
    // Another replica opens it before it writes it, so that what isn't shown stays open as well.
    assert_eq!(keep.opened, None);
    let shown = gathered.existing.kubeconfig.take();
    assert_eq!(kept(&gathered).opened, None);

    gathered.existing.kubeconfig = shown;
    // While it is needed its date does not count.
    edit_config(&mut gathered, |config| config.needs_kubeconfig_secret = true);
    assert!(outdated(&kept(&gathered)).is_empty());
}

#[test]
fn documents_whose_tokens_are_invalid_are_not_kept() {
    let bound = |name: &str, bound_to: Option<&str>| {
        let mut document = (*document(name, hours(20))).clone();
        let bound_to = bound_to.map(|to| (names::BOUND_TO, to.to_owned()));
        document.meta.annotations.extend(bound_to);
        Arc::new(document)
    };
    let mut gathered = published();
    gathered.existing.provisioning.extend([
        bound("alive", Some("account-uid")),
        bound("altered", Some("")),
        bound("of-another-account", Some("other")),
        bound("plain", None),
    ]);
    assert_eq!(outdated(&kept(&gathered)), ["of-another-account"]);
    // The watch may not show the account because it lost its label.
    gathered.existing.account = None;
    assert_eq!(published_now(&gathered).kept.len(), 5);
}

#[test]
fn a_document_that_lost_its_label_is_looked_for() {
    let mut gathered = published_late();
    let name = names::kubeconfig_secret_name(POOL);
    gathered.existing.kubeconfig = None;
    assert_eq!(published_now(&gathered).out_of_sight, std::slice::from_ref(&name));
    assert_eq!(
        provisioning_secret::purpose_of(&name),
        crate::model::view::PURPOSE_KUBECONFIG
    );
    let document = names::provisioning_secret_name(POOL, "hash");
    assert_eq!(
        provisioning_secret::purpose_of(&document),
        crate::model::view::PURPOSE_PROVISIONING
    );
}

#[test]
fn what_credentials_rest_on_is_deleted_before_the_documents() {
    let mut existing = published_late().existing;
    let name = names::token_binding_secret_name(POOL);
    existing.token_binding = Some(document(&name, hours(1)));
    let names: Vec<_> = existing
        .secrets()
        .map(|secret| secret.meta.name.clone())
        .collect();
    let kubeconfig = names::kubeconfig_secret_name(POOL);
    assert_eq!(
        names,
        [
            &name,
            &kubeconfig,
            "document",
            "pool-kube-system-bootstrap-config"
        ]
    );
}
