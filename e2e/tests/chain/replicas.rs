//! Several replicas of a service share the work. Others take over when a replica ends or dies, and one that
//! is not ready owns nothing.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::ListParams;
use osm_api::names;
use osm_api::rbac::Service;
use osm_runtime::replicas::membership::Live;
use osm_testkit::{check, installation, wait_for};
use serde_json::json;

use crate::shared::in_shared_world;
use crate::world::{DEADLINE, NAMESPACE, World};

/// Those with several replicas.
const SERVICES: [Service; 2] = [Service::OscController, Service::SecretSyncer];
const POOLS: usize = 12;

fn pool(number: usize) -> String {
    format!("p{number}")
}

fn replica(service: Service, number: usize) -> String {
    format!("{}-{number}", service.name())
}

/// The pools that belong to one of these replicas of a service.
fn pools_of(service: Service, number: usize, all: &[usize]) -> Vec<String> {
    let live: Live = all.iter().map(|number| replica(service, *number)).collect();
    let owned = |pool: &String| {
        live.owner(&names::config_name(pool, "kube-system")) == Some(&replica(service, number))
    };
    (0..POOLS).map(pool).filter(owned).collect()
}

impl World {
    /// Values of a metric of one replica, summed over labels that contain `of`.
    async fn metric(&self, service: Service, number: usize, name: &str, of: &str) -> Result<f64> {
        let (_, text) = self.installed.get((service, number), "/metrics").await?;
        let lines = text.lines().filter(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(['{', ' ']))
                && line.contains(of)
        });
        lines
            .map(|line| {
                line.rsplit(' ')
                    .next()
                    .unwrap_or_default()
                    .parse::<f64>()
                    .context("a number")
            })
            .sum()
    }

    async fn leases(&self) -> Result<Vec<String>> {
        let leases = self
            .api::<Lease>(NAMESPACE)
            .list(&ListParams::default().labels(names::REPLICA_OF))
            .await?;
        Ok(leases.items.iter().map(ResourceExt::name_any).collect())
    }

    /// Waits until each of these replicas of a service sees so many.
    async fn sees(&self, service: Service, replicas: &[usize], count: usize) -> Result<()> {
        for number in replicas {
            wait_for(
                &format!("{} to see {count} replicas", replica(service, *number)),
                DEADLINE,
                async || {
                    let seen = self.metric(service, *number, "osm_replicas", "").await?;
                    check(seen as usize == count)
                },
            )
            .await
            .map_err(|error| error.context(self.installed.logs()))?;
        }
        Ok(())
    }

    /// Stamps these pools, and waits until they are published.
    async fn rotate(&self, pools: &[String], revision: u64) -> Result<()> {
        for pool in pools {
            self.stamp(pool, revision).await?;
        }
        for pool in pools {
            self.published(pool, revision).await?;
        }
        Ok(())
    }

    async fn published(&self, pool: &str, revision: u64) -> Result<()> {
        let what = format!("{pool} at revision {revision}");
        let published = wait_for(&what, DEADLINE, async || {
            let secret = self.bootstrap(pool).await?;
            check(secret.annotations().get(names::MACHINE_DEPLOYMENT_REVISION) == Some(&revision.to_string()))
        });
        published
            .await
            .map_err(|error| error.context(self.installed.logs()))
    }
}

/// Two replicas of each of [`SERVICES`], and pools that are published.
async fn begin(world: &mut World) -> Result<()> {
    for service in SERVICES {
        world.installed.start((service, 1)).await?;
    }
    world.installed.ready(DEADLINE).await?;
    for service in SERVICES {
        world.sees(service, &[0, 1], 2).await?;
    }
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    for number in 0..POOLS {
        world.pool(&pool(number), "osp-tiny").await?;
        world.stamp(&pool(number), 1).await?;
    }
    for number in 0..POOLS {
        world.says(&pool(number), "Published", true, "Published").await?;
    }
    Ok(())
}

#[test]
fn replicas_share_pools_and_take_over_and_one_that_is_not_ready_owns_none() -> Result<()> {
    in_shared_world(replicas_come_and_go)
}

