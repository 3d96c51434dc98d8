//! Rotates pools on a real API server while requests fail and services are killed. A watch looks for
//! bootstrap Secrets that are absent, and a machine of each revision boots: it fetches its document with its
//! own token, as do those that booted before. At the end everything must converge, and the services must
//! become idle.
//!
//! `OSM_CHAOS_SEED` repeats all random choices of a run, except for timing, and `OSM_CHAOS_ROTATIONS` is how
//! long it lasts:
//!
//!     OSM_CHAOS_SEED=1 OSM_CHAOS_ROTATIONS=50 cargo test -p osm-tests --test chaos -- --ignored --nocapture

// The lints' exceptions for tests don't reach helpers of tests.
#![allow(clippy::expect_used, clippy::indexing_slicing)]

mod proxy;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::TryStreamExt;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use osm_api::config::OperatingSystemConfig;
use osm_api::machine_deployment::MachineDeployment;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::{Installation, Service};
use osm_testkit::fixtures::{self, UserData};
use osm_testkit::installation::{self, Installed};
use osm_testkit::secret_watch::SecretWatch;
use osm_testkit::{ControlPlane, check, machine_controller, provisioning, wait_for};
use parking_lot::Mutex;
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
    /// The ids of pools that were deleted.
    deleted: Mutex<BTreeSet<String>>,
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
    let secrets = SecretWatch::start(plane.admin()?).await?;
    installed.start_all().await?;
    faults.store(FAULTS, Ordering::Relaxed);

    let site = Arc::new(Site {
        plane,
        deleted: Mutex::default(),
        left: AtomicI64::new(i64::from(rotations)),
    });
    // Not tasks: the asynchronous closures in them can't be told to be `Send`.
    let live = |number| {
        let pool = Pool {
            site: site.clone(),
            name: format!("pool-{number}"),
            random: StdRng::seed_from_u64(seed.wrapping_add(u64::from(number) << 32)),
            uid: String::new(),
            revision: 0,
            booted: None,
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
    wait_for("everything to converge", CONVERGES_WITHIN, async || {
        let left = site.unsettled().await?;
        ensure!(left.is_empty(), "{left:#?}");
        Ok(Some(()))
    })
    .await?;
    wait_for("the services to become idle", CONVERGES_WITHIN, async || {
        let before = site.versions().await?;
        tokio::time::sleep(IDLE).await;
        check(site.versions().await? == before)
    })
    .await?;
    let mut absences = secrets.absences();
    let deleted = site.deleted.lock();
    absences.retain(|absence| !deleted.contains(&absence.pool));
    assert!(absences.is_empty(), "{absences:#?}");
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
        let path = installed.kubeconfig(service)?;
        let mut kubeconfig: Value = serde_saphyr::from_str(&std::fs::read_to_string(path)?)?;
        let ca = BASE64_STANDARD.encode(&proxy.certificate);
        kubeconfig["clusters"][0]["cluster"] =
            json!({"server": format!("https://{}", proxy.address), "certificate-authority-data": ca});
        std::fs::write(path, kubeconfig.to_string())?;
        proxies.push(proxy);
    }
    Ok((installed, proxies))
}

/// A registry's credentials.
fn login(round: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": LOGIN, "namespace": CLOUD_INIT_SETTINGS},
        "stringData": {"username": "user", "password": format!("password {round}")}})
}

