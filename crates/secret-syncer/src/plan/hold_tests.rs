//! Tests what is kept, renewed and restored while new content is held back.

use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use osm_api::config::{self, LateBound, LateBoundKind, LateBoundSource};
use osm_api::content::{Content, MachineDeploymentRef};
use osm_api::{Reason, gzip, names};
use osm_user_data::LateValues;
use serde_json::json;

use crate::model::documents::Documents;
use crate::model::gathered::Gathered;
use crate::model::memory::{Fact, MadeFrom, Memory, Unfit};
use crate::model::published_content::Published;
use crate::model::record::{Record, of_entries, published_from};
use crate::model::source::{Inputs, SourceError, SourceProblem};
use crate::model::view::SecretView;
use crate::plan::content;
use crate::plan::findings::Cause;
use crate::plan::fixtures::*;
use crate::plan::hold::{needed_record, record, unfit};
use crate::plan::plan;
use crate::plan::provisioning_secret::document_name;
use crate::plan::steps::PlanError;
use crate::plan::steps::{Plan, Publish, Step};

type EditGathered = fn(&mut Gathered);

fn late(id: &str, kind: LateBoundKind, source: Option<LateBoundSource>) -> LateBound {
    LateBound {
        id: id.into(),
        kind,
        source,
    }
}

/// A content with a password in its provisioning stage, and perhaps with a token there as well.
fn spec(in_bootstrap: &str, in_provisioning: &str) -> Content {
    let source = LateBoundSource {
        namespace: "n".into(),
        name: "s".into(),
        key: "k".into(),
    };
    let stage = |text: &str| {
        let files = json!({"files": [{"path": "/a", "content": {"inline": {"data": text}}}]});
        serde_json::from_value(files).unwrap()
    };
    Content {
        bootstrap_config: stage(&format!(
            "%%osm-late{{api/token,raw}}%% %%osm-late{{provisioning/secret-name,raw}}%% {in_bootstrap}"
        )),
        provisioning_config: stage(&format!("%%osm-late{{password,raw}}%% {in_provisioning}")),
        late_bound_values: vec![
            late("api/token", LateBoundKind::APIToken, None),
            late(
                "provisioning/secret-name",
                LateBoundKind::ProvisioningSecretName,
                None,
            ),
            late("password", LateBoundKind::SecretKey, Some(source)),
        ],
        ..Content::default()
    }
}

const PASSWORD: &str = "%%osm-late{password,raw}%%";
const TOKEN: &str = "%%osm-late{api/token,raw}%%";

fn made(spec: &Content) -> Documents {
    let values = LateValues::from([("password".to_owned(), "hunter2".to_owned())]);
    Documents::make(spec.clone(), values, POOL).unwrap()
}

/// A provisioning Secret with these documents.
fn secret(documents: &Documents) -> Secret {
    Secret {
        metadata: ObjectMeta {
            name: Some(names::provisioning_secret_name(POOL, "document")),
            uid: Some("document-uid".into()),
            labels: Some([(names::POOL.to_owned(), POOL.to_owned())].into()),
            ..ObjectMeta::default()
        },
        data: Some(documents.entries.clone()),
        immutable: Some(true),
        ..Secret::default()
    }
}

fn read(documents: &Documents) -> Option<Published> {
    Published::read(secret(documents), POOL, recorded())
}

/// As the status records it.
fn recorded() -> Record {
    Record {
        provisioning_secret: "document".into(),
        provisioning_uid: None,
        revision: "1".into(),
        digest: "d".into(),
        published_from: String::new(),
    }
}

