//! Every decision of secret-syncer, as a table of situations.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use osm_api::config::{LateBound, LateBoundKind, LateBoundSource, OperatingSystemConfigStatus, Retired};
use osm_api::{Joining, Reason, names};
use osm_render::LateValues;

use crate::model::documents::inputs_mac;
use crate::model::existing::ExistingObjects;
use crate::model::gathered::{Gathered, Inherited, NameHolder};
use crate::model::hmac_key::HmacKey;
use crate::model::memory::{PoolMemory, Repairs};
use crate::model::source::{SourceError, SourceProblem};
use crate::model::token_binding::KubeletToken;
use crate::model::view::{BindingView, ConfigView, Meta, RoleView, SecretView};
use crate::plan::cause::Cause;
use crate::plan::error::PlanError;
use crate::plan::fixtures::*;
use crate::plan::messages;
use crate::plan::steps::{Content, DocumentIdentity, KubeletIdentity, OrphanStep, Plan, Step, Unseen};
use crate::plan::timing::MAX_REQUEUE_INTERVAL;

fn plan(gathered: &Gathered) -> Result<Plan, PlanError> {
    super::plan(gathered).1
}

fn remembered(gathered: &Gathered) -> PoolMemory {
    super::plan(gathered).0
}

fn causes_of(gathered: &Gathered) -> Vec<Cause> {
    match plan(gathered).unwrap().step {
        Step::Publish(publish) => publish.causes,
        other => panic!("{other:?}"),
    }
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
    let Step::Publish(publish) = plan(&fresh()).unwrap().step else {
        panic!()
    };
    assert_eq!(publish.causes, [Cause::Missing]);
    assert!(matches!(publish.content, Content::Config { .. }));
    assert_eq!(publish.revision, "1");
    assert_eq!(publish.bootstrap_name, "pool-kube-system-bootstrap-config");
    assert_eq!(publish.identity, format!("osm-node-{POOL}"));
    assert_eq!(
        publish.keep_until,
        hours(25),
        "an hour longer than any token that is asked for"
    );
    assert_eq!(
        publish.kubelets_join_by,
        KubeletIdentity::Known("node-account".into())
    );
}

