use super::*;
use crate::custom_profile::CustomProfile;
use crate::default_profile::{INTERIM_VERSION, Restore, is_labelled, label};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use osm_api::names;
use osm_render::validate::Refusal;
use serde_json::json;
use std::sync::Arc;

/// A small profile that renders for aws.
pub(crate) fn profile(version: &str) -> OperatingSystemProfileSpec {
    serde_json::from_value(json!({
        "osName": "ubuntu", "osVersion": "24.04", "version": version, "templateEngine": "Handlebars",
        "supportedCloudProviders": [{"name": "aws"}],
        "provisioningConfig": {"files": [
            {"path": "/etc/motd", "content": {"inline": {"data": "kubelet {{kubelet.version}}\n"}}}]},
    }))
    .unwrap()
}

fn accepted(version: &str) -> AcceptedProfile {
    osm_render::resolve(&profile(version)).unwrap()
}

fn refusal(reason: Reason) -> Outcome {
    Err(Refusal {
        reason,
        message: "files[0], line 2, column 5: no such field".into(),
        position: None,
    })
}

/// A stored profile of this version without a status, gathered at second 100.
fn stored(version: &str) -> Gathered {
    let mut stored = OperatingSystemProfile::new("osp-ubuntu", profile(version));
    stored.metadata.uid = Some("u".into());
    stored.metadata.resource_version = Some("7".into());
    stored.metadata.generation = Some(3);
    Gathered {
        now: Timestamp::from_second(100).unwrap(),
        namespace: "kube-system".into(),
        name: "osp-ubuntu".into(),
        stored: Some(Arc::new(stored.into())),
        default: None,
        restored: None,
        custom: None,
        is_default: false,
        validation: None,
        awaited: None,
    }
}

/// The same with a good outcome.
fn good() -> Gathered {
    Gathered {
        validation: Some(Ok(accepted("v1.0.0"))),
        ..stored("v1.0.0")
    }
}

/// A stored profile of this version where the default is another one.
fn to_restore(version: &str) -> Gathered {
    Gathered {
        default: Some(profile("v1.0.0")),
        ..stored(version)
    }
}

fn change(gathered: &mut Gathered, change: impl FnOnce(&mut OperatingSystemProfile)) {
    let mut stored: OperatingSystemProfile = (**gathered.stored.take().unwrap()).clone();
    change(&mut stored);
    gathered.stored = Some(Arc::new(stored.into()));
}

/// The state after the plan was executed, a second later.
fn carried_out(mut gathered: Gathered) -> Gathered {
    let status = update(&gathered).status;
    change(&mut gathered, |stored| stored.status = Some(status));
    gathered.now = Timestamp::from_second(gathered.now.as_second() + 1).unwrap();
    gathered
}

/// An accepted profile whose status is up to date.
fn settled() -> Gathered {
    carried_out(good())
}

fn update(gathered: &Gathered) -> StatusUpdate {
    plan(gathered).status.unwrap()
}

fn judged(gathered: &Gathered) -> (OperatingSystemProfileStatus, Option<Transition>) {
    let update = update(gathered);
    (update.status, update.transition)
}

fn restore(gathered: &Gathered) -> Restore {
    let Plan {
        install,
        verdict,
        status,
        ..
    } = plan(gathered);
    assert_eq!(
        (verdict, status),
        (None, None),
        "a profile that is about to be replaced has no verdict"
    );
    assert!(gathered.kept().is_none());
    match install {
        Some(Install::Restore(restore)) => restore,
        other => panic!("{other:?}"),
    }
}

fn labelled(gathered: &mut Gathered) {
    change(gathered, |stored| label(&mut stored.metadata));
}

#[test]
fn a_missing_default_is_created_with_its_label() {
    let gathered = Gathered {
        stored: None,
        ..to_restore("v1.0.0")
    };
    let Some(Install::Create(created)) = plan(&gathered).install else {
        panic!()
    };
    assert_eq!(
        (created.name_any(), &created.spec),
        ("osp-ubuntu".into(), &profile("v1.0.0"))
    );
    assert!(is_labelled(&created.metadata));
}