/// Kills services, each at any moment, until one does not start any more.
async fn disturb(installed: &mut Installed, left: &AtomicI64, mut random: StdRng) -> Result<()> {
    loop {
        tokio::time::sleep(Duration::from_millis(random.random_range(500..5000))).await;
        let service = Service::ALL[random.random_range(0..Service::ALL.len())];
        installed.kill9(service)?;
        tokio::time::sleep(Duration::from_millis(random.random_range(0..1500))).await;
        installed.start(service).await?;
        // However slow the computer is, a rotation ends between two kills.
        let before = left.load(Ordering::Relaxed);
        while left.load(Ordering::Relaxed) == before {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A pool may have fifty documents a day; beyond that new content waits. Each revision has one of its own,
/// and each edit.
const MAX_REVISIONS: u64 = 30;
const EDITS: u32 = 8;

/// Edits profile and credentials now and then.
async fn edit(site: &Site, mut random: StdRng) {
    for round in 1..=EDITS {
        tokio::time::sleep(Duration::from_millis(random.random_range(2000..9000))).await;
        let text = format!("text {round}\n");
        let profile = fixtures::profile(NAMESPACE, PROFILE, &format!("v1.0.{round}"), &text);
        // The next edit is as good.
        let _ = installation::apply(&site.plane, &[login(round), profile]).await;
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

    fn configs(&self) -> Result<Api<OperatingSystemConfig>> {
        Ok(Api::namespaced(self.plane.admin()?, NAMESPACE))
    }

    /// Of all that the services write for pools.
    async fn versions(&self) -> Result<Vec<Option<String>>> {
        let secrets = self.secrets()?.list(&Default::default()).await?;
        let configs = self.configs()?.list(&Default::default()).await?;
        let secrets = secrets.iter().map(ResourceExt::resource_version);
        Ok(secrets
            .chain(configs.iter().map(ResourceExt::resource_version))
            .collect())
    }

    /// What is not as it should be: a pool with a problem, or a Secret of one that is gone.
    async fn unsettled(&self) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        for config in self.configs()?.list(&Default::default()).await? {
            let conditions = config.status.iter().flat_map(|status| &status.conditions);
            let wrong = conditions.filter(|condition| condition.status != "True");
            problems.extend(wrong.map(|condition| format!("{}: {condition:?}", config.name_any())));
        }
        let deleted = self.deleted.lock().clone();
        for secret in self.secrets()?.list(&Default::default()).await? {
            let pool = secret.labels().get(names::POOL);
            if pool.is_some_and(|pool| deleted.contains(pool)) {
                problems.push(format!("{} is left", secret.name_any()));
            }
        }
        Ok(problems)
    }
}

/// A pool, and the task that changes it.
struct Pool {
    site: Arc<Site>,
    name: String,
    random: StdRng,
    uid: String,
    revision: u64,
    /// What the last machine has booted with.
    booted: Option<UserData>,
}

impl Pool {
    async fn live(mut self) -> Result<()> {
        self.create().await?;
        while self.site.left.fetch_sub(1, Ordering::Relaxed) > 0 {
            if self.revision >= MAX_REVISIONS || self.random.random_bool(0.06) {
                self.delete().await?;
                self.pause(2000).await;
                self.create().await?;
            } else {
                self.rotate().await?;
            }
        }
        Ok(())
    }

    async fn pause(&mut self, most: u64) {
        tokio::time::sleep(Duration::from_millis(self.random.random_range(0..most))).await;
    }

    async fn delete(&mut self) -> Result<()> {
        self.site.deleted.lock().insert(self.id());
        let pools = self.site.machine_deployments()?;
        pools.delete(&self.name, &DeleteParams::default()).await?;
        self.booted = None;
        Ok(())
    }

    async fn create(&mut self) -> Result<()> {
        let object = fixtures::machine_deployment(&self.name, PROFILE);
        installation::apply(&self.site.plane, &[object]).await?;
        self.revision = 1;
        self.pause(300).await;
        self.stamp().await
    }

    /// Changes the template, of which machine-controller makes a revision a moment later.
    async fn rotate(&mut self) -> Result<()> {
        self.revision += 1;
        let kubelet = format!("1.34.{}", self.revision);
        let change = json!({"spec": {"template": {"spec": {"versions": {"kubelet": kubelet}}}}});
        self.patch(&change).await?;
        self.pause(300).await;
        self.stamp().await
    }

    async fn patch(&self, patch: &Value) -> Result<MachineDeployment> {
        let (api, how) = (self.site.machine_deployments()?, PatchParams::default());
        Ok(api.patch(&self.name, &how, &Patch::Merge(patch)).await?)
    }

    /// Stamps the revision, and boots a machine of it.
    async fn stamp(&mut self) -> Result<()> {
        let stamp = json!({"metadata": {"annotations": {names::REVISION: self.revision.to_string()}}});
        self.uid = self.patch(&stamp).await?.uid().context("a uid")?;
        self.boot().await
    }

    /// The id by which Secrets name their pool.
    fn id(&self) -> String {
        names::pool_id("kube-system", &self.name, &self.uid)
    }

    /// A machine fetches its document with its own token. One that has booted before still can.
    async fn boot(&mut self) -> Result<()> {
        let (secrets, plane, id) = (self.site.secrets()?, &self.site.plane, self.id());
        let name = names::bootstrap_secret_name(&self.name, "kube-system");
        let revision = self.revision.to_string();
        let what = format!("a machine of {} to fetch revision {revision}", self.name);
        let machine = wait_for(&what, CONVERGES_WITHIN, async || {
            let secret = secrets.get(&name).await?;
            ensure!(
                secret.labels().get(names::POOL) == Some(&id),
                "it is of another pool"
            );
            let machine = fixtures::parse(machine_controller::user_data(&secret, &revision, "machine")?)?;
            provisioning::fetch(plane, &machine).await?;
            Ok(Some(machine))
        })
        .await?;
        if let Some(before) = self.booted.replace(machine) {
            let found = provisioning::fetch(plane, &before).await;
            found.with_context(|| format!("{}: a machine that booted before", self.name))?;
        }
        Ok(())
    }
}
