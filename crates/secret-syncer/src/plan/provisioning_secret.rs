//! Decides how long provisioning Secrets are kept, and what the pool's Role opens: everything that a living
//! token may still fetch.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use osm_api::{digest, names};

use crate::model::documents::Documents;
use crate::model::existing::ExistingObjects;
use crate::model::existing::Ownership;
use crate::model::gathered::Gathered;
use crate::model::record::of_entries;
use crate::model::token::account_of;
use crate::model::view::{PURPOSE_KUBECONFIG, PURPOSE_PROVISIONING, RoleView, SecretView};
use crate::plan::content::Wanted;
use crate::plan::steps::{Keep, Publish};

/// A document is kept this much longer than the last token that may fetch it: the clocks of the API server
/// and of this process differ, and a machine that got the token in its last second still has to read.
const KEPT_AFTER_EXPIRY: SignedDuration = SignedDuration::from_hours(1);

/// New content waits while a pool has this many documents, until one of them has expired. Anyone who may edit
/// a template, an annotation or a profile can change the content at any rate, and no document is deleted that
/// a valid token may fetch.
pub const MAX_DOCUMENTS: usize = 50;
/// The same while the installation has so many Secrets that its watch would soon have no room for them. A
/// pool whose documents have tokens has up to three at any time.
pub const MAX_DOCUMENTS_WHERE_CROWDED: usize = 4;

/// Names of the Secrets that the Role has to open once there is a new one as well.
pub fn opened(kept: &[String], new: &str) -> Vec<String> {
    let secrets: BTreeSet<&str> = kept.iter().map(String::as_str).chain([new]).collect();
    secrets.into_iter().map(str::to_owned).collect()
}

/// Until when a Secret has to be kept that tokens may fetch which expire then; never earlier than what an
/// earlier token was promised.
pub fn keep_until(existing: Option<&SecretView>, expires: Timestamp) -> Timestamp {
    let kept = expires
        .saturating_add(KEPT_AFTER_EXPIRY)
        .unwrap_or(Timestamp::MAX);
    let promised = existing.and_then(|secret| secret.meta.time(names::KEEP_UNTIL));
    promised.map_or(kept, |promised| promised.max(kept))
}

/// Name of the provisioning Secret of these documents: of one that exists and holds them, or of one that is
/// to be created. That is named after what they are published from; with tokens in it, after its own content.
/// Where a Secret of that name has other content, the next name is taken: machines may still fetch it.
///
/// # Errors
/// Why the pool may not get another document.
pub fn document_name(
    gathered: &Gathered,
    publish: &Publish,
    documents: &Documents,
) -> Result<String, String> {
    let (existing, entries) = (&gathered.existing.provisioning, of_entries(&documents.entries));
    // One that can be altered is made immutable when it is kept for longer.
    if let Some(secret) = existing.iter().find(|secret| secret.entries == entries) {
        return Ok(secret.meta.name.clone());
    }
    if let Some(problem) = &publish.too_many_documents {
        return Err(problem.clone());
    }
    let made_from = if documents.has_token_later() {
        entries.as_str()
    } else {
        &publish.wanted.published_from
    };
    let mut attempt = 0_u32;
    loop {
        let hash = digest::sha256_hex(format!("{made_from}/{attempt}").as_bytes());
        let name = names::provisioning_secret_name(&gathered.pool(), &hash);
        if existing.iter().all(|secret| secret.meta.name != name) {
            return Ok(name);
        }
        attempt += 1;
    }
}

/// Secrets that a living token may fetch: provisioning Secrets, and the kubeconfig Secret. The provisioning
/// Secret that the live bootstrap Secret names is one of them, and so is the kubeconfig Secret while it is
/// needed. They are sorted by name.
pub fn kept(gathered: &Gathered) -> Vec<&Arc<SecretView>> {
    let existing = &gathered.existing;
    let is_kept = |secret: &&Arc<SecretView>| {
        // A Secret without a readable date was altered. It stays, because its tokens may be alive.
        let in_time = secret
            .meta
            .time(names::KEEP_UNTIL)
            .is_none_or(|until| gathered.now < until);
        is_in_use(gathered, secret) || (in_time && !has_dead_tokens(existing, secret))
    };
    let mut kept: Vec<_> = of_tokens(existing).filter(is_kept).collect();
    kept.sort_unstable_by(|a, b| a.meta.name.cmp(&b.meta.name));
    kept
}

