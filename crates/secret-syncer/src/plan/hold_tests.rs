//! What is kept, renewed and restored while new content is held back.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::ByteString;
use osm_api::config::{self, LateBound, LateBoundKind, LateBoundSource, Retired};
use osm_api::content::{Content, MachineDeploymentRef};
use osm_api::{Reason, gzip, names};
use osm_render::LateValues;
use serde_json::json;

use crate::model::documents::Documents;
use crate::model::gathered::{Gathered, Published};
use crate::model::published_content::PublishedDocument;
use crate::model::source::{SourceError, SourceProblem};
use crate::plan::cause::Cause;
use crate::plan::error::PlanError;
use crate::plan::fixtures::*;
use crate::plan::hold::{needed_record, record};
use crate::plan::plan;
use crate::plan::steps::{self, Plan, Publish, Step};

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
        late_bound: vec![
            late("api/token", LateBoundKind::ApiToken, None),
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
    Documents::make(spec.clone(), values, POOL, &published().key).unwrap()
}

fn entries(documents: &Documents) -> BTreeMap<String, ByteString> {
    let entries = documents.entries.data();
    entries
        .map(|(name, bytes)| (name.to_owned(), ByteString(bytes.to_vec())))
        .collect()
}

fn read(documents: &Documents) -> Option<PublishedDocument> {
    let key = published().key;
    PublishedDocument::read(&documents.provisioning_secret, entries(documents), POOL, &key)
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
        let again = Documents::published(&document, POOL, &published().key).unwrap();
        assert_eq!(again.provisioning_secret, documents.provisioning_secret, "{what}");
        assert_eq!(again.provisioning_digest, documents.provisioning_digest, "{what}");
        assert_eq!(again.document_mac, documents.document_mac, "{what}");
        assert_eq!(again.entries.digest(), documents.entries.digest(), "{what}");
        assert_eq!(
            document.content.needs_kubeconfig_secret(),
            what.starts_with("tokens"),
            "{what}"
        );
        assert!(!format!("{document:?}").contains("hunter2"));
    }
    // Only what the bootstrap document needs is held beside a document.
    let content = |spec| entries(&made(&spec)).remove(names::CONTENT_GZIP_KEY).unwrap().0;
    let has_password = |spec| gzip::unpack(&content(spec), 10_000).unwrap().contains("hunter2");
    assert!(!has_password(spec("", "")) && has_password(spec(PASSWORD, "")));
}

#[test]
fn a_revision_alone_makes_no_other_document() {
    let with = |revision: &str| {
        let mut spec = spec("", "");
        spec.digest = Some(revision.into());
        spec.machine_deployment = Some(MachineDeploymentRef {
            namespace: "n".into(),
            name: "p".into(),
            uid: "u".into(),
            revision: Some(revision.into()),
            template_digest: revision.into(),
        });
        made(&spec).provisioning_secret
    };
    assert_eq!(with("1"), with("2"));
}

#[test]
fn a_secret_that_was_altered_is_not_read() {
    let documents = made(&spec("", ""));
    let key = published().key;
    let read = |name: &str, edit: fn(&mut BTreeMap<String, ByteString>)| {
        let mut entries = entries(&documents);
        edit(&mut entries);
        PublishedDocument::read(name, entries, POOL, &key)
    };
    let name = &documents.provisioning_secret;
    assert!(read(name, |_| {}).is_some());
    assert!(read("osm-provisioning-other", |_| {}).is_none());
    assert!(read(name, |entries| drop(entries.remove(names::CONTENT_GZIP_KEY))).is_none());
    for entry in [names::CONTENT_GZIP_KEY, names::CLOUD_CONFIG_KEY] {
        let mut entries = entries(&documents);
        entries.get_mut(entry).unwrap().0.push(b' ');
        assert!(
            PublishedDocument::read(name, entries, POOL, &key).is_none(),
            "{entry}"
        );
    }
}

