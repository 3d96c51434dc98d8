//! Several replicas of each service share the work. Others take over when a replica ends, dies or is stopped.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::ListParams;
use osm_api::names;
use osm_api::rbac::{ClusterKind, Service};
use osm_runtime::replicas::membership::Live;
use osm_sim::watching::Watching;
use osm_testkit::installation::IDENTITIES;
use osm_testkit::{Options, check, wait_for};
use serde_json::{Value, json};

use crate::world::{DEADLINE, NAMESPACE, World};

const REPLICAS: usize = 3;
const POOLS: usize = 12;
/// What is promised is five seconds; the machine that tests run on may be busy with others.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(20);

fn pool(number: usize) -> String {
    format!("p{number}")
}

pub fn replica(service: Service, number: usize) -> String {
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
    pub async fn metric(&self, service: Service, number: usize, name: &str, of: &str) -> Result<f64> {
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
    pub async fn sees(&self, service: Service, replicas: &[usize], count: usize) -> Result<()> {
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

    /// Stamps these pools, and gives how long it took until the last of them was published.
    async fn rotate(&self, pools: &[String], revision: u64) -> Result<Duration> {
        let began = Instant::now();
        for pool in pools {
            self.stamp(pool, revision).await?;
        }
        for pool in pools {
            self.published(pool, revision).await?;
        }
        Ok(began.elapsed())
    }

    async fn published(&self, pool: &str, revision: u64) -> Result<()> {
        let what = format!("{pool} at revision {revision}");
        let published = wait_for(&what, PUBLISHED_WITHIN, async || {
            let secret = self.bootstrap(pool).await?;
            check(secret.annotations().get(names::MACHINE_DEPLOYMENT_REVISION) == Some(&revision.to_string()))
        });
        published
            .await
            .map_err(|error| error.context(self.installed.logs()))
    }
}

async fn world(services: &[Service]) -> Result<World> {
    let mut world = World::start_without_services(Options {
        audit: true,
        ..Options::default()
    })
    .await?;
    for service in Service::ALL {
        let count = if services.contains(&service) { REPLICAS } else { 1 };
        for number in 0..count {
            world.installed.start((service, number)).await?;
        }
    }
    world.installed.ready(DEADLINE).await?;
    for service in services {
        world.sees(*service, &[0, 1, 2], REPLICAS).await?;
    }
    world
        .accepted_profile("osp-tiny", "v1.0.0", "kubelet {{kubelet.version}}\n")
        .await?;
    for number in 0..POOLS {
        world.pool(&pool(number), "osp-tiny").await?;
        world.stamp(&pool(number), 1).await?;
    }
    for number in 0..POOLS {
        world.machine(&pool(number), 1).await?;
        world.says(&pool(number), "Published", true, "Published").await?;
    }
    Ok(world)
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_pools_and_take_over_those_of_one_that_ends_or_dies() -> Result<()> {
    let mut world = world(&Service::ALL).await?;
    let all: Vec<usize> = (0..REPLICAS).collect();
    for service in Service::ALL {
        let condition = match service {
            Service::OspController => "condition=\"Accepted\"",
            Service::OscController => "condition=\"Rendered\"",
            Service::SecretSyncer => "condition=\"Published\"",
            // It has no condition.
            Service::CsrApprover => continue,
        };
        let what = format!("each object to be counted by one {}", service.name());
        wait_for(&what, DEADLINE, async || {
            // The default profiles are created meanwhile.
            let objects = match service {
                Service::OspController => world.profiles().list(&ListParams::default()).await?.items.len(),
                _ => POOLS,
            };
            let (mut counted, mut owned) = (Vec::new(), 0.0);
            for number in &all {
                counted.push(world.metric(service, *number, "osm_objects", condition).await?);
                owned += world.metric(service, *number, "osm_owned_objects", "").await?;
            }
            // Besides pools, one of the secret-syncers looks after tokens without end.
            let expected = objects + usize::from(service == Service::SecretSyncer);
            ensure!(
                counted.iter().sum::<f64>() as usize == objects,
                "{counted:?} of {objects}"
            );
            ensure!(owned as usize == expected, "{owned} of {expected}");
            ensure!(
                counted.iter().all(|own| *own > 0.0),
                "{counted:?}: one has nothing to do"
            );
            println!("{}: {counted:?} objects", service.name());
            Ok(Some(()))
        })
        .await?;
    }
    assert_eq!(world.leases().await?.len(), Service::ALL.len() * REPLICAS);
    let watching = Watching::start(&world.plane, NAMESPACE)?;
    let observer = world.observe().await?;

    for service in [Service::OscController, Service::SecretSyncer] {
        let revision = if service == Service::OscController { 2 } else { 4 };
        // One ends, as in a rolling upgrade.
        let theirs = pools_of(service, 1, &all);
        ensure!(!theirs.is_empty());
        let began = Instant::now();
        let status = world.installed.terminate((service, 1), DEADLINE).await?;
        assert!(status.success());
        let ended = began.elapsed();
        let took = world.rotate(&theirs, revision).await?;
        println!(
            "{}: ended in {ended:?}; its {} pools rotated {took:?} later",
            replica(service, 1),
            theirs.len()
        );
        assert!(
            !world.leases().await?.contains(&replica(service, 1)),
            "it has given its Lease back"
        );
        world.sees(service, &[0, 2], 2).await?;

        // One dies.
        let theirs = pools_of(service, 2, &[0, 2]);
        ensure!(!theirs.is_empty());
        world.installed.kill9((service, 2))?;
        let took = world.rotate(&theirs, revision + 1).await?;
        println!(
            "{}: died; its {} pools rotated within {took:?}",
            replica(service, 2),
            theirs.len()
        );
        assert!(world.leases().await?.contains(&replica(service, 2)));
        world.sees(service, &[0], 1).await?;
        // And is started again, in the same pod and another one.
        world.installed.start((service, 2)).await?;
        world.installed.start((service, 1)).await?;
        world.sees(service, &all, REPLICAS).await?;
    }
    // Who came back works as before.
    let everything: Vec<String> = (0..POOLS).map(pool).collect();
    let took = world.rotate(&everything, 10).await?;
    println!("{POOLS} pools rotated by {REPLICAS} replicas in {took:?}");
    assert_eq!(observer.absences(), Vec::<String>::new());
    watching.caught_up().await;
    assert!(
        watching.observer().violations().is_empty(),
        "{:#?}",
        watching.observer().violations()
    );
    Ok(())
}

/// A replica that lacks a right steps back after ten seconds, and returns after it has had all rights for thirty.
const MOVED_WITHIN: Duration = Duration::from_secs(150);

/// What a replica lacks.
enum Lack {
    Settings,
    Right,
    Definitions,
}

/// Takes a verb that these tests do not need from Roles.
fn take_deletion_of_leases(objects: &mut [Value]) {
    let rules = objects
        .iter_mut()
        .filter_map(|object| object.get_mut("rules")?.as_array_mut());
    for rule in rules.flatten() {
        let is_of_leases = rule["resources"] == json!(["leases"]);
        if let Some(verbs) = rule["verbs"].as_array_mut().filter(|_| is_of_leases) {
            verbs.retain(|verb| *verb != "delete");
        }
    }
}

/// Name of a ServiceAccount that lacks a right.
const LESSER: &str = "lesser";

impl World {
    /// The objects with which a service has its identity and its rights.
    fn rights_of(&self, service: Service) -> Vec<Value> {
        let mut objects = osm_testkit::installation::manifests(self.installed.installation());
        objects.retain(|object| {
            let name = object["metadata"]["name"].as_str();
            name.is_some_and(|name| name.ends_with(service.name()))
        });
        objects
    }

    /// Takes a right from a service, or gives it back.
    async fn grant_deletion_of_leases(&self, service: Service, granted: bool) -> Result<()> {
        let mut objects = self.rights_of(service);
        if !granted {
            take_deletion_of_leases(&mut objects);
        }
        osm_testkit::installation::apply(&self.plane, &objects).await
    }

    /// The kubeconfig of an identity with all rights of a service but one.
    async fn lesser_kubeconfig(&self, service: Service) -> Result<String> {
        let mut objects = self.rights_of(service);
        take_deletion_of_leases(&mut objects);
        let lesser = json!(objects).to_string().replace(service.name(), LESSER);
        let lesser: Vec<Value> = serde_json::from_str(&lesser)?;
        osm_testkit::installation::apply(&self.plane, &lesser).await?;
        let path = self.plane.identity(IDENTITIES, LESSER).await?;
        Ok(std::fs::read_to_string(path)?)
    }

    /// The old replica goes on with every object, and the new one, which is not ready, has reconciled none.
    async fn keeps_everything(&self, service: Service, lack: &Lack, revision: u64) -> Result<()> {
        match lack {
            // It may not even read them, so it is not in step and has no Lease.
            Lack::Settings => {
                wait_for("the new replica to miss its settings", DEADLINE, async || {
                    let (code, body) = self.installed.get((service, 1), "/readyz").await?;
                    check(code == 503 && body.contains("not-there"))
                })
                .await?;
            }
            Lack::Right | Lack::Definitions => self.sees(service, &[0, 1], 2).await?,
        }
        let everything: Vec<String> = (0..POOLS).map(pool).collect();
        self.rotate(&everything, revision).await?;
        let expected = POOLS + usize::from(service == Service::SecretSyncer);
        wait_for("the old replica to count every object", DEADLINE, async || {
            let owned = self.metric(service, 0, "osm_owned_objects", "").await?;
            check(owned as usize == expected)
        })
        .await?;
        let owned = self.metric(service, 1, "osm_owned_objects", "").await?;
        let mut written = 0.0;
        for resource in [
            "secrets",
            "operatingsystemconfigs",
            "operatingsystemconfigs/status",
        ] {
            for verb in ["create", "update", "patch"] {
                let of = format!("resource=\"{resource}\",verb=\"{verb}\"");
                written += self.metric(service, 1, "osm_api_requests_total", &of).await?;
            }
        }
        ensure!(
            owned == 0.0 && written == 0.0,
            "{owned} objects, {written} writes"
        );
        ensure!(
            !self.installed.is_ready((service, 1)).await,
            "the new replica is ready"
        );
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_replica_that_is_not_ready_leaves_every_object_to_the_old_one() -> Result<()> {
    let mut world = world(&[]).await?;
    let crd = "operatingsystemconfigs.operatingsystemmanager.k8c.io";
    let mut revision = 2;
    for service in [Service::OscController, Service::SecretSyncer] {
        for lack in [Lack::Settings, Lack::Right, Lack::Definitions] {
            match lack {
                Lack::Settings => {
                    world
                        .installed
                        .start_with_settings((service, 1), "not-there")
                        .await?
                }
                Lack::Right => {
                    world.grant_deletion_of_leases(service, false).await?;
                    world.installed.start((service, 1)).await?;
                }
                Lack::Definitions => {
                    world
                        .drop_field("OperatingSystemConfig", crd, "kubeletKubeconfig")
                        .await?;
                    world.installed.start((service, 1)).await?;
                }
            }
            world.keeps_everything(service, &lack, revision).await?;
            revision += 1;
            // Once it is ready it gets its share.
            match lack {
                Lack::Settings => {
                    world.installed.kill9((service, 1))?;
                    world.installed.start((service, 1)).await?;
                }
                Lack::Right => world.grant_deletion_of_leases(service, true).await?,
                Lack::Definitions => world.install_crds().await?,
            }
            wait_for("the new replica to get its share", DEADLINE, async || {
                check(world.metric(service, 1, "osm_owned_objects", "").await? > 0.0)
            })
            .await
            .map_err(|error| error.context(world.installed.logs()))?;
            let status = world.installed.terminate((service, 1), DEADLINE).await?;
            assert!(status.success());
            world.sees(service, &[0], 1).await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ready_replica_that_loses_a_right_gives_its_objects_to_the_other_one() -> Result<()> {
    let mut world = world(&[]).await?;
    let watching = Watching::start(&world.plane, NAMESPACE)?;
    let observer = world.observe().await?;
    let mut revision = 2;
    for service in [Service::OscController, Service::SecretSyncer] {
        let whole = world.installed.kubeconfig(service, ClusterKind::Management);
        let whole = whole.or_else(|_| world.installed.kubeconfig(service, ClusterKind::Worker))?;
        let whole = std::fs::read_to_string(whole)?;
        world.installed.set_own_kubeconfig((service, 1), &whole)?;
        world.installed.start((service, 1)).await?;
        let has_share = async |world: &World| {
            wait_for("the second replica to get its share", MOVED_WITHIN, async || {
                check(world.metric(service, 1, "osm_owned_objects", "").await? > 0.0)
            })
            .await
            .map_err(|error| error.context(world.installed.logs()))
        };
        has_share(&world).await?;
        let theirs = pools_of(service, 1, &[0, 1]);
        ensure!(!theirs.is_empty());
        world.rotate(&theirs, revision).await?;

        let lesser = world.lesser_kubeconfig(service).await?;
        world.installed.set_own_kubeconfig((service, 1), &lesser)?;
        wait_for("the second replica to miss a right", DEADLINE, async || {
            let (code, body) = world.installed.get((service, 1), "/readyz").await?;
            check(code == 503 && body.contains("missing: delete leases"))
        })
        .await
        .map_err(|error| error.context(world.installed.logs()))?;
        let all = POOLS + usize::from(service == Service::SecretSyncer);
        wait_for(
            "the first replica to own every object",
            MOVED_WITHIN,
            async || {
                let (first, second) = (
                    world.metric(service, 0, "osm_owned_objects", "").await?,
                    world.metric(service, 1, "osm_owned_objects", "").await?,
                );
                ensure!(first as usize == all && second == 0.0, "{first} and {second}");
                Ok(Some(()))
            },
        )
        .await
        .map_err(|error| error.context(world.installed.logs()))?;
        world.rotate(&theirs, revision + 1).await?;
        ensure!(
            !world.installed.is_ready((service, 1)).await,
            "the second replica is ready"
        );

        world.installed.set_own_kubeconfig((service, 1), &whole)?;
        has_share(&world).await?;
        world.rotate(&theirs, revision + 2).await?;
        revision += 3;
        let status = world.installed.terminate((service, 1), DEADLINE).await?;
        assert!(status.success());
        world.sees(service, &[0], 1).await?;
    }
    assert_eq!(observer.absences(), Vec::<String>::new());
    watching.caught_up().await;
    assert!(
        watching.observer().violations().is_empty(),
        "{:#?}",
        watching.observer().violations()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_was_stopped_past_its_lease_breaks_nothing_when_it_goes_on() -> Result<()> {
    let services = [Service::OscController, Service::SecretSyncer];
    let world = world(&services).await?;
    let everything: Vec<String> = (0..POOLS).map(pool).collect();
    let watching = Watching::start(&world.plane, NAMESPACE)?;
    let observer = world.observe().await?;
    let mut revision = 2;
    let mut waited = BTreeMap::new();
    for round in 0..4 {
        let service = services[round % 2];
        // In the middle of a rotation.
        let theirs = pools_of(service, 0, &[0, 1, 2]);
        ensure!(!theirs.is_empty());
        for pool in &everything {
            world.stamp(pool, revision).await?;
        }
        if round >= 2 {
            let first = theirs.first().context("a pool")?;
            world.published(first, revision).await?;
        }
        world.installed.process((service, 0))?.stop()?;
        let stopped = Instant::now();
        for pool in &everything {
            world.published(pool, revision).await?;
        }
        waited.insert(round, stopped.elapsed());
        world.sees(service, &[1, 2], 2).await?;
        // The others go on without it.
        revision += 1;
        world.rotate(&everything, revision).await?;
        world.installed.process((service, 0))?.go_on()?;
        world.sees(service, &[0, 1, 2], REPLICAS).await?;
        revision += 1;
        world.rotate(&everything, revision).await?;
        revision += 1;
    }
    println!("with one stopped, all were published within {waited:?}");
    let last = revision - 1;
    for pool in &everything {
        world.machine(pool, last).await?;
    }
    let refused = world.plane.audit_events()?.into_iter();
    let refused = refused
        .filter(|event| event.code == 409 && event.resource != "leases")
        .count();
    println!("{refused} writes were refused as stale");
    assert_eq!(observer.absences(), Vec::<String>::new());
    watching.caught_up().await;
    assert!(
        watching.observer().violations().is_empty(),
        "{:#?}",
        watching.observer().violations()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_replica_makes_hardly_any_requests() -> Result<()> {
    let world = World::start(Options {
        audit: true,
        ..Options::default()
    })
    .await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    world.machine("p", 1).await?;
    world.says("p", "Published", true, "Published").await?;
    // Watches end by themselves every few minutes, and are begun anew.
    let asked = || -> Result<usize> {
        let ours = |user: &str| Service::ALL.iter().any(|service| user.ends_with(service.name()));
        let all = world.plane.audit_events()?;
        Ok(all
            .iter()
            .filter(|event| ours(&event.user) && event.verb != "watch")
            .count())
    };
    // Renewing a Lease each second, or asking for anything every few seconds, never leaves a pause this long.
    let (mut last, mut since) = (asked()?, Instant::now());
    wait_for(
        "a minute without a request",
        Duration::from_secs(300),
        async || {
            tokio::time::sleep(Duration::from_millis(500)).await; // reading the audit log takes longer than waiting
            let now = asked()?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
            check(since.elapsed() > Duration::from_secs(60))
        },
    )
    .await
}
