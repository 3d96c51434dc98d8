//! The permissions that a migration needs. They are asked for before anything else, so that no step fails for want of one.

use futures::{StreamExt, TryStreamExt, stream};
use osm_api::names::CLOUD_INIT_SETTINGS;
use serde_json::{Value, json};

use super::find::Found;
use super::kinds;
use super::restorable::restorable;
use super::steps::WRITE_CHECK;
use crate::cluster::{Editor, Failure, Kind, Object, Right};

/// Requests at the same time.
const AT_ONCE: usize = 8;

const READ: &[&str] = &["get", "list"];
const CHANGE: &[&str] = &["get", "list", "create", "delete"];

/// Kinds of the cluster, or of objects in any namespace.
const EVERYWHERE: [(Kind, &[&str]); 9] = [
    (kinds::VALIDATING, CHANGE),
    (kinds::MUTATING, CHANGE),
    (kinds::ROLE, CHANGE),
    (kinds::ROLE_BINDING, CHANGE),
    (kinds::CLUSTER_ROLE, CHANGE),
    (kinds::CLUSTER_ROLE_BINDING, CHANGE),
    // A copy of one is created without being stored.
    (kinds::POOL, &["list", "create"]),
    (kinds::MACHINE, &["list"]),
    (kinds::PROFILE, &["list"]),
];

/// Kinds in the namespace of the installation.
const HERE: [(Kind, &[&str]); 12] = [
    (kinds::DEPLOYMENT, &["get", "list", "create", "patch", "delete"]),
    (kinds::DAEMON_SET, &["list"]),
    (kinds::STATEFUL_SET, &["list"]),
    (kinds::CRON_JOB, &["list"]),
    (kinds::JOB, &["list"]),
    (kinds::SERVICE, CHANGE),
    (kinds::BUDGET, CHANGE),
    (kinds::ACCOUNT, CHANGE),
    // `update` is for the journal.
    (kinds::SECRET, &["get", "list", "create", "update", "delete"]),
    (kinds::CONFIG_MAP, &["get"]),
    (kinds::PROFILE, &["create"]),
    (kinds::CONFIG, &["list"]),
];

const CERT_MANAGER: [Kind; 2] = [kinds::CERTIFICATE, kinds::ISSUER];

/// The token that does not expire, and generated user data.
const IN_CLOUD_INIT_SETTINGS: [(Kind, &[&str]); 2] = [(kinds::SECRET, CHANGE), (kinds::ACCOUNT, CHANGE)];

/// Every permission of a migration.
fn all(namespace: &str, has_cert_manager: bool) -> Vec<Right> {
    let of = |(kind, verbs): &(Kind, &'static [&'static str]), namespace: Option<&str>| -> Vec<Right> {
        let right = |&verb: &&'static str| Right {
            verb,
            group: kind.group,
            resource: kind.plural,
            namespace: namespace.map(str::to_owned),
        };
        verbs.iter().map(right).collect()
    };
    let everywhere = EVERYWHERE.iter().flat_map(|row| of(row, None));
    let here = HERE.iter().flat_map(|row| of(row, Some(namespace)));
    let other = IN_CLOUD_INIT_SETTINGS
        .iter()
        .flat_map(|row| of(row, Some(CLOUD_INIT_SETTINGS)));
    let mut rights: Vec<Right> = everywhere.chain(here).chain(other).collect();
    if has_cert_manager {
        rights.extend(
            CERT_MANAGER
                .iter()
                .flat_map(|kind| of(&(*kind, CHANGE), Some(namespace))),
        );
    }
    rights
}

/// The permissions that the user lacks.
///
/// # Errors
/// A request that fails.
pub async fn missing(
    editor: &Editor<'_>,
    namespace: &str,
    has_cert_manager: bool,
) -> Result<Vec<Right>, Failure> {
    let rights = all(namespace, has_cert_manager);
    let answers = stream::iter(&rights).map(|right| editor.may(right));
    let answers: Vec<bool> = answers.buffered(AT_ONCE).try_collect().await?;
    let denied = rights
        .into_iter()
        .zip(answers)
        .filter(|(_, is_allowed)| !is_allowed);
    Ok(denied.map(|(right, _)| right).collect())
}

