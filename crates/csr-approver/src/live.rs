//! Reads from the API server what an approval depends on: a watch may lag behind.

use std::sync::Arc;

use osm_api::{Machine, MachineDeployment, MachineSet, PoolRef};
use osm_runtime::Api;
use osm_runtime::request::failed;
use osm_runtime::{Error, read};

use crate::context::Context;
use crate::views::{MachineSetView, MachineView, NodeNameOwner, PoolView};

/// The same object as it is now; `None`: it does not exist.
///
/// # Errors
/// A request that failed.
pub async fn name_owner(context: &Context, known: &NodeNameOwner) -> Result<Option<NodeNameOwner>, Error> {
    let (namespace, name) = (&known.machine.namespace, &known.machine.name);
    if known.is_edge_pool {
        let pool = pool(context, namespace, name).await?;
        return Ok(pool.map(|pool| NodeNameOwner::of_edge_pool(&pool)));
    }
    let machines: Api<Machine> = context.worker(namespace);
    // A Machine that can't be decoded does not show what its node is called.
    let machine = read::get(
        &machines,
        name,
        |machine| Some(MachineView::from(machine)),
        |_| None,
    );
    let Some(machine) = machine.await.map_err(failed("reading the Machine"))?.flatten() else {
        return Ok(None);
    };
    let pool = pool_of(context, &machine).await?;
    Ok(Some(NodeNameOwner::of_machine(Arc::new(machine), pool)))
}

/// The MachineDeployment that exists and that the Machine belongs to.
async fn pool_of(context: &Context, machine: &MachineView) -> Result<Option<PoolRef>, Error> {
    let Some(owner) = &machine.owner else {
        return Ok(None);
    };
    let sets: Api<MachineSet> = context.worker(&machine.namespace);
    let set = sets.get_metadata_opt(&owner.name).await;
    let set = set
        .map_err(failed("reading the MachineSet"))?
        .map(MachineSetView::from);
    let Some(owner) = set.as_ref().and_then(|set| set.owner_of_what_belongs_to(owner)) else {
        return Ok(None);
    };
    let pool = pool(context, &machine.namespace, &owner.name).await?;
    Ok(pool.and_then(|pool| pool.if_it_is(owner)))
}

async fn pool(context: &Context, namespace: &str, name: &str) -> Result<Option<PoolView>, Error> {
    let pools: Api<MachineDeployment> = context.worker(namespace);
    let pool = read::get(&pools, name, |md| PoolView::of(&md), PoolView::unreadable).await;
    pool.map_err(failed("reading the MachineDeployment"))
}
