//! The reasons why a pool is published (again). Content that may be new is compared with the stored documents
//! first, and published only if it is.

use osm_api::names;

use crate::model::existing::Ownership;
use crate::model::gathered::Gathered;
use crate::model::record::RECORDED;
use crate::model::view::{Meta, SecretView};
use crate::plan::content::{Comparison, Wanted};

/// Value of the label `cause` of the metric `publishes_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantNames)]
pub enum Cause {
    Missing,
    NewContent,
    NewRevision,
    Modified,
    TokensInvalid,
    RenewalDue,
    RoleModified,
}

/// A reason to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub cause: Cause,
    /// For the log: which object, and what is wrong with it.
    pub message: String,
}

/// Every reason to publish, in the order of [`Cause`].
pub fn findings(gathered: &Gathered, wanted: &Wanted, ownership: &Ownership) -> Vec<Finding> {
    let existing = &gathered.existing;
    let Some(bootstrap) = existing.bootstrap.as_deref() else {
        return Vec::from_iter(because(Cause::Missing, true, "there is no bootstrap Secret"));
    };
    let recorded = |name: &str| bootstrap.meta.annotation(name);
    let beside = |secret: Option<&SecretView>| differs(secret, bootstrap, ownership);
    let is_new_revision = recorded(names::MACHINE_DEPLOYMENT_REVISION) != Some(&wanted.revision);
    let script = wanted.is_edge.then(|| beside(existing.edge_script.as_deref()));
    let kubeconfig = wanted
        .needs_kubeconfig_secret
        .then(|| beside(existing.kubeconfig.as_deref()));
    let uid = recorded(names::PROVISIONING_SECRET_UID);
    let document = existing.document().map(|secret| match secret {
        secret if Some(secret.meta.uid.as_str()) != uid => Some("was replaced"),
        secret if !secret.immutable => Some("is not immutable"),
        secret => has_wrong_metadata(&secret.meta, ownership),
    });
    let account = existing.account.as_ref().map(|account| account.uid.as_str());
    let is_bound = account.is_some() && account == recorded(names::BOUND_TO);
    // Without a readable time the annotation was altered, and renewal is due now.
    let renew_at = bootstrap.meta.time(names::RENEW_AT);
    let is_due = renew_at.is_none_or(|at| gathered.now >= at);
    let binding = existing.binding.as_ref();
    [
        because(
            Cause::NewContent,
            wanted.comparison != Comparison::Same,
            "the content is new",
        ),
        because(Cause::NewRevision, is_new_revision, "the revision is new"),
        modified("the bootstrap Secret", is_altered(bootstrap, ownership)),
        modified("the Secret with the edge script", script.flatten()),
        modified("the kubeconfig Secret", kubeconfig.flatten()),
        modified("the provisioning Secret", document.unwrap_or(Some("is missing"))),
        because(
            Cause::TokensInvalid,
            !is_bound,
            "the ServiceAccount of the token is missing or was replaced",
        ),
        because(Cause::RenewalDue, is_due, "the renewal of tokens is due"),
        because(
            Cause::RoleModified,
            !opens_documents(gathered, wanted),
            "the Role does not open the documents",
        ),
        because(
            Cause::RoleModified,
            !binding.is_some_and(|binding| binding.good),
            "the RoleBinding does not bind the pool's ServiceAccount",
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn because(cause: Cause, if_so: bool, message: &str) -> Option<Finding> {
    if_so.then(|| Finding {
        cause,
        message: message.to_owned(),
    })
}

fn modified(object: &str, problem: Option<&str>) -> Option<Finding> {
    because(Cause::Modified, true, &format!("{object} {}", problem?))
}

/// What is wrong with the metadata of any Secret of the pool.
fn has_wrong_metadata(meta: &Meta, ownership: &Ownership) -> Option<&'static str> {
    (!ownership.is_on(meta)).then_some("lost a label or an annotation")
}

/// What is wrong with a Secret that is replaced in one write.
fn is_altered(secret: &SecretView, ownership: &Ownership) -> Option<&'static str> {
    if secret.immutable {
        return Some("was made immutable");
    }
    let wrong = has_wrong_metadata(&secret.meta, ownership);
    wrong.or_else(|| (!secret.is_intact).then_some("was altered"))
}

/// The same of one that is written beside the bootstrap Secret, by the same publish.
fn differs(
    secret: Option<&SecretView>,
    bootstrap: &SecretView,
    ownership: &Ownership,
) -> Option<&'static str> {
    let Some(secret) = secret else {
        return Some("is missing");
    };
    let is_of_same_publish = RECORDED
        .iter()
        .all(|name| secret.meta.annotation(name) == bootstrap.meta.annotation(name));
    let altered = is_altered(secret, ownership);
    altered.or_else(|| (!is_of_same_publish).then_some("was not written with the bootstrap Secret"))
}