#[test]
fn documents_with_other_tokens_need_nothing_but_the_provisioning_secret() {
    for (what, spec) in [
        ("a password in one stage", spec("", "")),
        ("in both", spec(PASSWORD, "")),
        ("tokens in both stages", spec("", TOKEN)),
    ] {
        let documents = made(&spec);
        let document = read(&documents).unwrap();
        let again = Documents::published(&document, POOL).unwrap();
        assert_eq!(again.provisioning, documents.provisioning, "{what}");
        assert!(again.content == documents.content, "{what}");
        assert!(documents.are_published(&document), "{what}");
        assert_eq!(again.entries, documents.entries, "{what}");
        assert_eq!(
            document.content.needs_kubeconfig_secret(),
            what.starts_with("tokens"),
            "{what}"
        );
    }
    // Only what the bootstrap document needs is held beside a document.
    let content = |spec| made(&spec).entries.remove(names::CONTENT_GZIP_KEY).unwrap().0;
    let has_password = |spec| gzip::unpack(&content(spec), 10_000).unwrap().contains("hunter2");
    assert!(!has_password(spec("", "")) && has_password(spec(PASSWORD, "")));
}

#[test]
fn a_revision_alone_makes_no_other_document() {
    let with = |revision: &str| {
        let mut spec = spec("", "");
        spec.machine_deployment = Some(MachineDeploymentRef {
            namespace: "n".into(),
            name: "p".into(),
            uid: "u".into(),
            revision: Some(revision.into()),
            template_digest: revision.into(),
        });
        made(&spec)
    };
    assert!(with("1").are_published(&read(&with("2")).unwrap()));
}

#[test]
fn only_a_secret_of_the_pool_that_nobody_can_alter_is_read() {
    let read = |edit: fn(&mut Secret)| {
        let mut secret = secret(&made(&spec("", "")));
        edit(&mut secret);
        Published::read(secret, POOL, recorded()).is_some()
    };
    assert!(read(|_| {}));
    assert!(
        read(|secret| secret.metadata.labels = None),
        "it is repaired later"
    );
    let of_another = |secret: &mut Secret| {
        secret.metadata.name = Some(names::provisioning_secret_name("another", "document"));
    };
    assert!(!read(of_another));
    assert!(!read(|secret| secret.immutable = None));
    let other = Record {
        provisioning_uid: Some("other".into()),
        ..recorded()
    };
    let replaced = Published::read(secret(&made(&spec("", ""))), POOL, other);
    assert!(replaced.is_none(), "it is not the one that was published");
    for entry in [names::CONTENT_GZIP_KEY, names::CLOUD_CONFIG_KEY] {
        let mut secret = secret(&made(&spec("", "")));
        secret.data.as_mut().unwrap().remove(entry);
        assert!(Published::read(secret, POOL, recorded()).is_none(), "{entry}");
    }
}

/// Machines may still fetch what has the name already.
#[test]
fn a_document_gets_a_secret_of_its_own() {
    let (documents, publish) = (made(&spec("", "")), published_now(&fresh()));
    let name_of = |existing: Option<SecretView>| {
        let mut gathered = published();
        gathered.existing.provisioning.extend(existing.map(Arc::new));
        document_name(&gathered, &publish, &documents).unwrap()
    };
    let name = name_of(None);
    let named = |entries: String, immutable| {
        let mut secret = (*document(&name, hours(20))).clone();
        (secret.entries, secret.immutable) = (entries, immutable);
        secret
    };
    // One that can be altered is made immutable, so that it doesn't get a successor each time.
    for immutable in [true, false] {
        let mut same = named(of_entries(&documents.entries), immutable);
        assert_eq!(name_of(Some(same.clone())), name);
        same.meta.name = "of-an-earlier-version".into();
        assert_eq!(name_of(Some(same)), "of-an-earlier-version");
    }
    assert_ne!(name_of(Some(named("other".to_owned(), true))), name);
}