#[test]
fn what_stands_is_kept_until_its_renewal() {
    let plan = plan(&published()).unwrap();
    let Step::Keep(keep) = plan.step else {
        panic!("{:?}", plan.step)
    };
    assert!(keep.outdated.is_empty() && keep.narrow.is_none());
    assert_eq!(
        plan.again,
        Some(MAX_REQUEUE_INTERVAL),
        "its renewal is due in hours, but timers don't count sleep"
    );
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
                (|g| {
                    edit_config(g, |c| {
                        c.status.rendered.as_mut().unwrap().revision = Some("2".into())
                    })
                }) as Edit,
            ),
            Cause::NewRevision,
        ),
        (
            "inputs",
            Box::new(
                (|g| {
                    edit_rendered(g, |rendered| rendered.digest = "other".into());
                    g.memory.verified.as_mut().unwrap().inputs_mac =
                        inputs_mac(&g.key, "other", &[], &LateValues::new());
                }) as Edit,
            ),
            Cause::NewContent,
        ),
        (
            "config recreated",
            Box::new((|g| edit_config(g, |c| c.uid = "other".into())) as Edit),
            Cause::NewContent,
        ),
        (
            "data altered",
            Box::new((|g| edit_bootstrap(g, |s| s.content = Some("other".into()))) as Edit),
            Cause::Modified,
        ),
        (
            "data gone",
            Box::new((|g| edit_bootstrap(g, |s| s.content = None)) as Edit),
            Cause::Modified,
        ),
        (
            "annotation gone",
            Box::new(
                (|g| {
                    edit_bootstrap(g, |s| {
                        s.meta.annotations.remove(names::BOUND_TO);
                    })
                }) as Edit,
            ),
            Cause::TokensInvalid,
        ),
        (
            "made immutable",
            Box::new((|g| edit_bootstrap(g, |s| s.immutable = true)) as Edit),
            Cause::Modified,
        ),
        (
            "orphan mark left",
            Box::new(annotate(names::ORPHANED_SINCE, "2026-01-01T00:00:00Z")),
            Cause::Modified,
        ),
        (
            "account recreated",
            Box::new((|g| g.existing.account = Some(Arc::new(meta("new", &[])))) as Edit),
            Cause::TokensInvalid,
        ),
        (
            "account gone",
            Box::new((|g| g.existing.account = None) as Edit),
            Cause::TokensInvalid,
        ),
        (
            "node account recreated",
            Box::new((|g| g.node_account = Some("new".into())) as Edit),
            Cause::TokensInvalid,
        ),
        (
            "document gone",
            Box::new((|g| g.existing.provisioning.clear()) as Edit),
            Cause::TokensInvalid,
        ),
        (
            "role gone",
            Box::new((|g| g.existing.role = None) as Edit),
            Cause::RoleModified,
        ),
        (
            "binding altered",
            Box::new((|g| g.existing.binding = Some(Arc::new(BindingView::default()))) as Edit),
            Cause::RoleModified,
        ),
        (
            "renewal",
            Box::new((|g| g.now = hours(8)) as Edit),
            Cause::RenewalDue,
        ),
        (
            "annotation with the renewal altered",
            Box::new(annotate(names::RENEW_AT, "soon")),
            Cause::RenewalDue,
        ),
        (
            "restart",
            Box::new((|g| g.memory.verified = None) as Edit),
            Cause::Unverified,
        ),
        (
            "bootstrap gone",
            Box::new((|g| g.existing.bootstrap = None) as Edit),
            Cause::Missing,
        ),
    ];
    let mut gathered = published();
    annotate(names::RENEW_AT, "2099-01-01T00:00:00Z")(&mut gathered);
    assert_eq!(
        causes_of(&gathered),
        [Cause::Modified],
        "nobody puts a renewal off"
    );
    for (name, edit, cause) in cases {
        let mut gathered = published();
        edit(&mut gathered);
        let mut causes = causes_of(&gathered);
        if name.starts_with("annotation") {
            // The seal is broken as well.
            assert_eq!(
                causes.iter().filter(|cause| **cause == Cause::Modified).count(),
                1,
                "{name}"
            );
            causes.retain(|cause| *cause != Cause::Modified);
        }
        assert_eq!(causes, [cause], "{name}");
    }
}

#[test]
fn waiting_is_said_and_takes_nothing_away() {
    let mut gathered = published();
    edit_config(&mut gathered, |config| config.status.rendered = None);
    assert!(
        matches!(plan(&gathered).unwrap().step, Step::None),
        "not worth a word yet"
    );
    assert!(
        plan(&gathered)
            .unwrap()
            .again
            .is_some_and(|again| again <= Duration::from_secs(3))
    );
    gathered.memory.waiting_since = Some(now() - SignedDuration::from_secs(3));
    assert_eq!(said(&gathered), "WaitingForRendering");
    let mut gathered = published();
    gathered.memory.waiting_since = Some(now() - SignedDuration::from_secs(3));
    edit_config(&mut gathered, |config| {
        config.status.rendered.as_mut().unwrap().revision = None
    });
    assert_eq!(said(&gathered), "WaitingForRevision");
    let mut gathered = fresh();
    let name = "pool-kube-system-bootstrap-config".to_owned();
    gathered.name_holder = Some(NameHolder {
        name,
        installation: None,
    });
    assert_eq!(said(&gathered), "ForeignSecret");
    assert!(plan(&gathered).unwrap().again.is_some());
}