#[test]
fn a_document_is_compressed_if_the_machine_asks_for_it() {
    let mut asking = spec("", "");
    asking
        .late_bound
        .push(late("provisioning/key", LateBoundKind::ProvisioningKey, None));
    let plain = made(&spec("", ""));
    let compressed = made(&asking);
    let document = entries(&compressed)
        .remove(names::CLOUD_CONFIG_GZIP_KEY)
        .unwrap()
        .0;
    assert_eq!(gzip::unpack(&document, 10_000).unwrap(), compressed.provisioning);
    assert_eq!(compressed.provisioning, plain.provisioning);
    assert_ne!(compressed.provisioning_secret, plain.provisioning_secret);
    assert_eq!(read(&compressed).unwrap().document, plain.provisioning);
}

/// A published pool whose source is gone, in a process that never had its value.
fn without_source() -> Gathered {
    let mut gathered = published();
    let spec = spec("", "");
    let late = spec.late_bound.last().unwrap().clone();
    let source = late.source.clone().unwrap();
    gathered.values = Err(SourceError::new(&late, &source, SourceProblem::Missing));
    edit_config(&mut gathered, |config| {
        config.late_bound = vec![late.clone()];
        config.status.published = Some(config::Published {
            digest: "d".into(),
            revision: "1".into(),
            bootstrap_secret: "pool-kube-system-bootstrap-config".into(),
            provisioning_secret: "document".into(),
            credential_expires: hours(20).to_string(),
        });
    });
    gathered
}

/// As gather does.
fn decide(mut gathered: Gathered) -> Plan {
    gathered.published = needed_record(&gathered).map(|record| {
        let document = read(&made(&spec("", ""))).unwrap();
        Arc::new(Published { record, document })
    });
    plan(&gathered).1.unwrap()
}

fn published_again(plan: &Plan) -> &Publish {
    match &plan.step {
        Step::Publish(publish) if matches!(publish.content, steps::Content::Published(_)) => {
            assert_eq!(publish.program, None, "another program may have filled in a part");
            publish
        }
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
        (false, "SourceMissing")
    );
    assert!(
        verdict.message.contains("kept and its credentials are renewed"),
        "{}",
        verdict.message
    );

    type Edit = fn(&mut Gathered);
    let cases: [(&str, Edit, Cause); 6] = [
        ("renewal", |g| g.now = hours(8), Cause::RenewalDue),
        ("role", |g| g.existing.role = None, Cause::RoleModified),
        ("binding", |g| g.existing.binding = None, Cause::RoleModified),
        ("account", |g| g.existing.account = None, Cause::TokensInvalid),
        ("bootstrap", |g| g.existing.bootstrap = None, Cause::Missing),
        (
            "restart",
            |g| {
                g.memory.verified = None;
                g.now = hours(8);
            },
            Cause::RenewalDue,
        ),
    ];
    for (what, edit, cause) in cases {
        let mut gathered = without_source();
        edit(&mut gathered);
        let plan = decide(gathered);
        let publish = published_again(&plan);
        assert_eq!(publish.causes, [cause], "{what}");
        assert_eq!(
            (publish.revision.as_str(), publish.digest.as_str()),
            ("1", "d"),
            "{what}"
        );
        assert_eq!(plan.degraded.as_ref().unwrap().reason, "SourceMissing", "{what}");
        // Without the bootstrap Secret it is not known what it was made of, so new content is published as soon as it can be.
        let from = if what == "bootstrap" { "" } else { "config-uid/d" };
        assert_eq!(publish.published_from, from, "{what}");
    }
}