#[test]
fn another_version_is_restored_older_or_newer() {
    for version in ["v0.9.0", "v2.0.0"] {
        let mut gathered = to_restore(version);
        change(&mut gathered, |stored| {
            stored.labels_mut().insert("mine".into(), "kept".into());
            stored.annotations_mut().insert("mine".into(), "kept".into());
        });
        let found = restore(&gathered);
        assert_eq!(
            (found.profile.status.clone(), found.interim_version),
            (None, None)
        );
        assert_eq!(found.profile.spec, profile("v1.0.0"));
        let metadata = found.profile.metadata;
        // A write in between must win.
        assert_eq!(metadata.resource_version.as_deref(), Some("7"));
        let (labels, annotations) = (metadata.labels.unwrap(), metadata.annotations.unwrap());
        // Those of others are kept, and ours is added.
        assert_eq!((labels.len(), annotations.len()), (2, 1), "{labels:?}");
        let notice = found.notice.unwrap();
        assert!(
            notice.contains(version) && notice.contains("another name"),
            "{notice}"
        );
    }
}

#[test]
fn other_content_under_our_version_is_put_back_interim_version_another_version() {
    let mut gathered = to_restore("v1.0.0");
    labelled(&mut gathered);
    change(&mut gathered, |stored| stored.spec.os_version = "22.04".into());
    let restore = restore(&gathered);
    assert_eq!(restore.interim_version.as_deref(), Some(INTERIM_VERSION));
    assert_eq!(restore.profile.spec, profile("v1.0.0"));
}

#[test]
fn a_lost_label_is_restored() {
    let mut gathered = to_restore("v1.0.0");
    let found = restore(&gathered);
    assert!(is_labelled(&found.profile.metadata) && found.notice.unwrap().contains(names::DEFAULT_PROFILE));
    assert_eq!(
        (found.profile.spec, found.interim_version),
        (profile("v1.0.0"), None)
    );
    change(&mut gathered, |stored| {
        stored
            .labels_mut()
            .insert(names::DEFAULT_PROFILE.into(), "false".into());
    });
    assert!(is_labelled(&restore(&gathered).profile.metadata));
}

#[test]
fn the_default_of_another_release_is_replaced_without_an_event() {
    let mut gathered = to_restore("v0.9.0");
    labelled(&mut gathered);
    change(&mut gathered, |stored| {
        stored.spec.version = osm_render::blessed_version(&stored.spec)
    });
    assert_eq!(restore(&gathered).notice, None);
    change(&mut gathered, |stored| stored.spec.os_version = "22.04".into());
    assert!(
        restore(&gathered).notice.is_some(),
        "its content is not the one that its version tells of"
    );
}

#[test]
fn a_default_that_somebody_keeps_changing_is_restored_once_a_minute() {
    let mut gathered = to_restore("v0.9.0");
    gathered.restored = Some(Duration::from_secs(50));
    let waiting = plan(&gathered);
    assert_eq!(waiting.requeue_after, Some(Duration::from_secs(10)));
    assert_eq!((waiting.install, waiting.status), (None, None));
    gathered.restored = Some(Duration::from_secs(61));
    restore(&gathered);
    // What is deleted is created at once.
    (gathered.restored, gathered.stored) = (Some(Duration::ZERO), None);
    assert!(matches!(plan(&gathered).install, Some(Install::Create(_))));
}

#[test]
fn nothing_is_done_about_what_is_missing_or_a_default_that_is_being_deleted() {
    let mut gathered = to_restore("v0.9.0");
    change(&mut gathered, |stored| {
        stored.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH))
    });
    assert_eq!(plan(&gathered), Plan::default());
    assert!(gathered.kept().is_none());
    (gathered.stored, gathered.default) = (None, None);
    assert_eq!(plan(&gathered), Plan::default());
}

#[test]
fn a_default_in_place_is_validated_as_any_other_and_so_is_a_disabled_one() {
    let mut gathered = good();
    labelled(&mut gathered);
    for default in [None, Some(profile("v1.0.0"))] {
        let gathered = Gathered {
            default,
            ..gathered.clone()
        };
        assert!(gathered.kept().is_some());
        assert_eq!(update(&gathered).status.accepted, Some(accepted("v1.0.0")));
    }
    change(&mut gathered, |stored| stored.spec.version = "v9.0.0".into());
    assert!(
        gathered.kept().is_some(),
        "switched off: whatever stands there is left alone"
    );
}

