//! What is deleted of a retired pool.

use std::collections::BTreeMap;

use osm_api::names;

use crate::model::gathered::Gathered;
use crate::model::view::ConfigView;
use crate::plan::provisioning_secret;
use crate::plan::steps::Step;

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
    let is_listed = !is_shown(gathered);
    Step::Teardown { objects, is_listed }
}

/// Whether the config, as it is now, is the one that was retired.
pub fn is_confirmed(gathered: &Gathered, live: &ConfigView) -> bool {
    let config = gathered.config.as_ref();
    config.is_some_and(|config| config.uid == live.uid) && live.is_retired()
}

/// Whether an object with the label of the pool is deleted with it. What another installation made is left
/// alone.
pub fn is_included(installation: &str, labels: &BTreeMap<String, String>) -> bool {
    let owner = labels.get(names::INSTALLATION);
    owner.is_none_or(|owner| owner == installation)
}

/// Whether the watches show all that there should be of a pool that was published: one object of each kind,
/// and every Secret that its Role and its bootstrap Secret name. The status can't say that a pool never was,
/// because others can edit it.
fn is_shown(gathered: &Gathered) -> bool {
    let existing = &gathered.existing;
    let role = existing.role.as_ref();
    existing.account.is_some()
        && existing.binding.is_some()
        // Only the Role names the documents that are kept.
        && role.is_some_and(|role| role.secrets.is_some())
        && existing.bootstrap.is_some()
        && !existing.provisioning.is_empty()
        && provisioning_secret::out_of_sight(gathered).is_empty()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::existing::ExistingObjects;
    use crate::plan::fixtures::{fresh, published};

    #[test]
    fn what_the_watches_do_not_show_is_asked_for() {
        assert!(is_shown(&published()) && !is_shown(&fresh()));
        type EditExisting = fn(&mut ExistingObjects);
        fn opens(existing: &mut ExistingObjects, secrets: Option<Vec<String>>) {
            Arc::make_mut(existing.role.as_mut().unwrap()).secrets = secrets;
        }
        let cases: [(&str, EditExisting); 7] = [
            ("no ServiceAccount", |o| o.account = None),
            ("no RoleBinding", |o| o.binding = None),
            ("no Role", |o| o.role = None),
            ("no bootstrap Secret", |o| o.bootstrap = None),
            ("no document", |o| o.provisioning.clear()),
            ("a Role that was altered", |o| opens(o, None)),
            ("a Role that opens a document which is not shown", |o| {
                let lost = names::provisioning_secret_name(&published().pool(), "lost");
                opens(o, Some(vec!["document".into(), lost]));
            }),
        ];
        for (what, edit) in cases {
            let mut gathered = published();
            edit(&mut gathered.existing);
            assert!(!is_shown(&gathered), "{what}");
        }
    }
}
