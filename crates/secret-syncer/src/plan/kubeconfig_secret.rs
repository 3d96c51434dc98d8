//! How the kubeconfig Secret of a pool comes to exist before tokens are bound to it, and which tokens are published.

use jiff::Timestamp;
use osm_api::names;

use crate::model::existing::ExistingObjects;
use crate::model::memory::KeptTokens;
use crate::model::view::SecretView;
use crate::plan::retention;
use crate::plan::steps::{KubeconfigSecret, KubeconfigSecretStep};

/// What is to be done about the kubeconfig Secret of a pool that needs one.
pub fn provide(existing: &ExistingObjects, pool: &str, keep_until: Timestamp) -> KubeconfigSecret {
    let existing = existing.kubeconfig.clone();
    KubeconfigSecret {
        name: names::kubeconfig_secret_name(pool),
        keep_until: existing
            .as_ref()
            .map_or(keep_until, |secret| retention::extended(secret, keep_until)),
        step: match existing {
            None => KubeconfigSecretStep::Create,
            Some(secret) if secret.immutable => KubeconfigSecretStep::Recreate { secret },
            Some(secret) => KubeconfigSecretStep::Keep { secret },
        },
    }
}

/// Whether the tokens of an earlier publish are published again: they are bound to what exists now, and not due for renewal.
pub fn are_reusable(kept: &KeptTokens, bound_to: &str, now: Timestamp) -> bool {
    kept.bound_to == bound_to && now < kept.tokens.renew_at
}

/// Annotations of the bootstrap Secret that the kubeconfig Secret of the same publish has as well.
pub const SHARED: [&str; 4] = [
    names::DOCUMENT_MAC,
    names::PROVISIONING_SECRET,
    names::EXPIRES,
    names::RENEW_AT,
];