/// Type, status, reason and message of each condition.
fn shown(status: &OperatingSystemProfileStatus) -> Vec<[&str; 4]> {
    let shown = |found: &'_ Condition| found.observed_generation == status.observed_generation;
    assert!(status.conditions.iter().all(shown), "{status:?}");
    let conditions = status.conditions.iter();
    conditions
        .map(|found| [&*found.type_, &*found.status, &*found.reason, &*found.message])
        .collect()
}

#[test]
fn a_good_profile_is_accepted_silently_and_then_nothing_changes() {
    let StatusUpdate {
        resource_version,
        status,
        transition,
    } = update(&good());
    assert_eq!((resource_version.as_str(), transition), ("7", None));
    assert_eq!(
        (status.observed_generation, &status.accepted),
        (Some(3), &Some(accepted("v1.0.0")))
    );
    assert_eq!(
        shown(&status),
        [
            [ACCEPTED, "True", "Accepted", "version v1.0.0 renders for aws"],
            [READY, "True", "Accepted", "version v1.0.0 is accepted"],
        ]
    );
    let settled = plan(&settled());
    assert_eq!((settled.install, settled.status), (None, None));
    assert!(settled.verdict.unwrap().status, "still counted");
}

#[test]
fn a_new_generation_with_the_same_verdict_only_moves_the_generation() {
    let mut gathered = settled();
    let before = gathered.stored.clone().unwrap().status.clone().unwrap();
    change(&mut gathered, |stored| stored.metadata.generation = Some(4));
    let (status, transition) = judged(&gathered);
    assert_eq!(status.observed_generation, Some(4));
    assert_eq!(shown(&status), shown(&before));
    assert_eq!(
        status.conditions[0].last_transition_time,
        before.conditions[0].last_transition_time
    );
    assert_eq!((status.accepted, transition), (before.accepted, None));
}

#[test]
fn a_bad_edit_keeps_what_was_accepted_and_recovery_emits_an_event() {
    let mut gathered = settled();
    change(&mut gathered, |stored| stored.metadata.generation = Some(4));
    gathered.validation = Some(refusal(Reason::TemplateFailed));
    let (status, transition) = judged(&gathered);
    assert_eq!(status.accepted, Some(accepted("v1.0.0")));
    assert_eq!(
        shown(&status),
        [
            [
                ACCEPTED,
                "False",
                "TemplateFailed",
                "files[0], line 2, column 5: no such field; until then version v1.0.0 stays in use",
            ],
            [
                READY,
                "True",
                "Accepted",
                "version v1.0.0 stays in use; the newest edit is refused, see the condition Accepted",
            ],
        ]
    );
    let times = [0, 1].map(|index| status.conditions[index].last_transition_time.0);
    assert!(times[0] == gathered.now && times[1] < gathered.now);
    assert_eq!(transition, Some(Transition::Refused));

    let mut gathered = carried_out(gathered);
    assert_eq!(
        plan(&gathered).status,
        None,
        "a refusal is a verdict, not something to retry"
    );
    change(&mut gathered, |stored| stored.metadata.generation = Some(5));
    assert_eq!(update(&gathered).transition, None, "it is told already");
    gathered.validation = Some(refusal(Reason::TemplateInvalid));
    assert_eq!(
        update(&gathered).transition,
        Some(Transition::Refused),
        "another one"
    );

    gathered.validation = Some(Ok(accepted("v1.1.0")));
    let (status, transition) = judged(&gathered);
    assert_eq!(
        (status.accepted, transition),
        (Some(accepted("v1.1.0")), Some(Transition::Recovered))
    );
}

#[test]
fn another_library_is_followed_unless_the_profile_fails_with_it() {
    let mut spec = profile("v1.0.0");
    spec.provisioning_config
        .templates
        .insert("mine".into(), "{{> lib/proxy.sh}}".into());
    let resolved = osm_render::resolve(&spec).unwrap();
    let mut of_other_release = resolved.clone();
    of_other_release.library_version = Some("sha.000000000000".into());
    of_other_release.digest = "other".into();
    let mut gathered = Gathered {
        validation: Some(Ok(of_other_release.clone())),
        ..stored("v1.0.0")
    };
    change(&mut gathered, |stored| stored.spec = spec);

    // The same generation of the same spec, judged by this program.
    let mut gathered = carried_out(gathered);
    gathered.validation = Some(Ok(resolved.clone()));
    let (status, transition) = judged(&gathered);
    assert_eq!((status.accepted, transition), (Some(resolved), None));

    gathered.validation = Some(refusal(Reason::TemplateInvalid));
    let (status, transition) = judged(&gathered);
    assert_eq!(
        (status.accepted, transition),
        (Some(of_other_release), Some(Transition::Refused))
    );
    let message = &status.conditions[0].message;
    assert!(
        message.ends_with("version v1.0.0 with the library sha.000000000000 stays in use"),
        "{message}"
    );
}