/// A document that differs in anything but its tokens is another one.
#[test]
fn documents_are_published_if_nothing_but_tokens_differs() {
    let plain = spec("", "");
    let published = read(&made(&plain)).unwrap();
    assert!(made(&plain).are_published(&published));
    for (what, spec) in [
        ("bootstrap stage", spec("more", "")),
        ("provisioning stage", spec("", "more")),
        ("tokens later", spec("", TOKEN)),
    ] {
        assert!(!made(&spec).are_published(&published), "{what}");
    }
    let values = LateValues::from([("password".to_owned(), "another".to_owned())]);
    let other = Documents::make(plain.clone(), values, POOL).unwrap();
    assert!(!other.are_published(&published));
    // Another version fills in the bootstrap document differently.
    let mut other = made(&plain);
    other.content.digest = "other".into();
    assert!(!other.are_published(&published));
}

/// A published pool whose source is gone, in a process that never had its value.
fn without_source() -> Gathered {
    let mut gathered = published();
    let spec = spec("", "");
    let late = spec.late_bound_values.last().unwrap().clone();
    let source = late.source.clone().unwrap();
    gathered.inputs = Err(SourceError::new(&late, &source, SourceProblem::Missing));
    edit_config(&mut gathered, |config| {
        config.late_bound_values = vec![late.clone()];
        config.status.published = Some(in_status());
    });
    gathered
}

fn in_status() -> config::Published {
    config::Published {
        digest: "d".into(),
        revision: "1".into(),
        bootstrap_secret: "pool-kube-system-bootstrap-config".into(),
        provisioning_secret: "document".into(),
        credential_expiration_time: hours(20).to_string(),
    }
}

fn new_value() -> Result<Inputs, SourceError> {
    Ok(Inputs {
        values: LateValues::from([("password".to_owned(), "new".to_owned())]),
        references: ["Secret/n/s=u/2".to_owned()].into(),
    })
}

/// What this process has published, or found to be published.
fn made_from() -> Option<MadeFrom> {
    Some(MadeFrom {
        published_from: published_from("d", &[].into()),
        digest: "d".into(),
        values: LateValues::new(),
    })
}

/// As gather does.
fn decide(mut gathered: Gathered) -> Plan {
    gathered.published = needed_record(&gathered).map(|record| {
        let secret = secret(&made(&spec("", "")));
        Arc::new(Published::read(secret, POOL, record).unwrap())
    });
    plan(&gathered).1.unwrap()
}

fn published_again(plan: &Plan) -> &Publish {
    match &plan.step {
        Step::Publish(publish) if matches!(publish.wanted.origin, content::Origin::Published(_)) => publish,
        other => panic!("{other:?}"),
    }
}

#[test]
fn while_a_source_is_missing_tokens_are_renewed_and_what_is_damaged_is_restored() {
    let kept = decide(without_source());
    assert!(
        matches!(&kept.step, Step::Keep(keep) if keep.published.is_some()),
        "{:?}",
        kept.step
    );
    let verdict = kept.degraded.unwrap();
    assert_eq!(
        (verdict.status, verdict.reason.as_str()),
        (false, "SourceNotFound")
    );
    assert!(
        verdict.message.contains("kept and its credentials are renewed"),
        "{}",
        verdict.message
    );

    let cases: [(&str, EditGathered, Cause); 6] = [
        ("renewal", |g| g.now = hours(8), Cause::RenewalDue),
        ("role", |g| g.existing.role = None, Cause::RoleModified),
        ("binding", |g| g.existing.binding = None, Cause::RoleModified),
        ("account", |g| g.existing.account = None, Cause::TokensInvalid),
        ("bootstrap", |g| g.existing.bootstrap = None, Cause::Missing),
        ("document", |g| g.existing.provisioning.clear(), Cause::Modified),
    ];
    for (what, edit, cause) in cases {
        let mut gathered = without_source();
        edit(&mut gathered);
        let plan = decide(gathered);
        let publish = published_again(&plan);
        assert_eq!(publish.causes(), [cause], "{what}");
        assert_eq!(
            (publish.wanted.revision.as_str(), publish.wanted.digest.as_str()),
            ("1", "d"),
            "{what}"
        );
        assert_eq!(plan.degraded.as_ref().unwrap().reason, "SourceNotFound", "{what}");
        // Without the bootstrap Secret it is not known what it was made of, so new content is published as
        // soon as it can be.
        let from = match what {
            "bootstrap" => String::new(),
            _ => published_from("d", &[].into()),
        };
        assert_eq!(publish.wanted.published_from, from, "{what}");
    }
}