/// The same happens to both services at once, so that the pools of both are taken over.
async fn replicas_come_and_go(world: &mut World) -> Result<()> {
    begin(world).await?;
    let observer = world.observe().await?;
    let mut theirs = Vec::new();
    for service in SERVICES {
        share(world, service, &[0, 1]).await?;
        let own = pools_of(service, 1, &[0, 1]);
        ensure!(!own.is_empty());
        theirs.extend(own);
    }
    // One ends, as in a rolling upgrade, and gives its Lease back.
    for service in SERVICES {
        let status = world.installed.terminate((service, 1), DEADLINE).await?;
        assert!(status.success());
        assert!(!world.leases().await?.contains(&replica(service, 1)));
    }
    world.rotate(&theirs, 2).await?;
    for service in SERVICES {
        world.installed.start((service, 1)).await?;
        world.sees(service, &[0, 1], 2).await?;
    }

    // One dies, and its Lease is left.
    for service in SERVICES {
        world.installed.kill9((service, 1))?;
    }
    world.rotate(&theirs, 3).await?;
    for service in SERVICES {
        world.sees(service, &[0], 1).await?;
        world.installed.start((service, 1)).await?;
        world.sees(service, &[0, 1], 2).await?;
    }

    // A new one lacks a permission, which it says. The others go on with all pools.
    let everything: Vec<String> = (0..POOLS).map(pool).collect();
    for service in SERVICES {
        world.may_delete_leases(service, false).await?;
        world.installed.start((service, 2)).await?;
        world.sees(service, &[0, 1, 2], 3).await?;
    }
    world.rotate(&everything, 4).await?;
    for service in SERVICES {
        assert!(!world.installed.is_ready((service, 2)).await);
        assert_eq!(world.metric(service, 2, "osm_owned_objects", "").await?, 0.0);
        for verb in ["create", "update", "patch"] {
            for resource in [
                "secrets",
                "operatingsystemconfigs",
                "operatingsystemconfigs/status",
            ] {
                let of = format!("resource=\"{resource}\",verb=\"{verb}\"");
                let written = world.metric(service, 2, "osm_api_requests_total", &of).await?;
                assert_eq!(written, 0.0, "{of}");
            }
        }
    }
    // Once it is ready, it has its share.
    for service in SERVICES {
        world.may_delete_leases(service, true).await?;
        share(world, service, &[0, 1, 2]).await?;
    }
    world.rotate(&everything, 5).await?;
    assert_eq!(observer.absent(), Vec::<String>::new());
    for service in SERVICES {
        for further in [1, 2] {
            world.installed.terminate((service, further), DEADLINE).await?;
        }
    }
    Ok(())
}

/// Waits until each of these replicas owns pools, and each pool has one owner.
async fn share(world: &World, service: Service, replicas: &[usize]) -> Result<()> {
    wait_for("each pool to have one owner", DEADLINE, async || {
        let mut owned = Vec::new();
        for number in replicas {
            owned.push(world.metric(service, *number, "osm_owned_objects", "").await? as usize);
        }
        ensure!(
            owned.iter().sum::<usize>() == POOLS && !owned.contains(&0),
            "{owned:?} of {POOLS}"
        );
        Ok(Some(()))
    })
    .await
    .map_err(|error| error.context(world.installed.logs()))
}

impl World {
    /// Takes a permission from a service that this test does not need, or gives it back.
    async fn may_delete_leases(&self, service: Service, allowed: bool) -> Result<()> {
        let mut objects = installation::manifests(self.installed.installation());
        objects.retain(|object| {
            let name = object["metadata"]["name"].as_str();
            object["rules"].is_array() && name.is_some_and(|name| name.ends_with(service.name()))
        });
        let rules = objects
            .iter_mut()
            .filter_map(|object| object["rules"].as_array_mut());
        for rule in rules
            .flatten()
            .filter(|rule| rule["resources"] == json!(["leases"]))
        {
            let verbs = rule["verbs"].as_array_mut().context("verbs")?;
            verbs.retain(|verb| allowed || *verb != "delete");
        }
        installation::apply(&self.plane, &objects).await
    }
}
