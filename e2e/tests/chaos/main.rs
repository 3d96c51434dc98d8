//! Rotates pools on a real API server while requests fail and services are killed, upgraded and rolled back. An observer that knows only
//! the invariants of docs/rotation.md watches. At the end everything must converge, and the services must become idle.
//!
//! `OSM_CHAOS_SEED` repeats all random choices of a run, except for timing; `OSM_CHAOS_ROTATIONS` is how long it lasts;
//! `OSM_CHAOS_OTHER_BIN_DIR` is the folder of the build to upgrade to, else it is the same build:
//!
//!     OSM_CHAOS_SEED=1 OSM_CHAOS_ROTATIONS=50 cargo test -p osm-tests --test chaos -- --ignored --nocapture

// The lints' exceptions for tests don't reach helpers of tests.
#![allow(clippy::expect_used, clippy::indexing_slicing)]

mod proxy;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::TryStreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use osm_api::config::OperatingSystemConfig;
use osm_api::content::ContentView;
use osm_api::machine_deployment::MachineDeployment;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::{Installation, Service};
use osm_sim::invariants::What;
use osm_sim::watching::Watching;
use osm_testkit::installation::{self, Installed};
use osm_testkit::{ControlPlane, check, fixtures, wait_for};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use self::proxy::FaultyProxy;

/// Where the services are installed.
const NAMESPACE: &str = "osm";
const PROFILE: &str = "osp-tiny";
const LOGIN: &str = "login";
/// Pools that rotate side by side.
const POOLS: u32 = 12;
/// Requests out of a thousand that something happens to.
const FAULTS: u32 = 80;
/// Consecutive faults, kills and back-offs may take this long, also on a busy machine.
const CONVERGES_WITHIN: Duration = Duration::from_secs(900);

/// Services that write nothing for so long have nothing left to do.
const IDLE: Duration = Duration::from_secs(30);

/// What pools and users share.
struct Site {
    plane: ControlPlane,
    watching: Watching,
    /// Rotations that are still to be begun.
    left: AtomicI64,
}

/// A number from the environment.
fn given(name: &str) -> Option<u32> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number in the environment"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes five minutes; .ci/nightly runs it"]
async fn rotations_keep_all_invariants_while_requests_fail_and_services_are_killed() -> Result<()> {
    let seed = given("OSM_CHAOS_SEED").unwrap_or_else(|| rand::rng().random_range(0..1_000_000));
    let rotations = given("OSM_CHAOS_ROTATIONS").unwrap_or(1000);
    println!("OSM_CHAOS_SEED={seed} OSM_CHAOS_ROTATIONS={rotations}");
    let seed = u64::from(seed);

    let plane = ControlPlane::start(osm_testkit::Options::default()).await?;
    let faults = Arc::<AtomicU32>::default();
    let (mut installed, _proxies) = install(&plane, seed, &faults).await?;
    let watching = Watching::start(&plane, NAMESPACE)?;
    installed.start_all().await?;
    faults.store(FAULTS, Ordering::Relaxed);

    let site = Arc::new(Site {
        plane,
        watching,
        left: AtomicI64::new(i64::from(rotations)),
    });
    // Not tasks: the asynchronous closures in them can't be told to be `Send`.
    let live = |number| {
        let pool = Pool {
            site: site.clone(),
            name: format!("pool-{number}"),
            random: StdRng::seed_from_u64(seed.wrapping_add(u64::from(number) << 32)),
            revision: 0,
        };
        pool.live()
    };
    let pools: FuturesUnordered<_> = (0..POOLS).map(live).collect();
    let outcome = tokio::select! {
        lived = pools.try_for_each(async |()| Ok(())) => lived,
        ended = disturb(&mut installed, &site.left, StdRng::seed_from_u64(seed)) => ended,
        () = edit(&site, StdRng::seed_from_u64(seed ^ 0x5eed)) => Ok(()),
    };
    outcome.map_err(|error| error.context(installed.logs()))?;

    faults.store(0, Ordering::Relaxed);
    // One may have been killed a moment ago.
    for service in Service::ALL {
        if installed.process(service).is_err() {
            installed.start(service).await?;
        }
    }
    let what = "what was made for pools that are gone to go";
    wait_for(what, CONVERGES_WITHIN, async || check(site.nothing_left().await?)).await?;
    let became_idle = tokio::time::timeout(CONVERGES_WITHIN, site.becomes_idle());
    became_idle.await.context("the services write on")?;
    site.watching.observer().settled(Timestamp::now());
    println!("{} changes observed", site.watching.changes());
    let violations = site.watching.observer().violations().to_vec();
    assert!(violations.is_empty(), "{violations:#?}");
    Ok(())
}