/// Their names.
pub fn kept_names(gathered: &Gathered) -> Vec<String> {
    let kept = kept(gathered).into_iter();
    kept.map(|secret| secret.meta.name.clone()).collect()
}

/// Names of the Secrets that the Role opens besides a new document. Whatever kubeconfig Secret it opens stays
/// among them, also where there is none: another replica may have opened it, and may be about to write it.
pub fn kept_open(gathered: &Gathered) -> Vec<String> {
    let kubeconfig = names::kubeconfig_secret_name(&gathered.pool());
    let kept = kept_names(gathered);
    if opened_now(gathered).any(|name| name == kubeconfig) {
        opened(&kept, &kubeconfig)
    } else {
        kept
    }
}

/// Names of the Secrets that the Role opens as the watch shows it.
fn opened_now(gathered: &Gathered) -> impl Iterator<Item = &str> {
    let role = gathered.existing.role.iter();
    role.filter_map(|role| role.secrets.as_ref())
        .flatten()
        .map(String::as_str)
}

/// How many provisioning Secrets of the pool are kept.
pub fn documents(gathered: &Gathered) -> usize {
    let kubeconfig = gathered
        .existing
        .kubeconfig
        .as_ref()
        .map(|secret| &secret.meta.uid);
    let kept = kept(gathered);
    kept.iter()
        .filter(|secret| Some(&secret.meta.uid) != kubeconfig)
        .count()
}

/// Whether the pool may get another document for new content.
pub fn has_room(gathered: &Gathered) -> bool {
    let most = if gathered.are_secrets_crowded {
        MAX_DOCUMENTS_WHERE_CROWDED
    } else {
        MAX_DOCUMENTS
    };
    documents(gathered) < most
}

/// When the next document of a pool goes that is no longer in use.
pub fn next_expiry(gathered: &Gathered) -> Option<Timestamp> {
    let kept = kept(gathered);
    let unused = kept.iter().filter(|secret| !is_in_use(gathered, secret));
    unused
        .filter_map(|secret| secret.meta.time(names::KEEP_UNTIL))
        .min()
}

fn is_in_use(gathered: &Gathered, secret: &SecretView) -> bool {
    let existing = &gathered.existing;
    let is_kubeconfig = existing
        .kubeconfig
        .as_ref()
        .is_some_and(|kubeconfig| kubeconfig.meta.uid == secret.meta.uid);
    if is_kubeconfig {
        gathered.needs_kubeconfig_secret()
    } else {
        existing.document_name() == Some(secret.meta.name.as_str())
    }
}

/// Everything that only the pool's tokens make useful.
fn of_tokens(existing: &ExistingObjects) -> impl Iterator<Item = &Arc<SecretView>> {
    existing.kubeconfig.iter().chain(&existing.provisioning)
}

/// Whether no living token may fetch a document before its time, since the ServiceAccount of its tokens was
/// deleted. If it is deleted again and again, documents don't pile up.
fn has_dead_tokens(existing: &ExistingObjects, secret: &SecretView) -> bool {
    let Some(account) = &existing.account else {
        // Only one that is shown is known to be another one.
        return false;
    };
    let of = account_of(secret.meta.annotation(names::BOUND_TO).unwrap_or_default());
    // A text that was altered proves nothing.
    !of.is_empty() && of != account.uid
}

/// What the tokens of a document are bound to that is published with others. Where these belong to another
/// ServiceAccount, nothing says which of the two lives: the cache may still show one that is gone since etcd
/// was restored.
pub fn bound_to<'a>(document: &SecretView, new: &'a str) -> Option<&'a str> {
    let of = document.meta.annotation(names::BOUND_TO).unwrap_or_default();
    (account_of(of) == account_of(new)).then_some(new)
}

/// Documents that the bootstrap Secret names or the Role opens, and that the watch does not show: they lost
/// their label, or the watch lags. A living token may fetch them, and a Role made from what is shown would
/// refuse it.
pub fn out_of_sight(gathered: &Gathered) -> Vec<String> {
    let is_shown = |name: &str| of_tokens(&gathered.existing).any(|secret| secret.meta.name == name);
    let pool = gathered.pool();
    let is_of_pool = |name: &str| names::is_provisioning_secret_of(&pool, name);
    let kubeconfig = names::kubeconfig_secret_name(&pool);
    let lost: BTreeSet<&str> = gathered
        .existing
        .document_name()
        .into_iter()
        .chain(opened_now(gathered))
        .filter(|name| !is_shown(name) && (is_of_pool(name) || **name == kubeconfig))
        .collect();
    lost.into_iter().map(str::to_owned).collect()
}