/// With the config, the record of what is published is gone.
#[test]
fn what_the_upstream_osm_has_deleted_with_its_config_is_published_beside_it() {
    let mut gathered = published();
    gathered.upstream_osm = Some("it renews its Lease".into());
    // Its config is restored first, and what is published is known until the Secret is deleted as well.
    assert!(needed_record(&gathered).is_some());
    gathered.existing.bootstrap = None;
    assert_eq!(needed_record(&gathered), None);
    let plan = decide(gathered.clone());
    let Step::Publish(publish) = &plan.step else {
        panic!("{:?}", plan.step)
    };
    assert!(matches!(publish.wanted.origin, content::Origin::Config { .. }));
    assert_eq!(publish.causes(), [Cause::Missing]);
    let verdict = plan.degraded.unwrap();
    assert_eq!(
        (verdict.status, verdict.reason),
        (false, Reason::UpstreamOSMRunning)
    );
    let said = "kept and its credentials are renewed";
    assert!(verdict.message.contains(said), "{}", verdict.message);

    // A pool that was never published has no document.
    gathered.existing.provisioning.clear();
    assert_held(&gathered);
    assert_held(&Gathered {
        upstream_osm: gathered.upstream_osm.clone(),
        ..fresh()
    });
}

fn assert_held(gathered: &Gathered) {
    let Err(PlanError::Held(verdict)) = plan(gathered).1 else {
        panic!("something is done");
    };
    assert_eq!(verdict.reason, Reason::UpstreamOSMRunning);
}

#[test]
fn the_same_holds_for_every_reason_to_hold_new_content_back() {
    let long = |gathered: &mut Gathered| {
        gathered.memory.waiting_since = Some(gathered.now - SignedDuration::from_mins(1));
    };
    let cases: [(&str, EditGathered); 6] = [
        ("UpstreamOSMRunning", |g| {
            g.inputs = new_value();
            g.upstream_osm = Some("it renews its Lease".into());
        }),
        ("WaitingForRendering", |g| {
            edit_config(g, |config| config.status.rendered = None)
        }),
        ("WaitingForRevision", |g| {
            edit_rendered(g, |rendered| rendered.revision = None)
        }),
        ("DefinitionsOutdated", |g| {
            g.inputs = new_value();
            g.outdated_definitions = Some("older than this version".into());
        }),
        ("SourceNotFound", |g| {
            edit_rendered(g, |rendered| rendered.revision = Some("2".into()))
        }),
        ("UserDataTooLarge", |g| {
            g.inputs = new_value();
            g.memory.unfit = Some(Unfit {
                generation: 3,
                published_from: published_from("d", &new_value().unwrap().references),
                reason: Reason::UserDataTooLarge,
                message: "too large".into(),
                until: hours(9),
            });
        }),
    ];
    for (reason, edit) in cases {
        let mut gathered = without_source();
        edit(&mut gathered);
        gathered.now = hours(8);
        gathered.memory.made_from = made_from();
        long(&mut gathered);
        let plan = decide(gathered);
        let publish = published_again(&plan);
        assert!(
            publish.causes().contains(&Cause::RenewalDue),
            "{reason}: {:?}",
            publish.findings
        );
        assert!(
            !publish.causes().contains(&Cause::NewContent),
            "{reason}: {:?}",
            publish.findings
        );
        assert_eq!(publish.wanted.revision, "1", "{reason}");
        assert_eq!(plan.degraded.as_ref().unwrap().reason, reason);
    }
}

