//! Rotates pools on a real API server while requests fail and services are killed. An observer that knows only the invariants watches.

mod proxy;
mod watching;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::TryStreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::Role;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Resource, ResourceExt};
use osm_api::config::OperatingSystemConfig;
use osm_api::content::ContentView;
use osm_api::machine_deployment::MachineDeployment;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::{Installation, Service};
use osm_testkit::installation::{self, Installed};
use osm_testkit::{ControlPlane, check, fixtures, wait_for};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::proxy::FaultyProxy;
pub use self::watching::Watching;
use crate::invariants::{Violation, What};

const PROFILE: &str = "osp-tiny";
const LOGIN: &str = "login";
/// Faults, kills and back-offs in a row may take this long, and no longer.
const CONVERGES_WITHIN: Duration = Duration::from_secs(240);

/// What is to happen.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Of everything that is left to chance, but for time.
    pub seed: u64,
    /// Rotations in all.
    pub rotations: u32,
    /// Pools that rotate side by side.
    pub pools: u32,
    /// Requests out of a thousand that something happens to.
    pub faults: u32,
}

/// What has happened.
#[derive(Clone, Debug)]
pub struct Report {
    /// Rotations that were published.
    pub rotations: u32,
    /// Services killed.
    pub kills: u32,
    /// Requests of the services.
    pub requests: u64,
    /// What happened to requests, and how often.
    pub faults: BTreeMap<&'static str, u64>,
    /// Changes of objects that were observed.
    pub changes: u64,
    /// Promises that were broken.
    pub violations: Vec<Violation>,
}

/// What pools and people share.
struct Site {
    plane: ControlPlane,
    namespace: String,
    watching: Watching,
    /// Rotations that are still to be begun.
    left: AtomicU32,
    done: AtomicU32,
}

/// Rotates pools, and tells `say` how far it is now and then.
///
/// # Errors
/// A rotation that is not published in time, with its condition; a control plane that fails. Broken promises are no error, but
/// in the report.
pub async fn run(options: Options, say: impl Fn(&str)) -> Result<Report> {
    let installation = Installation {
        namespace: "osm".to_owned(),
        ..Installation::default()
    };
    let binaries = installation::binaries()?;
    let plane = ControlPlane::start(osm_testkit::Options::default()).await?;
    let mut installed = Installed::install(&plane, installation.clone(), &binaries).await?;
    let settings =
        json!({"containerd": {"registries": [{"host": "registry.example", "credentials": {"name": LOGIN}}]}});
    let namespace = installation.namespace.clone();
    let first = [
        login(0),
        installation::settings(&installation, &settings.to_string()),
        fixtures::profile(&namespace, PROFILE, "v1.0.0", "text 0\n"),
    ];
    installation::apply(&plane, &first).await?;
    let mut proxies = BTreeMap::new();
    for (number, service) in (1_u64..).zip(Service::ALL) {
        let proxy = FaultyProxy::start(&plane, options.seed.wrapping_mul(31).wrapping_add(number)).await?;
        let cluster = *service.clusters().first().context("a cluster")?;
        let path = installed.kubeconfig(service, cluster)?;
        let mut kubeconfig: Value = serde_saphyr::from_str(&std::fs::read_to_string(path)?)?;
        let server = kubeconfig
            .pointer_mut("/clusters/0/cluster")
            .context("a cluster in the kubeconfig")?;
        *server = json!({"server": proxy.url()});
        installed.replace_kubeconfig(service, cluster, &kubeconfig.to_string())?;
        proxies.insert(service.name(), proxy);
    }
    let watching = Watching::start(&plane, &namespace)?;
    installed.start_all().await?;
    for proxy in proxies.values() {
        proxy.set_share(options.faults);
    }

    let site = Arc::new(Site {
        plane,
        namespace,
        watching,
        left: AtomicU32::new(options.rotations),
        done: AtomicU32::new(0),
    });
    // Not tasks: the asynchronous closures in them can't be told to be `Send`.
    let pools: FuturesUnordered<_> = (0..options.pools)
        .map(|number| {
            let random = StdRng::seed_from_u64(options.seed.wrapping_add(u64::from(number) << 32));
            Pool {
                site: site.clone(),
                name: format!("pool-{number}"),
                random,
                revision: 0,
            }
            .live()
        })
        .collect();
    let kills = AtomicU32::new(0);
    let outcome = tokio::select! {
        lived = pools.try_for_each(async |()| Ok(())) => lived,
        ended = kill(&mut installed, &kills, StdRng::seed_from_u64(options.seed)) => ended,
        () = people(&site, StdRng::seed_from_u64(options.seed ^ 0x5eed)) => Ok(()),
        () = tell(&site, &kills, options.rotations, &say) => Ok(()),
    };
    outcome.map_err(|error| error.context(format!("seed {}\n{}", options.seed, installed.logs())))?;

    say("faults end; everything has to converge, and then to be quiet");
    for proxy in proxies.values() {
        proxy.set_share(0);
    }
    wait_for(
        "what was made for pools that are gone to go",
        CONVERGES_WITHIN,
        async || check(site.nothing_left().await?),
    )
    .await?;
    tokio::time::sleep(Duration::from_secs(40)).await;
    site.watching.caught_up().await;
    let since = Timestamp::now();
    site.watching.observer().settled(since);
    tokio::time::sleep(Duration::from_secs(30)).await;
    site.watching.caught_up().await;
    site.watching.observer().quiet_since(since);

    let mut faults = BTreeMap::new();
    for (name, count) in proxies.values().flat_map(FaultyProxy::faults) {
        *faults.entry(name).or_default() += count;
    }
    Ok(Report {
        rotations: site.done.load(Ordering::Relaxed),
        kills: kills.into_inner(),
        requests: proxies.values().map(FaultyProxy::requests).sum(),
        faults,
        changes: site.watching.changes(),
        violations: site.watching.observer().violations().to_vec(),
    })
}