/// Installs the services, each with a proxy between it and the API server.
async fn install(
    plane: &ControlPlane,
    seed: u64,
    faults: &Arc<AtomicU32>,
) -> Result<(Installed, Vec<FaultyProxy>)> {
    let installation = Installation {
        namespace: NAMESPACE.to_owned(),
        ..Installation::default()
    };
    let installed = Installed::install(plane, installation.clone(), &installation::binaries()?).await?;
    let settings =
        json!({"containerd": {"registries": [{"host": "registry.example", "credentials": {"name": LOGIN}}]}});
    let first = [
        login(0),
        installation::settings(&installation, &settings.to_string()),
        fixtures::profile(NAMESPACE, PROFILE, "v1.0.0", "text 0\n"),
    ];
    installation::apply(plane, &first).await?;
    let mut proxies = Vec::new();
    for (number, service) in (1_u64..).zip(Service::ALL) {
        let proxy = FaultyProxy::start(plane, seed.wrapping_mul(31).wrapping_add(number), faults).await?;
        let cluster = *service.clusters().first().context("a cluster")?;
        let path = installed.kubeconfig(service, cluster)?;
        let mut kubeconfig: Value = serde_saphyr::from_str(&std::fs::read_to_string(path)?)?;
        kubeconfig["clusters"][0]["cluster"] = json!({"server": format!("http://{}", proxy.address)});
        installed.replace_kubeconfig(service, cluster, &kubeconfig.to_string())?;
        proxies.push(proxy);
    }
    Ok((installed, proxies))
}

/// A registry's credentials.
fn login(round: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": LOGIN, "namespace": CLOUD_INIT_SETTINGS},
        "stringData": {"username": "user", "password": format!("password {round}")}})
}