#[test]
fn without_a_rendered_content_nothing_is_published() {
    let mut gathered = published();
    edit_config(&mut gathered, |config| config.status.rendered = None);
    assert!(
        matches!(plan(&gathered).unwrap().step, Step::None),
        "it is too early to report"
    );
    // For long: it is said, and until when what was published is good.
    gathered.memory.waiting_since = Some(now() - SignedDuration::from_mins(1));
    edit_config(&mut gathered, |config| {
        config.status.published = Some(osm_api::config::Published {
            digest: "d".into(),
            revision: "1".into(),
            bootstrap_secret: "b".into(),
            provisioning_secret: "p".into(),
            credential_expires: "2027-01-01T00:00:00Z".into(),
        });
    });
    let Step::SetStatus(verdict) = plan(&gathered).unwrap().step else {
        panic!()
    };
    assert_eq!(verdict.reason, "WaitingForRendering");
    assert!(verdict.message.contains("2027-01-01"), "{}", verdict.message);
    // What belongs to whom is not known now.
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
    let plan = plan(&gathered).unwrap();
    let Step::Keep(keep) = plan.step else {
        panic!("{:?}", plan.step)
    };
    assert_eq!(
        keep.outdated
            .iter()
            .map(|secret| secret.meta.name.as_str())
            .collect::<Vec<_>>(),
        ["expired"]
    );
    assert_eq!(
        keep.narrow.unwrap().secrets,
        ["document", "fetchable"],
        "the named one stays whatever its date says"
    );
    assert_eq!(plan.again, Some(MAX_REQUEUE_INTERVAL));
    // A document whose date somebody destroyed is kept: its tokens may be alive.
    let mut altered = (*document("altered", hours(0))).clone();
    altered.meta.annotations.clear();
    gathered.existing.provisioning.push(Arc::new(altered));
    let Step::Keep(keep) = self::plan(&gathered).unwrap().step else {
        panic!()
    };
    assert!(keep.outdated.iter().all(|secret| secret.meta.name != "altered"));
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
    let Step::Publish(publish) = plan(&gathered).unwrap().step else {
        panic!()
    };
    assert_eq!(publish.kept, ["document", "fetchable"]);
}

#[test]
fn a_retired_pool_is_undone_until_nothing_is_left() {
    let mut gathered = published();
    edit_config(&mut gathered, |config| {
        config.status.retired = Some(Retired {
            uid: "md-uid".into(),
            generation: 3,
        })
    });
    assert!(matches!(plan(&gathered).unwrap().step, Step::Teardown(_)));
    edit_config(&mut gathered, |config| {
        config.status.conditions = vec![messages::torn_down().condition(&[], Some(3), now())]
    });
    assert!(
        matches!(plan(&gathered).unwrap().step, Step::Teardown(_)),
        "something is left"
    );
    gathered.existing = ExistingObjects::default();
    assert!(matches!(plan(&gathered).unwrap().step, Step::None));
    // Word of another pool's end does not count.
    let mut gathered = published();
    edit_config(&mut gathered, |config| {
        config.status.retired = Some(Retired {
            uid: "other".into(),
            generation: 3,
        })
    });
    assert!(matches!(plan(&gathered).unwrap().step, Step::Keep(_)));
}

#[test]
fn a_missing_config_deletes_nothing_for_a_day() {
    let mut gathered = published();
    let made = std::mem::take(&mut gathered.existing);
    gathered.config = None;
    gathered.orphans = vec![(POOL.into(), made)];
    let marked = plan(&gathered).unwrap();
    assert!(matches!(marked.step, Step::None));
    let [OrphanStep::Mark { secrets, since }] = marked.orphans.as_slice() else {
        panic!("{:?}", marked.orphans)
    };
    assert_eq!((secrets.len(), *since), (2, now()));

    mark(&mut gathered.orphans[0].1, now());
    gathered.now = hours(23);
    let waits = plan(&gathered).unwrap();
    assert!(waits.orphans.is_empty());
    assert_eq!(waits.again, Some(MAX_REQUEUE_INTERVAL));
    gathered.now = hours(24);
    assert!(matches!(
        plan(&gathered).unwrap().orphans.as_slice(),
        [OrphanStep::Collect(_)]
    ));
    gathered.orphan_budget.as_mut().unwrap().recorded = hours(24).to_string();
    let limited = plan(&gathered).unwrap();
    assert!(
        limited.orphans.is_empty() && limited.again.is_some(),
        "never more than a tenth in an hour"
    );
}