/// A new revision is another content, and yet its documents may be the same. So only who is about to write
/// another one can tell.
#[test]
fn new_content_waits_until_there_is_room_for_its_document() {
    let mut gathered = published();
    let more = (1..50).map(|number| document(&format!("older-{number}"), hours(30)));
    gathered.existing.provisioning.extend(more);
    edit_config(&mut gathered, |config| {
        config.status.published = Some(in_status())
    });
    edit_rendered(&mut gathered, |rendered| rendered.digest = "other".into());
    let (documents, planned) = (made(&spec("", "")), published_now(&gathered));
    let text = document_name(&gathered, &planned, &documents).unwrap_err();
    assert!(text.contains("50 provisioning documents"), "{text}");
    let mut same = gathered.clone();
    Arc::make_mut(&mut same.existing.provisioning[9]).entries = of_entries(&documents.entries);
    let name = document_name(&same, &planned, &documents);
    assert_eq!(name, Ok("older-9".to_owned()));
    let has_room =
        |gathered: &Gathered| document_name(gathered, &published_now(gathered), &documents).is_ok();
    // What is published already never waits, nor does what is put in the place of a document that is gone.
    let edits: [EditGathered; 3] = [
        |g| edit_rendered(g, |rendered| rendered.digest = "d".into()),
        |g| drop(g.existing.provisioning.remove(0)),
        |g| g.existing.bootstrap = None,
    ];
    for edit in edits {
        let mut gathered = gathered.clone();
        (gathered.now, gathered.existing.binding) = (hours(8), None);
        let more = document("one more", hours(30));
        gathered.existing.provisioning.push(more);
        edit(&mut gathered);
        assert!(has_room(&gathered));
    }
    gathered.memory.unfit = unfit(&gathered, &planned, Reason::TooManyDocuments, text);
    assert!(needed_record(&gathered).is_some(), "it is held back");
    // One less, and new content has room again.
    gathered.existing.provisioning.pop();
    gathered.now += SignedDuration::from_mins(10);
    assert!(needed_record(&gathered).is_none());
    assert!(has_room(&gathered));
}

/// What is published goes first for some minutes: it may be due for renewal, or have lost a part.
#[test]
fn a_content_is_held_back_while_it_is_unfit_and_something_is_published() {
    let refused = |gathered: &Gathered| {
        let publish = published_now(gathered);
        unfit(gathered, &publish, Reason::RequestFailed, "refused".to_owned())
    };
    assert_eq!(refused(&fresh()), None, "nothing could be put first");
    let mut gathered = published();
    edit_config(&mut gathered, |config| {
        config.status.published = Some(in_status())
    });
    edit_rendered(&mut gathered, |rendered| rendered.digest = "other".into());
    gathered.memory.unfit = refused(&gathered);
    let held: [(&str, EditGathered); 4] = [
        ("nothing is to be done", |_| {}),
        ("no bootstrap Secret", |g| g.existing.bootstrap = None),
        ("no Role", |g| g.existing.role = None),
        ("just before it is tried again", |g| {
            g.now += SignedDuration::from_secs(539);
        }),
    ];
    for (what, edit) in held {
        let mut gathered = gathered.clone();
        edit(&mut gathered);
        let plan = decide(gathered);
        let verdict = plan.degraded.unwrap_or_else(|| panic!("{what}"));
        assert!(verdict.message.contains("refused. Until then"), "{what}");
    }
    let tried: [(&str, EditGathered); 3] = [
        ("at the next reconcile, by a clock that is seconds behind", |g| {
            g.now += SignedDuration::from_secs(590);
        }),
        ("another config", |g| {
            edit_config(g, |config| config.generation += 1);
        }),
        ("another value", |g| g.inputs = new_value()),
    ];
    for (what, edit) in tried {
        let mut gathered = gathered.clone();
        edit(&mut gathered);
        let plan = decide(gathered);
        assert!(
            matches!(&plan.step, Step::Publish(publish) if matches!(publish.wanted.origin, content::Origin::Config { .. })),
            "{what}"
        );
    }
    // Its document is gone, and nothing else can be published: a failure is reported at once.
    let mut lost = gathered.clone();
    lost.existing.provisioning.clear();
    let retried = published_now(&lost);
    assert!(matches!(retried.wanted.origin, content::Origin::Config { .. }));
    assert_eq!(refused(&lost), None);
    // It can be published after all, because nothing else could be.
    let memory = Memory::default();
    memory.set("pool", gathered.memory.clone());
    assert_ne!(memory.of("pool").unfit, None);
    memory.learn("pool", Fact::Same(made_from().unwrap()));
    assert_eq!(memory.of("pool").unfit, None);
    // A renewal has no content that could be held back.
    let mut renewal = without_source();
    renewal.now = hours(8);
    let plan = decide(renewal.clone());
    let publish = published_again(&plan);
    assert_eq!(
        unfit(&renewal, publish, Reason::RequestFailed, String::new()),
        None
    );
}

