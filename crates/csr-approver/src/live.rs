//! Reads from the API server what an approval depends on: a watch may lag behind.

use std::sync::Arc;

use osm_api::{Machine, MachineDeployment, MachineSet, PoolRef};
use osm_runtime::Api;
use osm_runtime::request::failed;
use osm_runtime::{RequestError, read};

use crate::context::Context;
use crate::views::{Bearer, MachineSetView, MachineView, PoolView};

/// The same object as it is now; `None`: it does not exist.
///
/// # Errors
/// A request that failed.
pub async fn bearer(context: &Context, known: &Bearer) -> Result<Option<Bearer>, RequestError> {
    match known {
        Bearer::Machine { machine, .. } => self::machine(context, machine).await,
        Bearer::EdgePool(edge) => {
            let pool = pool(context, &edge.pool.namespace, &edge.pool.name).await?;
            Ok(pool.map(|pool| Bearer::EdgePool(Arc::new(pool))))
        }
    }
}

async fn machine(context: &Context, known: &MachineView) -> Result<Option<Bearer>, RequestError> {
    let machines: Api<Machine> = context.worker(&known.namespace);
    // A Machine that can't be decoded does not show what its node is called.
    let machine = read::get(
        &machines,
        &known.name,
        |machine| Some(MachineView::from(machine)),
        |_| None,
    )
    .await;
    let Some(machine) = machine.map_err(failed("reading the Machine"))?.flatten() else {
        return Ok(None);
    };
    let machine = Arc::new(machine);
    let pool = pool_of(context, &machine).await?;
    Ok(Some(Bearer::Machine { machine, pool }))
}

/// The MachineDeployment that exists and that the Machine belongs to.
async fn pool_of(context: &Context, machine: &MachineView) -> Result<Option<PoolRef>, RequestError> {
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

async fn pool(context: &Context, namespace: &str, name: &str) -> Result<Option<PoolView>, RequestError> {
    let pools: Api<MachineDeployment> = context.worker(namespace);
    let pool = read::get(&pools, name, |md| PoolView::of(&md), PoolView::unreadable).await;
    pool.map_err(failed("reading the MachineDeployment"))
}