/// Whether both Secrets were written with the same tokens.
pub fn has_tokens_of(kubeconfig: &SecretView, bootstrap: &SecretView) -> bool {
    SHARED
        .iter()
        .all(|name| kubeconfig.meta.annotation(name) == bootstrap.meta.annotation(name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::found::FoundSecret;
    use crate::model::gathered::Gathered;
    use crate::model::tokens::Tokens;
    use crate::model::view::{ROLE_KUBECONFIG, ROLE_PROVISIONING, RoleView};
    use crate::plan::adoption::{Adoption, Replacement, WellKnown, of_well_known};
    use crate::plan::fixtures::*;
    use crate::plan::plan;
    use crate::plan::steps::{Keep, OrphanStep, Publish, Step};

    #[test]
    fn it_keeps_its_uid_unless_it_cannot_be_written() {
        let existing = published_late().existing;
        let step = |existing: &ExistingObjects| provide(existing, POOL, hours(25)).step;
        let secret = existing.kubeconfig.clone().unwrap();
        assert_eq!(step(&existing), KubeconfigSecretStep::Keep { secret });
        let mut locked = existing.clone();
        Arc::make_mut(locked.kubeconfig.as_mut().unwrap()).immutable = true;
        let secret = locked.kubeconfig.clone().unwrap();
        assert_eq!(step(&locked), KubeconfigSecretStep::Recreate { secret });
        assert_eq!(step(&published().existing), KubeconfigSecretStep::Create);
        assert_eq!(
            provide(&existing, POOL, hours(25)).name,
            format!("osm-kubeconfig-{POOL}")
        );
    }

    #[test]
    fn it_is_kept_as_long_as_any_token_that_is_bound_to_it() {
        let existing = published_late().existing;
        for (until, expected) in [(hours(25), hours(25)), (hours(2), hours(21))] {
            assert_eq!(provide(&existing, POOL, until).keep_until, expected);
        }
    }

    #[test]
    fn tokens_are_published_again_until_their_renewal() {
        let kept = KeptTokens {
            bound_to: "a/j/k".into(),
            tokens: Tokens {
                api: "api".into(),
                kubelet: "kubelet".into(),
                expires: hours(20),
                renew_at: hours(8),
            },
        };
        for (bound_to, now, reusable) in [
            ("a/j/k", now(), true),
            ("a/j/k", hours(8), false),
            ("a/j/other", now(), false),
            ("other/j/k", now(), false),
            ("a/other/k", now(), false),
        ] {
            assert_eq!(
                are_reusable(&kept, bound_to, now),
                reusable,
                "{bound_to} at {now}"
            );
        }
    }

    fn step(gathered: &Gathered) -> Step {
        plan(gathered).1.unwrap().step
    }

    fn kept(gathered: &Gathered) -> Keep {
        match step(gathered) {
            Step::Keep(keep) => keep,
            other => panic!("{other:?}"),
        }
    }

    fn publish(gathered: &Gathered) -> Publish {
        match step(gathered) {
            Step::Publish(publish) => *publish,
            other => panic!("{other:?}"),
        }
    }

    fn outdated(keep: &Keep) -> Vec<&str> {
        keep.outdated
            .iter()
            .map(|secret| secret.meta.name.as_str())
            .collect()
    }

    /// From now on the pool's tokens are bound to its provisioning Secret again.
    fn no_longer_needed(gathered: &mut Gathered) {
        edit_config(gathered, |config| config.needs_kubeconfig_secret = false);
        let key = gathered.key.clone();
        edit_bootstrap(gathered, |bootstrap| {
            let bound_to = "account-uid/node-account/document-uid".to_owned();
            bootstrap
                .meta
                .annotations
                .insert(names::BOUND_TO.into(), bound_to);
            reseal(&key, bootstrap);
        });
    }

    #[test]
    fn only_a_pool_that_needs_one_gets_one() {
        let mut gathered = fresh();
        assert_eq!(publish(&gathered).kubeconfig, None);
        edit_config(&mut gathered, |config| config.needs_kubeconfig_secret = true);
        let secret = publish(&gathered).kubeconfig.unwrap();
        assert_eq!(secret.step, KubeconfigSecretStep::Create);
        assert_eq!(secret.keep_until, hours(25));
        let keep = kept(&published_late());
        assert!(keep.outdated.is_empty() && keep.narrow.is_none(), "{keep:?}");
    }

    #[test]
    fn one_that_is_no_longer_needed_goes_when_no_token_may_fetch_it() {
        let mut gathered = published_late();
        no_longer_needed(&mut gathered);
        gathered.now = hours(7);
        let keep = kept(&gathered);
        assert!(keep.outdated.is_empty() && keep.narrow.is_none(), "{keep:?}");

        let past = hours(6).to_string();
        edit_kubeconfig(&mut gathered, |secret| {
            secret.meta.annotations.insert(names::KEEP_UNTIL.into(), past);
        });
        let keep = kept(&gathered);
        assert_eq!(outdated(&keep), ["kubeconfig"]);
        assert_eq!(keep.narrow.unwrap().secrets, ["document"]);

        // While it is needed its date does not count.
        edit_config(&mut gathered, |config| config.needs_kubeconfig_secret = true);
        let publish = publish(&gathered);
        assert_eq!(publish.kept, ["document", "kubeconfig"]);
    }

    #[test]
    fn a_plan_looks_again_when_it_is_outdated() {
        let mut gathered = published_late();
        no_longer_needed(&mut gathered);
        let soon = (now() + jiff::SignedDuration::from_secs(30)).to_string();
        edit_kubeconfig(&mut gathered, |secret| {
            secret.meta.annotations.insert(names::KEEP_UNTIL.into(), soon);
        });
        assert_eq!(plan(&gathered).1.unwrap().again.unwrap().as_secs(), 30);
    }

    #[test]
    fn documents_whose_tokens_are_dead_are_not_kept() {
        let late = |name: &str, bound_to: Option<&str>| {
            let mut document = (*document(name, hours(20))).clone();
            let bound_to = bound_to.map(|to| (names::BOUND_TO.to_owned(), to.to_owned()));
            document.meta.annotations.extend(bound_to);
            Arc::new(document)
        };
        let mut gathered = published_late();
        gathered.existing.provisioning.extend([
            late("alive", Some("account-uid/node-account/kubeconfig-uid")),
            late("altered", Some("")),
            late("of-a-dead-account", Some("other/node-account/kubeconfig-uid")),
            late("of-a-dead-secret", Some("account-uid/node-account/other")),
            late("plain", None),
        ]);
        assert_eq!(
            outdated(&kept(&gathered)),
            ["of-a-dead-account", "of-a-dead-secret"]
        );
        // The watch may not show it because it lost its label.
        no_longer_needed(&mut gathered);
        gathered.existing.kubeconfig = None;
        gathered.existing.role = None;
        assert_eq!(
            publish(&gathered).kept,
            [
                "alive",
                "altered",
                "document",
                "of-a-dead-account",
                "of-a-dead-secret",
                "plain"
            ]
        );
    }

    #[test]
    fn one_that_lost_its_label_is_looked_for() {
        let mut gathered = published_late();
        let name = names::kubeconfig_secret_name(POOL);
        gathered.existing.kubeconfig = None;
        gathered.existing.role = Some(Arc::new(RoleView {
            meta: meta("role", &[]),
            secrets: Some(vec!["document".into(), name.clone()]),
        }));
        assert_eq!(publish(&gathered).out_of_sight, std::slice::from_ref(&name));
        assert_eq!(retention::role_of(&name), ROLE_KUBECONFIG);
        let document = names::provisioning_secret_name(POOL, "mac");
        assert_eq!(retention::role_of(&document), ROLE_PROVISIONING);
    }

    #[test]
    fn tokens_are_remembered_while_they_are_needed() {
        let mut gathered = published_late();
        gathered.memory.tokens = Some(KeptTokens {
            bound_to: String::new(),
            tokens: Tokens {
                api: String::new(),
                kubelet: String::new(),
                expires: hours(20),
                renew_at: hours(8),
            },
        });
        assert!(plan(&gathered).0.tokens.is_some());
        no_longer_needed(&mut gathered);
        assert!(plan(&gathered).0.tokens.is_none());
    }

    #[test]
    fn it_is_undone_before_the_documents_and_marked_like_them() {
        let mut gathered = published_late();
        let names: Vec<_> = gathered.existing.secrets().map(|s| s.meta.name.clone()).collect();
        assert_eq!(
            names,
            ["kubeconfig", "document", "pool-kube-system-bootstrap-config"]
        );
        let made = std::mem::take(&mut gathered.existing);
        gathered.config = None;
        gathered.orphans = vec![(POOL.into(), made)];
        let orphans = plan(&gathered).1.unwrap().orphans;
        let [OrphanStep::Mark { secrets, .. }] = orphans.as_slice() else {
            panic!("{orphans:?}")
        };
        assert_eq!(secrets.len(), 3);
    }

    #[test]
    fn one_without_labels_is_ours_by_its_name() {
        let found = |installation: Option<&str>, immutable| {
            let mut found = FoundSecret::default();
            (found.view.immutable, found.view.meta.uid) = (immutable, "uid".into());
            let installation = installation.map(|of| (names::INSTALLATION.to_owned(), of.to_owned()));
            found.view.meta.labels = installation.into_iter().collect();
            found
        };
        let adopt = |found| of_well_known(&fresh(), WellKnown::Kubeconfig, &found);
        let in_place = Adoption::Take(Replacement::InPlace {
            resource_version: String::new(),
        });
        assert_eq!(adopt(found(None, false)), in_place);
        assert!(matches!(
            adopt(found(None, true)),
            Adoption::Take(Replacement::Recreate { .. })
        ));
        assert_eq!(adopt(found(Some("other"), false)), Adoption::Foreign);
    }
}
