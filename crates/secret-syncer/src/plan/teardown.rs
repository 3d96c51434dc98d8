//! What is deleted of a retired pool.

use osm_api::Joining;

use crate::model::existing::ExistingObjects;
use crate::model::gathered::Gathered;
use crate::model::view::ConfigView;
use crate::plan::provisioning_secret;
use crate::plan::steps::{Step, Teardown, Unseen};

/// Everything of the config's name, but for what another management cluster published.
pub fn of(gathered: &Gathered, config: &ConfigView) -> Step {
    let orphans = gathered.orphans.iter().map(|(_, objects)| objects);
    let ours = orphans.filter(|objects| !gathered.clusters.is_other_management(objects));
    let objects: Vec<_> = [&gathered.existing]
        .into_iter()
        .chain(ours)
        .filter(|objects| !objects.is_nothing())
        .cloned()
        .collect();
    if config.is_torn_down() && objects.is_empty() {
        return Step::None;
    }
    let unseen = unseen(gathered, config);
    Step::Teardown(Teardown { objects, unseen })
}

/// A pool that was published has one object of each kind, and every Secret that its Role and its bootstrap Secret name. Of one that never
/// was, there is only what the watches show.
fn unseen(gathered: &Gathered, config: &ConfigView) -> Unseen {
    let existing = &gathered.existing;
    if config.status.published.is_none() && existing.is_nothing() {
        return Unseen::NONE;
    }
    let ExistingObjects {
        bootstrap,
        provisioning,
        token_binding,
        account,
        role,
        binding,
        ..
    } = existing;
    let opened = role.as_ref().and_then(|role| role.secrets.as_ref());
    let all_secrets = bootstrap.is_some()
        && !provisioning.is_empty()
        && opened.is_some()
        && (gathered.joining == Joining::Approved || token_binding.is_some())
        && provisioning_secret::out_of_sight(gathered).is_empty();
    Unseen {
        account: account.is_none(),
        secrets: !all_secrets,
        role: role.is_none(),
        binding: binding.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use osm_api::config::Published;
    use osm_api::names;

    use super::*;
    use crate::plan::fixtures::{edit_config, fresh, published};

    fn unseen_of(gathered: &Gathered) -> Unseen {
        unseen(gathered, gathered.config.as_ref().unwrap())
    }

    #[test]
    fn of_a_pool_that_the_watches_show_whole_or_that_was_never_published_nothing_is_asked() {
        assert_eq!(unseen_of(&published()), Unseen::NONE);
        assert_eq!(unseen_of(&fresh()), Unseen::NONE);
        let mut gathered = fresh();
        edit_config(&mut gathered, |config| {
            config.status.published = Some(Published {
                digest: "d".into(),
                revision: "1".into(),
                bootstrap_secret: "bootstrap".into(),
                provisioning_secret: "document".into(),
                credential_expires: String::new(),
            });
        });
        assert_eq!(unseen_of(&gathered), Unseen::ALL, "it was published");
    }

    #[test]
    fn what_the_watches_do_not_show_is_asked_for() {
        let (all, none) = (published().existing, Unseen::NONE);
        let secrets = Unseen {
            secrets: true,
            ..none
        };
        let account = ExistingObjects {
            account: None,
            ..all.clone()
        };
        let role = ExistingObjects {
            role: None,
            ..all.clone()
        };
        let binding = ExistingObjects {
            binding: None,
            ..all.clone()
        };
        let bootstrap = ExistingObjects {
            bootstrap: None,
            ..all.clone()
        };
        let provisioning = ExistingObjects {
            provisioning: vec![],
            ..all.clone()
        };
        let token_binding = ExistingObjects {
            token_binding: None,
            ..all.clone()
        };
        let mut altered = all.clone();
        Arc::make_mut(altered.role.as_mut().unwrap()).secrets = None;
        let mut another = all;
        let lost = names::provisioning_secret_name(&published().pool, "lost");
        Arc::make_mut(another.role.as_mut().unwrap()).secrets = Some(vec!["document".into(), lost]);
        for (what, existing, expected) in [
            (
                "no ServiceAccount",
                account,
                Unseen {
                    account: true,
                    ..none
                },
            ),
            (
                "no RoleBinding",
                binding,
                Unseen {
                    binding: true,
                    ..none
                },
            ),
            // Only the Role names the documents that are kept.
            (
                "no Role",
                role,
                Unseen {
                    role: true,
                    secrets: true,
                    ..none
                },
            ),
            ("no bootstrap Secret", bootstrap, secrets),
            ("no document", provisioning, secrets),
            ("no token binding", token_binding, secrets),
            ("a Role that was altered", altered, secrets),
            (
                "a Role that opens a document which is not shown",
                another,
                secrets,
            ),
        ] {
            let gathered = Gathered {
                existing,
                ..published()
            };
            assert_eq!(unseen_of(&gathered), expected, "{what}");
        }
    }
}