/// A registry's credentials.
fn login(round: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": LOGIN, "namespace": CLOUD_INIT_SETTINGS},
        "stringData": {"username": "user", "password": format!("password {round}")}})
}

/// Kills services, each at any moment, until one does not start any more.
async fn kill(installed: &mut Installed, kills: &AtomicU32, mut random: StdRng) -> Result<()> {
    loop {
        tokio::time::sleep(Duration::from_millis(random.random_range(500..5000))).await;
        let service = Service::ALL
            .get(random.random_range(0..Service::ALL.len()))
            .copied();
        let service = service.context("a service")?;
        installed.kill9(service)?;
        kills.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(random.random_range(0..1500))).await;
        installed.start(service).await?;
        // However slow the computer is, some time has to be left for work.
        if random.random_bool(0.75) {
            let ready = async || Ok(installed.is_ready(service).await.then_some(()));
            wait_for(
                "a service that was killed to be at work again",
                CONVERGES_WITHIN,
                ready,
            )
            .await?;
        }
    }
}

/// A pool gets new content of the same revision less than twenty times a day; beyond that it would wait.
const EDITS: u32 = 15;

/// Edits profile and credentials now and then.
async fn people(site: &Site, mut random: StdRng) {
    for round in 1..=EDITS {
        tokio::time::sleep(Duration::from_millis(random.random_range(2000..9000))).await;
        let object = match random.random_bool(0.5) {
            true => login(round),
            false => fixtures::profile(
                &site.namespace,
                PROFILE,
                &format!("v1.0.{round}"),
                &format!("text {round}\n"),
            ),
        };
        // The next edit is as good.
        let _ = installation::apply(&site.plane, &[object]).await;
    }
    std::future::pending().await
}

/// Tells how far it is.
async fn tell(site: &Site, kills: &AtomicU32, rotations: u32, say: &impl Fn(&str)) {
    let (mut told, mut broken) = (0, 0);
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let done = site.done.load(Ordering::Relaxed);
        if done >= told + rotations.div_ceil(20) {
            told = done;
            say(&format!(
                "{done} rotations, {} kills",
                kills.load(Ordering::Relaxed)
            ));
        }
        for violation in site.watching.observer().violations().iter().skip(broken) {
            broken += 1;
            say(&format!("broken: {violation}"));
        }
    }
}

