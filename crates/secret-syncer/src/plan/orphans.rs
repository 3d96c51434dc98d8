//! Objects whose config does not exist. They are marked, and deleted a day later: an empty list is also what a wrong kubeconfig looks
//! like.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::SignedDuration;
use osm_api::names;

use crate::model::existing::ExistingObjects;
use crate::model::gathered::Gathered;
use crate::model::view::Meta;
use crate::plan::orphan_budget;
use crate::plan::requeue::MAX_REQUEUE_INTERVAL;
use crate::plan::steps::{Collect, OrphanStep, Owner};

/// Objects without a config are left alone for this long, in which someone can notice and correct a wrong kubeconfig.
const MIN_ORPHAN_AGE: SignedDuration = SignedDuration::from_hours(24);

/// What to do with each orphan of this management cluster, and when to look again.
pub fn orphans(gathered: &Gathered) -> (Vec<OrphanStep>, Option<Duration>) {
    let (mut steps, mut requeue_after) = (Vec::new(), None);
    let budget = gathered.orphan_budget.as_ref();
    let mut left = budget.map_or(0, |budget| orphan_budget::left(budget, gathered.now));
    let ours = |(_, objects): &&(String, ExistingObjects)| !gathered.clusters.is_other_management(objects);
    for (pool, objects) in gathered.orphans.iter().filter(ours) {
        let secrets: Vec<_> = objects.secrets().cloned().collect();
        let since = secrets
            .iter()
            .map(|secret| secret.meta.time(names::ORPHANED_SINCE))
            .collect::<Option<Vec<_>>>();
        match since.and_then(|times| times.into_iter().max()) {
            Some(since) if gathered.now.duration_since(since) >= MIN_ORPHAN_AGE => {
                if left > 0 {
                    left -= 1;
                    steps.push(collect(gathered, pool, objects));
                }
                requeue_after = Some(MAX_REQUEUE_INTERVAL);
            }
            Some(_) => requeue_after = Some(MAX_REQUEUE_INTERVAL),
            // An identity without any Secret opens nothing, so there is nothing to lose.
            None if secrets.is_empty() => steps.push(collect(gathered, pool, objects)),
            None => {
                let unmarked = secrets
                    .into_iter()
                    .filter(|secret| secret.meta.time(names::ORPHANED_SINCE).is_none());
                steps.push(OrphanStep::Mark {
                    secrets: unmarked.collect(),
                    since: gathered.now,
                });
                requeue_after = Some(MAX_REQUEUE_INTERVAL);
            }
        }
    }
    (steps, requeue_after)
}

fn collect(gathered: &Gathered, pool: &str, objects: &ExistingObjects) -> OrphanStep {
    let owners: BTreeSet<Owner> = objects.metas().filter_map(owner).collect();
    OrphanStep::Collect(Box::new(Collect {
        pool: pool.to_owned(),
        has_no_config: gathered.config.is_none(),
        is_limited: objects.secrets().next().is_some(),
        owners: owners.into_iter().collect(),
        objects: objects.clone(),
    }))
}

/// The MachineDeployment that an object was made for.
fn owner(meta: &Meta) -> Option<Owner> {
    let (namespace, name) = meta.annotation(names::OWNER)?.split_once('/')?;
    Some(Owner {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        pool: meta.pool()?.to_owned(),
    })
}

/// Whether the MachineDeployment with this uid is the one that the objects were made for.
pub fn is_alive(owner: &Owner, uid: &str) -> bool {
    names::pool_id(&owner.namespace, &owner.name, uid) == owner.pool
}

/// The first orphan that was published through another management cluster.
pub fn of_another_cluster(gathered: &Gathered) -> Option<&str> {
    let of_another =
        |(_, objects): &&(String, ExistingObjects)| gathered.clusters.is_other_management(objects);
    gathered
        .orphans
        .iter()
        .find(of_another)
        .map(|(pool, _)| pool.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gathered::OrphanBudget;
    use crate::plan::fixtures::*;

    #[test]
    fn the_live_reads_before_a_deletion_follow_from_what_exists() {
        let mut gathered = published();
        let objects = std::mem::take(&mut gathered.existing);
        gathered.orphan_budget = Some(OrphanBudget {
            pools: 1,
            recorded: String::new(),
        });
        for (what, secrets) in [("with Secrets", true), ("no Secrets", false)] {
            let mut gathered = gathered.clone();
            let mut objects = objects.clone();
            if secrets {
                mark(&mut objects, now());
            } else {
                (objects.bootstrap, objects.provisioning) = (None, vec![]);
            }
            gathered.now = hours(24);
            gathered.orphans = vec![(POOL.into(), objects)];
            let (steps, _) = orphans(&gathered);
            let [OrphanStep::Collect(collect)] = steps.as_slice() else {
                panic!("{what}: {steps:?}")
            };
            let owner = Owner {
                namespace: "kube-system".into(),
                name: "pool".into(),
                pool: POOL.into(),
            };
            assert_eq!(collect.owners, [owner], "{what}");
            assert_eq!(
                (collect.pool.as_str(), collect.is_limited),
                (POOL, secrets),
                "{what}"
            );
        }
    }

    #[test]
    fn a_machine_deployment_of_the_same_name_is_another_one() {
        let (namespace, name) = ("kube-system".to_owned(), "pool".to_owned());
        let pool = names::pool_id(&namespace, &name, "uid");
        let owner = Owner {
            namespace,
            name,
            pool,
        };
        assert!(is_alive(&owner, "uid") && !is_alive(&owner, "another uid"));
    }
}