/// Why a rollback could not restore permissions. A user who creates a Role or a binding needs what it permits, or a verb for it, which no review of
/// access answers; so copies are created without being stored.
///
/// # Errors
/// A request that fails.
pub async fn not_restorable(editor: &Editor<'_>, found: &Found) -> Result<Vec<String>, Failure> {
    let objects = found.leftovers.iter().chain(&found.tokens);
    let objects: Vec<(&Object, &str, Object)> = objects
        .filter_map(|object| Some((object, verb(object.kind)?, renamed(object))))
        .collect();
    let answers = stream::iter(&objects).map(|(_, _, copy)| editor.may_create(copy));
    let answers: Vec<bool> = answers.buffered(AT_ONCE).try_collect().await?;
    let denied = objects.iter().zip(answers).filter(|(_, is_allowed)| !is_allowed);
    let line = |((object, verb, _), _): (&(&Object, &str, Object), bool)| {
        format!(
            "a rollback could not restore {object}, because you lack permissions that it gives; ask the administrator of the cluster for these, \
             or for {verb}"
        )
    };
    Ok(denied.map(line).collect())
}

/// The verb that lets a user create objects of a kind with permissions that the user lacks.
fn verb(kind: Kind) -> Option<&'static str> {
    match kind {
        kinds::ROLE | kinds::CLUSTER_ROLE => Some("the verb escalate on roles and clusterroles"),
        kinds::ROLE_BINDING | kinds::CLUSTER_ROLE_BINDING => Some("the verb bind on roles and clusterroles"),
        _ => None,
    }
}

/// A copy as a rollback creates it, with a name that no object has.
fn renamed(object: &Object) -> Object {
    let mut value = restorable(object);
    if let Some(metadata) = value.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.insert("name".to_owned(), json!(WRITE_CHECK));
    }
    Object::new(object.kind, value)
}

/// Whether a right is needed for checking, too.
pub fn is_reading(right: &Right) -> bool {
    READ.contains(&right.verb)
}

#[cfg(test)]
mod tests {
    use super::super::find;
    use super::super::plan::{self, Action};
    use super::*;

    #[test]
    fn every_step_of_each_installer_has_its_permission() {
        for (installer, text) in find::fixtures::INSTALLERS {
            let found = find::sort(&find::fixtures::seen(find::fixtures::objects(text)), &[]);
            let rights = all("kube-system", true);
            for step in plan::stop(&found)
                .iter()
                .chain(&plan::clean_up(&found, true, &[]))
            {
                let kind = step.kind().unwrap();
                let verb = match step.action {
                    Action::Delete => "delete",
                    Action::Stop => "patch",
                };
                for verb in [verb, "get", "create"] {
                    let is_it = |right: &Right| {
                        let is_there = right.namespace.is_none() || right.namespace == step.namespace;
                        right.verb == verb
                            && right.group == kind.group
                            && right.resource == kind.plural
                            && is_there
                    };
                    assert!(rights.iter().any(is_it), "{installer}: {verb} {}", step.what());
                }
            }
        }
    }

    #[test]
    fn copies_of_permissions_have_another_name_and_the_same_content() {
        let (_, text) = find::fixtures::INSTALLERS[0];
        let found = find::sort(&find::fixtures::seen(find::fixtures::objects(text)), &[]);
        let checked = found
            .leftovers
            .iter()
            .filter(|object| verb(object.kind).is_some());
        let checked: Vec<&Object> = checked.collect();
        assert_eq!(checked.len(), 10);
        for object in checked {
            let copy = renamed(object);
            assert_eq!(copy.name(), WRITE_CHECK);
            assert_eq!(copy.uid(), "");
            assert_eq!(copy.namespace(), object.namespace());
            for field in ["/rules", "/roleRef", "/subjects"] {
                assert_eq!(copy.value.pointer(field), object.value.pointer(field));
            }
        }
    }

    #[test]
    fn a_cluster_without_cert_manager_needs_no_permissions_for_it() {
        let of = |rights: &[Right]| {
            rights
                .iter()
                .filter(|right| right.group == kinds::ISSUER.group)
                .count()
        };
        assert_eq!(of(&all("n", false)), 0);
        assert_eq!(of(&all("n", true)), 8);
    }
}