fn opens_documents(gathered: &Gathered, wanted: &Wanted) -> bool {
    let role = gathered.existing.role.as_ref();
    let opened = role.and_then(|role| role.secrets.as_ref());
    let opens = |name: &str| opened.is_some_and(|opened| opened.iter().any(|opened| opened == name));
    opens(gathered.existing.document_name().unwrap_or_default())
        && (!wanted.needs_kubeconfig_secret || opens(&names::kubeconfig_secret_name(&gathered.pool())))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Cause::*;
    use super::*;
    use crate::model::view::{BindingView, RoleView};
    use crate::plan::fixtures::*;
    use crate::plan::plan;
    use crate::plan::steps::Step;

    type EditGathered = fn(&mut Gathered);

    /// What is found in a situation.
    fn found(gathered: &Gathered) -> Vec<(Cause, String)> {
        let step = plan(gathered).1.unwrap().step;
        let findings = match step {
            Step::Publish(publish) => publish.findings,
            Step::Keep(_) => Vec::new(),
            other => panic!("{other:?}"),
        };
        findings
            .into_iter()
            .map(|finding| (finding.cause, finding.message))
            .collect()
    }

    fn annotate(secret: &mut SecretView, name: &'static str, value: &str) {
        secret.meta.annotations.insert(name, value.into());
    }

    fn edit_document(gathered: &mut Gathered, edit: impl FnOnce(&mut SecretView)) {
        edit(Arc::make_mut(&mut gathered.existing.provisioning[0]));
    }

    fn opens(gathered: &mut Gathered, secrets: Option<&[&str]>) {
        let secrets = secrets.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        gathered.existing.role = Some(Arc::new(RoleView {
            meta: meta("role", &[]),
            secrets,
        }));
    }

    #[test]
    fn nothing_is_found_where_everything_is_as_it_should_be() {
        for (what, gathered) in [
            ("a pool", published()),
            ("an edge pool", published_edge()),
            ("a pool with a kubeconfig Secret", published_late()),
        ] {
            assert_eq!(found(&gathered), [], "{what}");
        }
    }

    /// The one thing that is found in each situation.
    #[test]
    fn whatever_is_wrong_with_a_pool_is_found() {
        let cases: &[(Cause, &str, &[EditGathered])] = &[
            (Missing, "no bootstrap Secret", &[|g| g.existing.bootstrap = None]),
            (
                NewRevision,
                "revision is new",
                &[|g| edit_rendered(g, |rendered| rendered.revision = Some("2".into()))],
            ),
            (
                NewContent,
                "content is new",
                &[|g| edit_rendered(g, |rendered| rendered.digest = "other".into())],
            ),
            (
                Modified,
                "the bootstrap Secret lost a label or an annotation",
                &[
                    |g| edit_bootstrap(g, |s| s.meta.labels.clear()),
                    |g| edit_bootstrap(g, |s| annotate(s, names::CONFIG, "other")),
                ],
            ),
            (
                Modified,
                "bootstrap Secret was altered",
                &[|g| edit_bootstrap(g, |s| s.is_intact = false)],
            ),
            (
                Modified,
                "bootstrap Secret was made immutable",
                &[|g| edit_bootstrap(g, |s| s.immutable = true)],
            ),
            (
                Modified,
                "provisioning Secret is missing",
                &[|g| g.existing.provisioning.clear()],
            ),
            (
                Modified,
                "provisioning Secret was replaced",
                &[|g| edit_document(g, |s| s.meta.uid = "other".into())],
            ),
            (
                Modified,
                "provisioning Secret is not immutable",
                &[|g| edit_document(g, |s| s.immutable = false)],
            ),
            (
                Modified,
                "provisioning Secret lost a label",
                &[|g| edit_document(g, |s| s.meta.labels.clear())],
            ),
            (
                TokensInvalid,
                "of the token",
                &[
                    |g| g.existing.account = Some(Arc::new(meta("new", &[]))),
                    |g| g.existing.account = None,
                    // Of an account that all pools share.
                    |g| {
                        edit_bootstrap(g, |s| {
                            annotate(s, names::BOUND_TO, "account-uid/shared/binding-uid")
                        })
                    },
                    |g| edit_bootstrap(g, |s| drop(s.meta.annotations.remove(names::BOUND_TO))),
                ],
            ),
            (
                RenewalDue,
                "renewal",
                &[
                    |g| g.now = hours(8),
                    |g| edit_bootstrap(g, |s| annotate(s, names::RENEW_AT, "soon")),
                ],
            ),
            (
                RoleModified,
                "Role does not open",
                &[
                    |g| g.existing.role = None,
                    |g| opens(g, None),
                    |g| opens(g, Some(&["other"])),
                ],
            ),
            (
                RoleModified,
                "RoleBinding",
                &[
                    |g| g.existing.binding = None,
                    |g| g.existing.binding = Some(Arc::new(BindingView::default())),
                ],
            ),
        ];
        for (cause, message, edits) in cases {
            for (n, edit) in edits.iter().enumerate() {
                let mut gathered = published();
                edit(&mut gathered);
                assert_finds(&gathered, *cause, message, n);
            }
        }
    }

    #[test]
    fn whatever_is_wrong_with_a_secret_beside_the_bootstrap_secret_is_found_while_it_is_needed() {
        type EditSecret = fn(&mut SecretView);
        type Edit = fn(&mut Gathered, EditSecret);
        type Situation = fn() -> Gathered;
        let secrets: [(&str, Situation, Edit); 2] = [
            ("edge script", published_edge, |g, edit| edit_script(g, edit)),
            ("kubeconfig Secret", published_late, |g, edit| {
                edit_kubeconfig(g, edit)
            }),
        ];
        let edits: [(&str, EditSecret); 4] = [
            ("was altered", |s| s.is_intact = false),
            // Older tokens, put back by hand.
            ("was not written with", |s| {
                annotate(s, names::EXPIRES, "2026-01-01T00:00:00Z")
            }),
            ("was made immutable", |s| s.immutable = true),
            ("lost a label", |s| s.meta.labels.clear()),
        ];
        for (secret, published, edit_secret) in secrets {
            for (n, (problem, edit)) in edits.iter().enumerate() {
                let mut gathered = published();
                edit_secret(&mut gathered, *edit);
                assert_finds(&gathered, Modified, &format!("{secret} {problem}"), n);
                edit_config(&mut gathered, |config| config.needs_kubeconfig_secret = false);
                let is_needed = secret == "edge script";
                assert_eq!(
                    found(&gathered).len(),
                    usize::from(is_needed),
                    "{secret} {problem}"
                );
            }
            let mut gathered = published();
            (gathered.existing.edge_script, gathered.existing.kubeconfig) = (None, None);
            assert_finds(&gathered, Modified, &format!("{secret} is missing"), 0);
        }
        let mut gathered = published_late();
        opens(&mut gathered, Some(&["document"]));
        assert_finds(&gathered, RoleModified, "Role does not open", 0);
    }

    fn assert_finds(gathered: &Gathered, cause: Cause, message: &str, case: usize) {
        match found(gathered).as_slice() {
            [(found, text)] if *found == cause && text.contains(message) => {}
            found => panic!("{message}, case {case}: {found:?}"),
        }
    }
}