/// Kills services, each at any moment, until one does not start any more. Now and then there is an upgrade or a rollback: from then on, a
/// service that starts is of the other build.
async fn disturb(installed: &mut Installed, left: &AtomicI64, mut random: StdRng) -> Result<()> {
    let other = std::env::var_os("OSM_CHAOS_OTHER_BIN_DIR").map(PathBuf::from);
    let mut other = other.unwrap_or_else(|| installed.binaries.clone());
    loop {
        tokio::time::sleep(Duration::from_millis(random.random_range(500..5000))).await;
        let service = Service::ALL[random.random_range(0..Service::ALL.len())];
        if random.random_bool(0.1) {
            std::mem::swap(&mut installed.binaries, &mut other);
            installed.terminate(service, CONVERGES_WITHIN).await?;
        } else {
            installed.kill9(service)?;
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(0..1500))).await;
        installed.start(service).await?;
        // However slow the computer is, a rotation ends between two kills.
        let before = left.load(Ordering::Relaxed);
        while left.load(Ordering::Relaxed) == before {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A pool gets new content of the same revision less than twenty times a day; beyond that it would wait.
const EDITS: u32 = 15;

/// Edits profile and credentials now and then.
async fn edit(site: &Site, mut random: StdRng) {
    for round in 1..=EDITS {
        tokio::time::sleep(Duration::from_millis(random.random_range(2000..9000))).await;
        let object = match random.random_bool(0.5) {
            true => login(round),
            false => {
                let text = format!("text {round}\n");
                fixtures::profile(NAMESPACE, PROFILE, &format!("v1.0.{round}"), &text)
            }
        };
        // The next edit is as good.
        let _ = installation::apply(&site.plane, &[object]).await;
    }
    std::future::pending().await
}

impl Site {
    fn secrets(&self) -> Result<Api<Secret>> {
        Ok(Api::namespaced(self.plane.admin()?, CLOUD_INIT_SETTINGS))
    }

    fn machine_deployments(&self) -> Result<Api<MachineDeployment>> {
        Ok(Api::namespaced(self.plane.admin()?, "kube-system"))
    }

    /// Until nothing has changed for a while.
    async fn becomes_idle(&self) {
        let mut before = u64::MAX;
        while before != self.watching.changes() {
            before = self.watching.changes();
            tokio::time::sleep(IDLE).await;
        }
    }

    /// Whether all that is labelled for a pool is for one that is there.
    async fn nothing_left(&self) -> Result<bool> {
        let living: Vec<String> = self
            .machine_deployments()?
            .list(&Default::default())
            .await?
            .iter()
            .map(|md| names::pool_id("kube-system", &md.name_any(), &md.uid().unwrap_or_default()))
            .collect();
        let secrets = self.secrets()?.list(&Default::default()).await?;
        Ok(secrets
            .iter()
            .filter_map(|secret| secret.labels().get(names::POOL))
            .all(|pool| living.contains(pool)))
    }
}

/// A pool, and whoever changes it.
struct Pool {
    site: Arc<Site>,
    name: String,
    random: StdRng,
    revision: u64,
}

impl Pool {
    async fn live(mut self) -> Result<()> {
        self.create().await?;
        while self.site.left.fetch_sub(1, Ordering::Relaxed) > 0 {
            match self.random.random_range(0..100) {
                0..6 => {
                    let gone = self.site.machine_deployments()?;
                    gone.delete(&self.name, &DeleteParams::default()).await?;
                    self.pause(2000).await;
                    self.create().await?;
                }
                6..12 => {
                    self.damage().await?;
                    self.rotate(false).await?;
                }
                12..20 => self.rotate(false).await?,
                _ => self.rotate(true).await?,
            }
        }
        Ok(())
    }

    async fn pause(&mut self, most: u64) {
        tokio::time::sleep(Duration::from_millis(self.random.random_range(0..most))).await;
    }

    async fn create(&mut self) -> Result<()> {
        let object = fixtures::machine_deployment(&self.name, PROFILE);
        installation::apply(&self.site.plane, &[object]).await?;
        self.revision = 1;
        self.pause(300).await;
        self.stamp().await
    }

    /// A new revision, as machine-controller makes it; with a change in the template, which it makes one of, or by itself.
    async fn rotate(&mut self, template: bool) -> Result<()> {
        self.revision += 1;
        if template {
            let kubelet = format!("1.34.{}", self.revision);
            self.patch(&json!({"spec": {"template": {"spec": {"versions": {"kubelet": kubelet}}}}}))
                .await?;
            self.pause(300).await;
        }
        self.stamp().await
    }

    async fn patch(&self, patch: &Value) -> Result<MachineDeployment> {
        let (api, how) = (self.site.machine_deployments()?, PatchParams::default());
        Ok(api.patch(&self.name, &how, &Patch::Merge(patch)).await?)
    }

    /// Stamps the revision, and waits until it is published. The observer knows whether machines can be made of it then.
    async fn stamp(&mut self) -> Result<()> {
        let revision = self.revision.to_string();
        let stamp = json!({"metadata": {"annotations": {names::REVISION: revision}}});
        let machine_deployment = self.patch(&stamp).await?;
        let uid = machine_deployment.uid().context("a uid")?;
        let configs: Api<OperatingSystemConfig> = Api::namespaced(self.site.plane.admin()?, NAMESPACE);
        let config = names::config_name(&self.name, "kube-system");
        let what = format!("{} at revision {revision}", self.name);
        wait_for(&what, CONVERGES_WITHIN, async || {
            let Some(config) = configs.get_opt(&config).await? else {
                return Ok(None);
            };
            let is_of_this = ContentView::of(&config).belongs_to(&uid);
            let published = config.status.and_then(|status| status.published);
            check(is_of_this && published.is_some_and(|published| published.revision == revision))
        })
        .await
    }

    /// Somebody deletes the bootstrap Secret, and the observer is told who it was.
    async fn damage(&self) -> Result<()> {
        let secrets = self.site.secrets()?;
        let name = names::bootstrap_secret_name(&self.name, "kube-system");
        let Some(secret) = secrets.get_opt(&name).await? else {
            return Ok(());
        };
        let uid = secret.uid().unwrap_or_default();
        let watching = &self.site.watching;
        watching
            .observer()
            .interferes("Secret", &name, &uid, What::Deleted);
        let only_this = DeleteParams::default().preconditions(Preconditions {
            uid: Some(uid),
            resource_version: None,
        });
        // Otherwise, somebody was faster.
        let _ = secrets.delete(&name, &only_this).await;
        Ok(())
    }
}
