//! Objects whose config does not exist. A wrong kubeconfig or namespace looks the same, so the config alone
//! proves nothing: they are deleted once a live read shows that the MachineDeployment that they name is gone.

use osm_api::names;

use crate::model::existing::ExistingObjects;
use crate::model::gathered::Gathered;
use crate::plan::steps::{Orphan, Owner};

/// The orphans of this management cluster.
pub fn orphans(gathered: &Gathered) -> Vec<Orphan> {
    let ours = |(_, objects): &&(String, ExistingObjects)| !gathered.clusters.is_other_management(objects);
    let orphans = gathered.orphans.iter().filter(ours);
    orphans
        .map(|(pool, objects)| Orphan {
            pool: pool.clone(),
            objects: objects.clone(),
            owner: owner(objects),
        })
        .collect()
}

fn owner(objects: &ExistingObjects) -> Option<Owner> {
    let mut owners = objects.metas().map(|meta| meta.annotation(names::OWNER));
    let owner = owners.next()??;
    let (namespace, name) = owner.split_once('/')?;
    owners.all(|other| other == Some(owner)).then(|| Owner {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// Whether the MachineDeployment that has the owner's name, with this uid, is another one than the pool was
/// made for.
pub fn is_another(owner: &Owner, pool: &str, uid: &str) -> bool {
    names::pool_id(&owner.namespace, &owner.name, uid) != pool
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