#[test]
fn without_the_bootstrap_secret_the_status_speaks_only_for_the_revision_of_new_machines() {
    let of = |gathered: &Gathered| record(gathered, gathered.config.as_ref().unwrap());
    let mut gathered = without_source();
    assert_eq!(
        of(&gathered).unwrap().published_from,
        published_from("d", &[].into())
    );
    edit_bootstrap(&mut gathered, |secret| secret.is_intact = false);
    assert_eq!(
        of(&gathered).unwrap().published_from,
        "",
        "what was altered proves nothing"
    );
    gathered.existing.bootstrap = None;
    assert_eq!(of(&gathered).unwrap().provisioning_secret, "document");
    edit_rendered(&mut gathered, |rendered| rendered.revision = Some("2".into()));
    assert_eq!(of(&gathered), None);
}

#[test]
fn what_can_not_be_renewed_is_reported() {
    let mut gathered = without_source();
    gathered.existing.bootstrap = None;
    let step = plan(&gathered).1.unwrap().step;
    let Step::SetStatus(verdict) = step else {
        panic!("{step:?}")
    };
    assert!(
        verdict.message.contains("can't be renewed"),
        "{}",
        verdict.message
    );
}

#[test]
fn nothing_is_published_for_a_retired_pool_whatever_was_planned() {
    let plans = [plan(&fresh()).1.unwrap(), {
        let mut gathered = without_source();
        gathered.now = hours(8);
        decide(gathered)
    }];
    for plan in plans {
        let Step::Publish(publish) = plan.step else {
            panic!()
        };
        let (gathered, mut config) = (fresh(), config());
        assert!(publish.is_allowed(&gathered, &config));
        config.uid = "other".into();
        assert!(
            !publish.is_allowed(&gathered, &config),
            "another config of that name"
        );
        let mut config = self::config();
        config.status.retired = Some(retired("md-uid"));
        assert!(!publish.is_allowed(&gathered, &config), "retired");
    }
    let publish = published_now(&fresh());
    let mut config = config();
    config.status.rendered.as_mut().unwrap().digest = "other".into();
    assert!(!publish.is_allowed(&fresh(), &config), "other content");
}

/// Another client has created it, to get what belongs to that pool or to have it deleted.
#[test]
fn for_a_config_that_names_the_pool_of_another_one_nothing_is_done() {
    for is_retired in [false, true] {
        let mut gathered = published();
        edit_config(&mut gathered, |config| {
            config.machine_deployment = None;
            config.pool_is_of = Some("q-kube-system-config".into());
            config.status.retired = is_retired.then(|| retired("md-uid"));
        });
        let Err(PlanError::Held(verdict)) = plan(&gathered).1 else {
            panic!("something is done");
        };
        assert_eq!(verdict.reason, Reason::ObjectUnreadable);
        assert!(
            verdict.message.contains("q-kube-system-config"),
            "{}",
            verdict.message
        );
    }
}