#[test]
fn the_same_holds_for_every_reason_to_hold_new_content_back() {
    type Edit = fn(&mut Gathered);
    let long = |gathered: &mut Gathered| {
        gathered.memory.waiting_since = Some(gathered.now - SignedDuration::from_mins(1));
    };
    let cases: [(&str, Edit); 6] = [
        ("GoImplementationRunning", |g| {
            g.values = Ok(LateValues::from([("password".to_owned(), "new".to_owned())]));
            g.go_implementation = Some("it renews its Lease".into());
        }),
        ("WaitingForRendering", |g| {
            edit_config(g, |config| config.status.rendered = None)
        }),
        ("WaitingForRevision", |g| {
            edit_rendered(g, |rendered| rendered.revision = None)
        }),
        ("DefinitionsOutdated", |g| {
            g.values = Ok(LateValues::from([("password".to_owned(), "new".to_owned())]));
            g.outdated_definitions = Some("older than this version".into());
        }),
        ("SourceMissing", |g| {
            edit_rendered(g, |rendered| rendered.revision = Some("2".into()))
        }),
        ("TooManyDocuments", |g| {
            g.values = Ok(LateValues::from([("password".to_owned(), "new".to_owned())]));
            let more = (1..20).map(|number| document(&format!("older-{number}"), hours(30)));
            g.existing.provisioning.extend(more);
        }),
    ];
    for (reason, edit) in cases {
        let mut gathered = without_source();
        edit(&mut gathered);
        gathered.now = hours(8);
        long(&mut gathered);
        let plan = decide(gathered);
        let publish = published_again(&plan);
        assert!(
            publish.causes.contains(&Cause::RenewalDue),
            "{reason}: {:?}",
            publish.causes
        );
        assert!(
            !publish.causes.contains(&Cause::NewContent),
            "{reason}: {:?}",
            publish.causes
        );
        assert_eq!(publish.revision, "1", "{reason}");
        assert_eq!(plan.degraded.as_ref().unwrap().reason, reason);
    }
}

#[test]
fn a_new_revision_is_published_though_new_content_would_wait() {
    let mut gathered = published();
    let more = (1..20).map(|number| document(&format!("older-{number}"), hours(30)));
    gathered.existing.provisioning.extend(more);
    edit_rendered(&mut gathered, |rendered| rendered.digest = "other".into());
    assert!(
        needed_record(&gathered).is_some(),
        "the content of the same revision waits"
    );
    edit_rendered(&mut gathered, |rendered| rendered.revision = Some("2".into()));
    assert!(needed_record(&gathered).is_none());
    let Step::Publish(publish) = plan(&gathered).1.unwrap().step else {
        panic!()
    };
    assert!(publish.has_room && publish.causes.contains(&Cause::NewRevision));
    // One less, and new content has room again.
    edit_rendered(&mut gathered, |rendered| rendered.revision = Some("1".into()));
    gathered.existing.provisioning.pop();
    assert!(needed_record(&gathered).is_none());
}

#[test]
fn without_the_bootstrap_secret_the_status_speaks_only_for_the_revision_of_new_machines() {
    let of = |gathered: &Gathered| record(gathered, gathered.config.as_ref().unwrap());
    let mut gathered = without_source();
    assert_eq!(of(&gathered).unwrap().published_from, "config-uid/d");
    edit_bootstrap(&mut gathered, |secret| secret.content = Some("altered".into()));
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
        let mut config = config();
        assert!(publish.is_allowed(&config));
        config.uid = "other".into();
        assert!(!publish.is_allowed(&config), "another config of that name");
        let mut config = self::config();
        config.status.retired = Some(Retired {
            uid: "md-uid".into(),
            generation: 3,
        });
        assert!(!publish.is_allowed(&config), "retired");
    }
    let Step::Publish(publish) = plan(&fresh()).1.unwrap().step else {
        panic!()
    };
    let mut config = config();
    config.status.rendered.as_mut().unwrap().digest = "other".into();
    assert!(!publish.is_allowed(&config), "other content");
}

/// Another client has created it, to get what belongs to that pool or to have it deleted.
#[test]
fn for_a_config_that_names_the_pool_of_another_one_nothing_is_done() {
    for is_retired in [false, true] {
        let mut gathered = published();
        edit_config(&mut gathered, |config| {
            config.machine_deployment = None;
            config.pool_is_of = Some("q-kube-system-config".into());
            config.status.retired = is_retired.then(|| Retired {
                uid: "md-uid".into(),
                generation: 1,
            });
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