#[test]
fn in_another_worker_cluster_nothing_is_published_or_undone() {
    let retired = Retired {
        uid: "md-uid".into(),
        generation: 3,
    };
    for retired in [None, Some(retired)] {
        for mut gathered in [fresh(), published()] {
            gathered.clusters.worker = "uid-of-another".into();
            edit_config(&mut gathered, |config| config.status.retired = retired.clone());
            let plan = plan(&gathered).unwrap();
            let Step::SetStatus(verdict) = plan.step else {
                panic!("{:?}", plan.step)
            };
            assert_eq!(verdict.reason, "ClusterChanged");
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
    let mut made = std::mem::take(&mut gathered.existing);
    let of_another = |meta: &mut Meta| {
        meta.annotations
            .insert(names::MANAGEMENT_CLUSTER_UID.into(), "uid-of-another".into());
        meta.annotations
            .insert(names::ORPHANED_SINCE.into(), hours(-48).to_string());
    };
    let secrets = made.bootstrap.iter_mut().chain(&mut made.provisioning);
    secrets.for_each(|secret| of_another(&mut Arc::make_mut(secret).meta));
    made.account
        .iter_mut()
        .for_each(|account| of_another(Arc::make_mut(account)));
    made.role
        .iter_mut()
        .for_each(|role| of_another(&mut Arc::make_mut(role).meta));
    made.binding
        .iter_mut()
        .for_each(|binding| of_another(&mut Arc::make_mut(binding).meta));
    gathered.orphans = vec![("other".into(), made)];
    for retired in [false, true] {
        let mut gathered = gathered.clone();
        edit_config(&mut gathered, |config| {
            let retired = retired.then(|| Retired {
                uid: "md-uid".into(),
                generation: 3,
            });
            config.status.retired = retired;
        });
        let plan = plan(&gathered).unwrap();
        assert!(plan.orphans.is_empty(), "{:?}", plan.orphans);
        assert!(plan.foreign_cluster.unwrap().contains("--kubeconfig"));
        if let Step::Teardown(made) = plan.step {
            assert!(made.objects.is_empty(), "{made:?}");
            assert_eq!(made.unseen, Unseen::NONE);
        }
    }
    gathered.config = None;
    assert!(plan(&gathered).unwrap().orphans.is_empty());
    gathered.clusters.management = "uid-of-another".into();
    assert!(
        matches!(
            plan(&gathered).unwrap().orphans.as_slice(),
            [OrphanStep::Collect(_)]
        ),
        "the one that may"
    );
}

#[test]
fn objects_of_the_go_implementation_are_left_alone() {
    let mut gathered = fresh();
    edit_config(&mut gathered, |config| config.machine_deployment = None);
    assert!(matches!(plan(&gathered).unwrap().step, Step::None));
}

#[test]
fn an_edge_pools_script_is_kept_like_its_bootstrap_secret() {
    assert!(matches!(plan(&published_edge()).unwrap().step, Step::Keep(_)));
    type Edit = fn(&mut SecretView);
    let edits: [Edit; 4] = [
        |script| script.content = Some("other".into()),
        |script| {
            script
                .meta
                .annotations
                .insert(names::EXPIRES.into(), hours(1).to_string());
        },
        |script| script.immutable = true,
        |script| script.meta.labels.clear(),
    ];
    for (i, edit) in edits.into_iter().enumerate() {
        let mut gathered = published_edge();
        let mut script = (**gathered.existing.edge_script.as_ref().unwrap()).clone();
        edit(&mut script);
        gathered.existing.edge_script = Some(Arc::new(script));
        assert_eq!(causes_of(&gathered), [Cause::Modified], "edit {i}");
    }
    let mut gathered = published_edge();
    gathered.existing.edge_script = None;
    assert_eq!(causes_of(&gathered), [Cause::Modified]);
    // No longer an edge pool.
    let mut gathered = published_edge();
    edit_config(&mut gathered, |config| config.is_edge = false);
    let Step::Keep(keep) = plan(&gathered).unwrap().step else {
        panic!()
    };
    assert_eq!(keep.outdated.len(), 1);
}

#[test]
fn an_edge_pool_needs_no_revision() {
    let mut gathered = fresh();
    edit_config(&mut gathered, |config| {
        config.is_edge = true;
        config.status.rendered.as_mut().unwrap().revision = None;
    });
    let Step::Publish(publish) = plan(&gathered).unwrap().step else {
        panic!()
    };
    assert_eq!(
        publish.edge_script_name.as_deref(),
        Some("edge-provider-script-pool-kube-system")
    );
}

/// A change of the mode republishes every pool, and so does the way back. A pool that the mode leaves as it is stays.
#[test]
fn the_mode_says_whose_token_kubelets_join_with() {
    let by = |joins_by: &str| {
        let mut gathered = published();
        edit_bootstrap(&mut gathered, |secret| {
            let recorded = format!("account-uid/{joins_by}/document-uid");
            secret.meta.annotations.insert(names::BOUND_TO.into(), recorded);
            reseal(&HmacKey::new([7; 32]), secret);
        });
        gathered
    };
    let (pool, account) = ("pool", "node-account");
    for (joining, recorded, causes) in [
        (Joining::Static, account, vec![]),
        (Joining::Static, pool, vec![Cause::TokensInvalid]),
        (Joining::Approved, pool, vec![]),
        (Joining::Approved, account, vec![Cause::TokensInvalid]),
    ] {
        let gathered = Gathered {
            joining,
            ..by(recorded)
        };
        // The mode is known where the settings are not.
        let without = Gathered {
            credentials: None,
            ..gathered.clone()
        };
        for gathered in [gathered, without] {
            match plan(&gathered).unwrap().step {
                Step::Keep(_) => assert!(causes.is_empty(), "{joining} {recorded}"),
                Step::Publish(publish) => assert_eq!(publish.causes, causes, "{joining} {recorded}"),
                other => panic!("{joining} {recorded}: {other:?}"),
            }
        }
    }

    // The pool's own token needs no other account.
    let gathered = Gathered {
        joining: Joining::Approved,
        node_account: None,
        ..fresh()
    };
    let Step::Publish(publish) = plan(&gathered).unwrap().step else {
        panic!()
    };
    assert_eq!(publish.kubelets_join_by, KubeletIdentity::Known(pool.into()));
    assert_eq!(publish.kubelet_token, KubeletToken::Pool);
}

#[test]
fn what_the_go_implementation_made_is_told_of_and_stays_until_it_is_rendered() {
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
        pool: String::new(),
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
    assert!(said(&gathered).contains("no machine can boot"));
    let name = "pool-kube-system-bootstrap-config".to_owned();
    gathered.inherited = Some(Inherited {
        name: name.clone(),
        revision: Some("7".into()),
    });
    let message = said(&gathered);
    assert!(
        message.contains("at revision 7") && message.contains(&name),
        "{message}"
    );
}

#[test]
fn repairs_that_do_not_last_end() {
    let mut gathered = published();
    edit_bootstrap(&mut gathered, |secret| secret.content = Some("other".into()));
    gathered.memory.repairs = Some(Repairs {
        last: now(),
        count: 19,
    });
    assert!(plan(&gathered).is_ok());
    let memory = remembered(&gathered);
    assert_eq!(
        memory.repairs,
        Some(Repairs {
            last: now(),
            count: 20
        })
    );
    gathered.memory = memory;
    let refused = plan(&gathered).err().unwrap();
    assert!(
        matches!(
            refused,
            PlanError::RepeatedlyModified {
                cause: Cause::Modified
            }
        ),
        "{refused}"
    );
    // New content is published all the same once something else is not altered with it.
    let mut gathered = Gathered {
        memory: gathered.memory,
        ..published()
    };
    edit_rendered(&mut gathered, |rendered| rendered.digest = "other".into());
    assert!(causes_of(&gathered).contains(&Cause::NewContent));
}

#[test]
fn values_of_last_time_serve_while_a_source_is_missing() {
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
    let mut gathered = fresh();
    edit_config(&mut gathered, |config| config.late_bound = vec![late.clone()]);
    let values = LateValues::from([("secret".to_owned(), "value".to_owned())]);
    gathered.values = Ok(values.clone());
    let good = plan(&gathered).unwrap();
    let memory = remembered(&gathered);
    assert!(good.degraded.is_none() && memory.last_values == Some(values.clone()));
    let Step::Publish(good_publish) = good.step else {
        panic!()
    };

    gathered.values = Err(SourceError::new(&late, &source, SourceProblem::Missing));
    let refused = plan(&gathered).err().unwrap();
    assert_eq!(
        refused.reason(),
        Reason::SourceMissing,
        "nothing is known of the value"
    );
    gathered.memory = memory;
    let degraded = plan(&gathered).unwrap();
    assert_eq!(degraded.degraded.unwrap().reason, Reason::SourceMissing);
    let Step::Publish(publish) = degraded.step else {
        panic!()
    };
    assert!(matches!(&publish.content, Content::Config { values: used, .. } if *used == values));
    assert_eq!(publish.inputs_mac, good_publish.inputs_mac);
    gathered.memory.last_values = Some(LateValues::new());
    assert!(plan(&gathered).is_err(), "values of other content are no help");
}

#[test]
fn what_was_seen_is_remembered_though_there_is_no_plan() {
    let values = LateValues::from([("secret".to_owned(), "value".to_owned())]);
    let before = PoolMemory {
        waiting_since: Some(hours(-1)),
        foreign_secret: Some("taken".into()),
        repairs: Some(Repairs {
            last: now(),
            count: 20,
        }),
        ..PoolMemory::default()
    };
    // The repairs don't last, but the values are available, and so is the name.
    let mut altered = published();
    edit_bootstrap(&mut altered, |secret| secret.content = Some("other".into()));
    altered.values = Ok(values.clone());
    altered.memory = before.clone();
    assert!(matches!(
        plan(&altered),
        Err(PlanError::RepeatedlyModified { .. })
    ));
    let memory = remembered(&altered);
    assert_eq!(
        (memory.last_values, memory.repairs),
        (Some(values), before.repairs)
    );
    assert_eq!((memory.waiting_since, memory.foreign_secret), (None, None));

    // A value is missing, but the name is available.
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
    let mut missing = fresh();
    missing.values = Err(SourceError::new(&late, &source, SourceProblem::Missing));
    missing.memory = before;
    edit_config(&mut missing, |config| config.late_bound = vec![late]);
    assert!(matches!(plan(&missing), Err(PlanError::Held(_))));
    let memory = remembered(&missing);
    assert_eq!((memory.waiting_since, memory.foreign_secret), (None, None));
}

#[test]
fn a_value_that_the_settings_took_back_is_not_published_again() {
    let source = LateBoundSource {
        namespace: "n".into(),
        name: "s".into(),
        key: "k".into(),
    };
    let late = LateBound {
        id: "secret".into(),
        kind: LateBoundKind::ProfileSecretKey,
        source: Some(source.clone()),
    };
    for (problem, is_held) in [
        (SourceProblem::Missing, false),
        (SourceProblem::NotOfProfiles, true),
    ] {
        let mut gathered = published();
        gathered.memory.last_values = Some([("secret".to_owned(), "last".to_owned())].into());
        gathered.values = Err(SourceError::new(&late, &source, problem));
        edit_config(&mut gathered, |config| config.late_bound = vec![late.clone()]);
        assert_eq!(crate::plan::inputs::choose(&gathered).is_err(), is_held);
    }
}

#[test]
fn a_restart_of_the_same_program_compares_nothing() {
    let mut gathered = published();
    gathered.memory.verified = None;
    let program = gathered.program.clone();
    edit_bootstrap(&mut gathered, |secret| {
        secret.meta.annotations.insert(names::PROGRAM.into(), program);
    });
    assert!(matches!(plan(&gathered).unwrap().step, Step::Keep(_)));
}

#[test]
fn only_a_restart_compares_documents_before_it_publishes() {
    let mut gathered = published();
    gathered.memory.verified = None;
    let Step::Publish(publish) = plan(&gathered).unwrap().step else {
        panic!()
    };
    let unless = DocumentIdentity {
        document_mac: "mac".into(),
        provisioning_secret: "document".into(),
    };
    assert_eq!(
        (publish.causes, publish.unless),
        (vec![Cause::Unverified], Some(unless))
    );
    assert_eq!(publish.program.as_deref(), Some("program"));
    gathered.existing.role = None;
    let Step::Publish(publish) = plan(&gathered).unwrap().step else {
        panic!()
    };
    assert!(publish.unless.is_none(), "there is something to repair");
}