#[test]
fn a_first_refusal_leaves_nothing_accepted_and_is_final_unless_the_validation_did_not_finish() {
    for (reason, again) in [
        (Reason::ValidationAborted, Some(VALIDATE_AGAIN)),
        (Reason::ParentNotFound, None),
    ] {
        let gathered = Gathered {
            validation: Some(refusal(reason)),
            ..stored("v1.0.0")
        };
        assert_eq!(plan(&gathered).requeue_after, again);
        let (status, transition) = judged(&gathered);
        assert_eq!((&status.accepted, transition), (&None, Some(Transition::Refused)));
        let why = "files[0], line 2, column 5: no such field";
        let of = |type_| [type_, "False", reason.as_str(), why];
        assert_eq!(shown(&status), [of(ACCEPTED), of(READY)]);
    }
}

#[test]
fn the_verdict_stays_while_another_profile_is_awaited() {
    let mut gathered = settled();
    gathered.validation = None;
    gathered.awaited = Some("base".to_owned());
    let expected = Plan {
        requeue_after: Some(AWAITED_INTERVAL),
        ..Plan::default()
    };
    assert_eq!(plan(&gathered), expected);
}

#[test]
fn a_message_that_is_cut_does_not_look_new_each_time() {
    let long = Refusal {
        reason: Reason::TemplateFailed,
        message: "long ".repeat(2000),
        position: None,
    };
    let gathered = Gathered {
        validation: Some(Err(long)),
        ..stored("v1.0.0")
    };
    assert_eq!(plan(&carried_out(gathered)).status, None);
}

#[test]
fn a_status_that_was_tampered_with_is_restored_and_conditions_of_others_do_not_matter() {
    let with = |edit: fn(&mut OperatingSystemProfileStatus)| {
        let mut gathered = settled();
        change(&mut gathered, |stored| edit(stored.status.as_mut().unwrap()));
        plan(&gathered).status.map(|update| update.status.accepted)
    };
    let restored = Some(Some(accepted("v1.0.0")));
    assert_eq!(
        with(|status| status.accepted = Some(accepted("v9.0.0"))),
        restored
    );
    assert_eq!(with(|status| *status = Default::default()), restored);
    let audited = |status: &mut OperatingSystemProfileStatus| {
        let mut other = status.conditions[0].clone();
        other.type_ = "Audited".into();
        status.conditions.insert(0, other);
    };
    assert_eq!(with(audited), None);
}

#[test]
fn a_copy_is_validated_once_it_is_up_to_date() {
    let custom = |version: &str| {
        let object = json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "CustomOperatingSystemProfile",
            "metadata": {"name": "mine", "namespace": "kube-system", "uid": "source"}, "spec": profile(version),
        });
        Some(Arc::new(CustomProfile::new(
            serde_json::from_value(object).unwrap(),
        )))
    };
    let mut gathered = Gathered {
        name: "mine".to_owned(),
        stored: None,
        custom: custom("v1.0.0"),
        ..stored("v1.0.0")
    };
    let Some(Ok(Step::Create(created))) = plan(&gathered).copy else {
        panic!()
    };
    gathered.stored = Some(Arc::new(created.into()));
    gathered.validation = Some(Ok(accepted("v1.0.0")));
    let kept = plan(&gathered);
    assert_eq!(kept.copy, Some(Ok(Step::Keep)));
    assert!(kept.status.is_some());

    gathered.custom = custom("v1.1.0");
    assert!(gathered.kept().is_none());
    let updated = plan(&gathered);
    assert!(matches!(updated.copy, Some(Ok(Step::Update(_)))));
    assert_eq!((updated.verdict, updated.status), (None, None));

    // With the name of a default profile, the stored profile is still validated.
    gathered.is_default = true;
    let refused = plan(&gathered);
    assert!(matches!(refused.copy, Some(Err(Problem::DefaultName { .. }))));
    assert!(refused.status.is_some());
}