/// The purpose of a Secret that [`out_of_sight`] names.
pub fn purpose_of(name: &str) -> &'static str {
    if name.starts_with(names::PROVISIONING_PREFIX) {
        PURPOSE_PROVISIONING
    } else {
        PURPOSE_KUBECONFIG
    }
}

/// What to delete, and what the Role is to open afterwards.
pub fn keep(gathered: &Gathered, ownership: Ownership, wanted: &Wanted) -> Keep {
    let (names, open) = (kept_names(gathered), kept_open(gathered));
    let existing = &gathered.existing;
    let former_script = existing.edge_script.iter().filter(|_| !wanted.is_edge);
    let outdated = of_tokens(existing)
        .filter(|secret| !names.contains(&secret.meta.name))
        .chain(former_script);
    let is_other = |role: &Arc<RoleView>| role.secrets.as_ref() != Some(&open);
    Keep {
        outdated: outdated.cloned().collect(),
        out_of_sight: out_of_sight(gathered),
        ownership,
        published: existing
            .bootstrap
            .as_ref()
            .and_then(|secret| secret.meta.published(&wanted.digest)),
        opened: existing.role.as_ref().is_some_and(is_other).then_some(open),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::view::Meta;
    use crate::plan::fixtures;

    fn at(hour: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + hour * 3600).unwrap()
    }

    fn document(kept_until: Option<&str>) -> SecretView {
        let annotations = kept_until.map(|at| (names::KEEP_UNTIL, at.to_owned()));
        let meta = Meta {
            annotations: annotations.into_iter().collect(),
            ..Meta::default()
        };
        SecretView {
            meta,
            entries: "digest".into(),
            immutable: true,
            ..SecretView::default()
        }
    }

    #[test]
    fn a_pool_with_many_documents_gets_no_new_content() {
        for (are_crowded, documents, expected) in [
            (false, 49, true),
            (false, 50, false),
            (true, 3, true),
            (true, 4, false),
        ] {
            let mut gathered = fixtures::published();
            gathered.are_secrets_crowded = are_crowded;
            let more = (1..documents)
                .map(|number| fixtures::document(&format!("older-{number}"), fixtures::hours(30)));
            gathered.existing.provisioning.extend(more);
            assert_eq!(has_room(&gathered), expected, "{documents}");
        }
    }

    #[test]
    fn the_role_opens_what_is_kept_and_the_new_document() {
        let kept = ["b".to_owned(), "c".to_owned()];
        assert_eq!(opened(&kept, "a"), ["a", "b", "c"]);
        assert_eq!(opened(&kept, "b"), ["b", "c"]);
        assert_eq!(opened(&[], "a"), ["a"]);
    }

    #[test]
    fn a_document_outlives_its_tokens_by_an_hour() {
        assert_eq!(keep_until(None, at(24)), at(25));
        assert_eq!(keep_until(None, Timestamp::MAX), Timestamp::MAX);
    }

    #[test]
    fn a_promise_to_a_token_is_kept() {
        for (what, promised, expected) in [
            ("later than now", Some(at(30)), at(30)),
            ("earlier than now", Some(at(20)), at(25)),
            ("none", None, at(25)),
        ] {
            let text = promised.map(|at| at.to_string());
            let document = document(text.as_deref());
            assert_eq!(keep_until(Some(&document), at(24)), expected, "{what}");
        }
        assert_eq!(keep_until(Some(&document(Some("soon"))), at(24)), at(25));
    }

    #[test]
    fn a_document_with_tokens_of_two_accounts_names_neither() {
        let new = "account";
        for (of, expected) in [
            (Some("account"), Some(new)),
            (Some("account/shared/binding"), Some(new)),
            (Some("earlier-account"), None),
            (None, None),
        ] {
            let mut document = document(None);
            let of = of.map(|of| (names::BOUND_TO, of.to_owned()));
            document.meta.annotations.extend(of);
            assert_eq!(bound_to(&document, new), expected);
        }
    }
}