impl Site {
    fn secrets(&self) -> Result<Api<Secret>> {
        Ok(Api::namespaced(self.plane.admin()?, CLOUD_INIT_SETTINGS))
    }

    fn machine_deployments(&self) -> Result<Api<MachineDeployment>> {
        Ok(Api::namespaced(self.plane.admin()?, "kube-system"))
    }

    /// Deletes just this one, unless somebody was faster, and has the observer know who did it.
    async fn delete<K>(&self, kind: &str, api: &Api<K>, object: &K)
    where
        K: Resource + Clone + Debug + DeserializeOwned,
    {
        let (name, uid) = (object.name_any(), object.uid());
        self.watching
            .observer()
            .interferes(kind, &name, uid.as_deref().unwrap_or_default(), What::Deleted);
        let preconditions = Some(Preconditions {
            uid,
            resource_version: None,
        });
        let _ = api
            .delete(
                &name,
                &DeleteParams {
                    preconditions,
                    ..DeleteParams::default()
                },
            )
            .await;
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
        let one_less = |left: u32| left.checked_sub(1);
        while self
            .site
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
            .is_ok()
        {
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
            self.site.done.fetch_add(1, Ordering::Relaxed);
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

    async fn patch(&self, patch: &Value) -> Result<()> {
        let api = self.site.machine_deployments()?;
        api.patch(&self.name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// Stamps the revision, and waits until machines of it can be made.
    async fn stamp(&mut self) -> Result<()> {
        self.patch(&json!({"metadata": {"annotations": {names::REVISION: self.revision.to_string()}}}))
            .await?;
        let uid = self.site.machine_deployments()?.get(&self.name).await?.uid();
        let revision = self.revision.to_string();
        let secrets = self.site.secrets()?;
        let configs: Api<OperatingSystemConfig> =
            Api::namespaced(self.site.plane.admin()?, &self.site.namespace);
        let (config, bootstrap) = (
            names::config_name(&self.name, "kube-system"),
            names::bootstrap_secret_name(&self.name, "kube-system"),
        );
        let began = Instant::now();
        let what = format!("{} at revision {revision}", self.name);
        let published = wait_for(&what, CONVERGES_WITHIN, async || {
            // Not so often that asking is what takes the time.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let Some(config) = configs.get_opt(&config).await? else {
                return Ok(None);
            };
            let of_this = uid
                .as_deref()
                .is_some_and(|uid| ContentView::of(&config).belongs_to(uid));
            let told = config
                .status
                .and_then(|status| status.published)
                .map(|published| published.revision);
            let Some(secret) = secrets.get_opt(&bootstrap).await? else {
                return Ok(None);
            };
            let stands = secret.annotations().get(names::MACHINE_DEPLOYMENT_REVISION) == Some(&revision);
            check(of_this && stands && told.as_ref() == Some(&revision))
        });
        if let Err(error) = published.await {
            let status = configs.get_opt(&config).await?.and_then(|config| config.status);
            let status = serde_json::to_string_pretty(&status)?;
            return Err(error.context(format!("after {:?}, its status is\n{status}", began.elapsed())));
        }
        Ok(())
    }

    /// Somebody deletes what is ours.
    async fn damage(&mut self) -> Result<()> {
        if self.random.random_bool(0.5) {
            let secrets = self.site.secrets()?;
            let name = names::bootstrap_secret_name(&self.name, "kube-system");
            if let Some(secret) = secrets.get_opt(&name).await? {
                self.site.delete("Secret", &secrets, &secret).await;
            }
            return Ok(());
        }
        let roles: Api<Role> = Api::namespaced(self.site.plane.admin()?, CLOUD_INIT_SETTINGS);
        let config = names::config_name(&self.name, "kube-system");
        let of_pool = |role: &&Role| role.annotations().get(names::CONFIG) == Some(&config);
        if let Some(role) = roles.list(&Default::default()).await?.iter().find(of_pool) {
            self.site.delete("Role", &roles, role).await;
        }
        Ok(())
    }
}
