//! What a pool costs the API server, in requests.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use osm_api::rbac::Service;
use osm_testkit::control_plane::AuditEvent;
use osm_testkit::{check, wait_for};

use crate::shared::in_shared_world;
use crate::world::{DEADLINE, World};

const POOLS: usize = 12;
/// secret-syncer has the cluster confirm its identity every five seconds while it deletes.
const CONFIRMATIONS: usize = 4;

/// Requests by verb and resource, of the services that reconcile pools. Watches and Leases belong to no pool.
type Requests = BTreeMap<String, usize>;

impl World {
    fn requests_so_far(&self) -> Result<Requests> {
        let mut requests = Requests::new();
        let is_of_pools = |event: &&AuditEvent| {
            let services = [Service::OscController, Service::SecretSyncer];
            let ours = services
                .iter()
                .any(|service| event.user.ends_with(service.name()));
            ours && event.verb != "watch" && event.resource != "leases"
        };
        for event in self.plane.audit_events()?.iter().filter(is_of_pools) {
            *requests
                .entry(format!("{} {}", event.verb, event.resource))
                .or_default() += 1;
        }
        Ok(requests)
    }
}

fn since(now: &Requests, before: &Requests) -> Requests {
    let new = |(what, count): (&String, &usize)| {
        let count = count - before.get(what).unwrap_or(&0);
        (count > 0).then(|| (what.clone(), count))
    };
    now.iter().filter_map(new).collect()
}

#[test]
fn a_deleted_pool_costs_ten_requests_and_no_list() -> Result<()> {
    in_shared_world(async |world| {
        world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
        let pools: Vec<String> = (0..POOLS).map(|number| format!("p{number}")).collect();
        for pool in &pools {
            world.pool(pool, "osp-tiny").await?;
            world.stamp(pool, 1).await?;
        }
        for pool in &pools {
            world.says(pool, "Published", true, "Published").await?;
        }
        let (before, cpu) = (world.requests_so_far()?, world.plane.usage().await?.0.cpu_seconds);
        for pool in &pools {
            world.delete(&world.pools(), pool).await?;
        }
        wait_for("everything to be undone", DEADLINE, async || {
            let configs = world.configs().list(&Default::default()).await?;
            check(world.made().await?.is_empty() && configs.items.is_empty())
        })
        .await?;
        let requests = since(&world.requests_so_far()?, &before);
        let all: usize = requests.values().sum();
        let cpu = world.plane.usage().await?.0.cpu_seconds - cpu;
        println!("{all} requests for {POOLS} deleted pools, {cpu:.2} s of kube-apiserver: {requests:#?}");
        ensure!(all <= 10 * POOLS + CONFIRMATIONS, "{all} requests: {requests:#?}");
        let lists: Vec<_> = requests.keys().filter(|what| what.starts_with("list")).collect();
        ensure!(lists.is_empty(), "{lists:?}");
        Ok(())
    })
}
