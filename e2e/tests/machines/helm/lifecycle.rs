//! The lifecycle of a release of the chart: install, change, scale, roll back, uninstall.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::DeleteParams;
use kube::{Api, Client};
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::Service;
use osm_lab::cluster::{Cluster, Memory};
use osm_sim::watching::Watching;
use osm_testkit::{check, fixtures, installation, provisioning, wait_for};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::load::{Change, Load};
use super::pods::{OURS, Pods};
use super::pool::{Pool, Served};
use super::release::Release;
use super::{admission, home_cluster, images, objects, two_releases};
use osm_testkit::progress::Progress;

/// The release and its namespace.
pub const NAME: &str = "osm";

/// A default profile.
const PROFILE: &str = "osp-ubuntu";

/// The profile of pools that are watched: its documents can be taken apart.
const TINY: &str = "osp-tiny";

/// A pod whose image is there should be ready within this time. How long that takes depends on what else the computer does.
const READY: Duration = Duration::from_secs(2);

/// A service with little to do should need no more memory, in bytes, with its program.
const RESIDENT: u64 = 15 << 20;

/// One that needs more without its program has grown, however the program was linked.
const OWN: u64 = 6 << 20;

/// How often memory is read, and the time in between. The middle one counts.
const READINGS: usize = 9;
const BETWEEN_READINGS: Duration = Duration::from_millis(500);

/// A change is in new machines' data within this time, whatever happens to replicas, on a node as fast as this computer.
const UNSERVED: Duration = Duration::from_secs(5);

/// Changes while nothing happens to replicas: how long one takes on this computer, with all else that it does.
const QUIET: usize = 20;

/// How long things may take that nobody waits for.
const DEADLINE: Duration = Duration::from_secs(300);

/// A setting that shows in what nodes read.
pub const BEFORE: &str = "registry.example.com/pause:before";
const AFTER: &str = "registry.example.com/pause:after";

/// A cluster, and what is needed to install into it.
pub struct Lifecycle<'a> {
    pub cluster: &'a Cluster,
    /// The folder of the images' archives.
    pub images: &'a Path,
    pub progress: Progress,
}

impl Lifecycle<'_> {
    /// Plays it.
    ///
    /// # Errors
    /// What is not as it should be.
    pub async fn play(&self) -> Result<()> {
        images::import(self.images, self.cluster).await?;
        self.progress.step("the node has our images");
        let client = self.cluster.control_plane.admin()?;
        self.cluster
            .control_plane
            .install_machine_deployment_crd()
            .await?;
        let before = objects::all(self.cluster).await?;
        let release = Release::new(&self.cluster.control_plane, NAME, NAME).await?;

        let pods = Pods::watch(client.clone(), NAME);
        let notes = release.install(&values(BEFORE, 1)).await?;
        ensure!(
            !notes.trim().is_empty(),
            "the chart says nothing to who has installed it"
        );
        self.progress.step("installed: every pod is ready");
        self.pods_were_quick(&pods)?;

        let pool = Pool::create(&client, "pool", PROFILE).await?;
        self.has(&client, &pool, BEFORE).await?;
        ensure!(
            pool.user_data().await?.starts_with("#cloud-config"),
            "a machine would not boot with this"
        );
        self.progress.step("a MachineDeployment is published");
        self.memory(&pods).await?;

        let same = pods.alive();
        release.upgrade(&values(AFTER, 1)).await?;
        self.has(&client, &pool, AFTER).await?;
        self.progress
            .step("settings changed by helm upgrade are in new machines' data");
        release.rollback(1).await?;
        self.has(&client, &pool, BEFORE).await?;
        ensure!(
            pods.alive() == same,
            "pods were restarted: {same:?}, now {:?}",
            pods.alive()
        );
        self.progress
            .step("helm rollback takes them back; no pod was restarted for either");
        admission::play(self, &client, &release).await?;
        pool.delete().await?;
        self.nothing_of_pools(&client).await?;

        self.scale(&client, &release, &pods).await?;
        self.pods_were_quick(&pods)?;
        self.uninstall(&client, &release, &before).await?;
        two_releases::play(self).await?;
        home_cluster::play(self).await
    }

    /// Tells how soon pods were ready: no failure, because that depends on the computer, too.
    fn pods_were_quick(&self, pods: &Pods) -> Result<()> {
        let waits = pods.waits();
        let (half, longest) = (waits.get(waits.len() / 2), waits.last());
        let (half, longest) = half.zip(longest).context("no pod was ready")?;
        let slow = waits.iter().filter(|wait| **wait > READY).count();
        let text = format!(
            "{} pods: half of them Ready {half:.1?} after they had a node, the last {longest:.1?}; {slow} after more than {READY:?}",
            waits.len(),
        );
        match slow {
            0 => self.progress.step(&text),
            _ => self.progress.warn(&text),
        }
        Ok(())
    }

    /// No service needs too much. Nothing happens meanwhile.
    async fn memory(&self, pods: &Pods) -> Result<()> {
        let services = pods.services();
        ensure!(
            services.len() == Service::ALL.len(),
            "a pod of each service: {services:?}"
        );
        let mut readings = BTreeMap::<&str, Vec<Memory>>::new();
        for _ in 0..READINGS {
            tokio::time::sleep(BETWEEN_READINGS).await;
            for (service, uid) in &services {
                let used = tokio::task::block_in_place(|| self.cluster.memory(uid))?
                    .with_context(|| format!("{service} does not run"))?;
                readings.entry(service).or_default().push(used);
            }
        }
        let mut heavy = Vec::new();
        for (service, mut used) in readings {
            used.sort_unstable_by_key(|used| used.resident);
            let middle = used.get(READINGS / 2).context("readings")?;
            let text = format!(
                "{service}: {:.1} MiB of memory, {:.1} of them without its program",
                megabytes(middle.resident),
                megabytes(middle.own),
            );
            match middle.resident {
                ..=RESIDENT => self.progress.step(&text),
                _ => self
                    .progress
                    .warn(&format!("{text}: more than {:.0}", megabytes(RESIDENT))),
            }
            if middle.own > OWN {
                heavy.push(text);
            }
        }
        ensure!(
            heavy.is_empty(),
            "more than {:.0} MiB without the program: {}",
            megabytes(OWN),
            heavy.join("; ")
        );
        Ok(())
    }

    /// Waits until the node that a pool's new machine becomes has read `text`.
    async fn has(&self, client: &Client, pool: &Pool, text: &str) -> Result<()> {
        let secrets = Api::<Secret>::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
        wait_for(
            &format!("{text} in the provisioning document"),
            DEADLINE,
            async || {
                let published = pool
                    .published(client, NAME)
                    .await?
                    .status
                    .and_then(|status| status.published);
                let secret = secrets
                    .get(&published.context("published")?.provisioning_secret)
                    .await?;
                check(provisioning::document(secret)?.contains(text))
            },
        )
        .await
    }

    /// Everything of pools that are deleted goes.
    async fn nothing_of_pools(&self, client: &Client) -> Result<()> {
        let secrets = Api::<Secret>::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
        wait_for("what was made for pools to go", DEADLINE, async || {
            let left = secrets
                .list(&kube::api::ListParams::default().labels(names::POOL))
                .await?;
            check(left.items.is_empty())
        })
        .await
    }

    /// Each Deployment gets three replicas, all of which are replaced, and then one, while pools are changed all the time.
    async fn scale(&self, client: &Client, release: &Release, pods: &Pods) -> Result<()> {
        let profile = fixtures::profile(NAME, TINY, "v1.0.0", "text\n");
        installation::apply(&self.cluster.control_plane, &[profile]).await?;
        let watching = Watching::start(&self.cluster.control_plane, NAME)?;
        let load = Load::new();
        let (steps, changes) = tokio::try_join!(self.roll(release, &load), load.run(client, TINY))?;
        self.served(&steps, &changes)?;
        ensure!(
            pods.restarts() == 0,
            "containers ended by themselves: {} times",
            pods.restarts()
        );
        self.nothing_of_pools(client).await?;
        watching.caught_up().await;
        let mut observer = watching.observer();
        observer.settled(Timestamp::now());
        let broken: Vec<String> = observer.violations().iter().map(ToString::to_string).collect();
        ensure!(
            broken.is_empty(),
            "promises were broken:\n  {}",
            broken.join("\n  ")
        );
        self.progress
            .step("no promise of docs/rotation.md was broken meanwhile");
        Ok(())
    }

    /// What is done to the Deployments, one after the other, and when.
    async fn roll(&self, release: &Release, load: &Load) -> Result<Vec<(Duration, String)>> {
        wait_for("changes of pools", DEADLINE, async || {
            check(load.served() >= QUIET)
        })
        .await?;
        let mut steps = Vec::new();
        for service in Service::ALL {
            let name = service.name();
            let mut three = values(BEFORE, 1);
            replicas(&mut three, service, 3)?;
            steps.push((load.so_far(), format!("{name} got three replicas")));
            release.upgrade(&three).await?;
            steps.push((load.so_far(), format!("{name} was restarted")));
            self.restart(service).await?;
            steps.push((load.so_far(), format!("{name} got one replica")));
            release.upgrade(&values(BEFORE, 1)).await?;
            self.progress.step(&format!(
                "{name}: three replicas, all of them restarted, one replica again"
            ));
        }
        load.stop();
        Ok(steps)
    }

    async fn restart(&self, service: Service) -> Result<()> {
        let deployment = format!("deployment/{NAME}-{}", service.name());
        self.cluster
            .kubectl(&["rollout", "restart", "--namespace", NAME, &deployment])
            .await?;
        let status = [
            "rollout",
            "status",
            "--namespace",
            NAME,
            &deployment,
            "--timeout=600s",
        ];
        self.cluster.kubectl(&status).await.map(drop)
    }

    /// No change took too long.
    fn served(&self, steps: &[(Duration, String)], changes: &[Change]) -> Result<()> {
        let began = steps.first().map_or(Duration::MAX, |(at, _)| *at);
        let (quiet, rolled): (Vec<&Change>, Vec<&Change>) = changes
            .iter()
            .partition(|change| change.at + change.served <= began);
        let usual = quiet
            .iter()
            .map(|change| change.served)
            .max()
            .context("changes before")?;
        let during = |change: &Change| {
            let step = steps.iter().rev().find(|(at, _)| *at <= change.at);
            step.map_or("before", |(_, step)| step.as_str()).to_owned()
        };
        let mut times: Vec<Duration> = rolled.iter().map(|change| change.served).collect();
        times.sort_unstable();
        let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
        let longest = rolled
            .iter()
            .max_by_key(|change| change.served)
            .context("changes of pools")?;
        self.progress.step(&format!(
            "{} changes of pools, served after {:.1?}, 99 of 100 {:.1?}, at most {:.1?} ({}; {}); before, at most {usual:.1?}",
            rolled.len(),
            at(50),
            at(99),
            longest.served,
            longest.pool,
            during(longest),
        ));
        let unserved = self.cluster.patience(UNSERVED);
        let late: Vec<String> = changes
            .iter()
            .filter(|change| change.served > unserved)
            .map(|change| format!("{} after {:.1?}: {}", change.pool, change.served, during(change)))
            .collect();
        ensure!(
            late.is_empty(),
            "served later than {unserved:?}:\n  {}",
            late.join("\n  ")
        );
        Ok(())
    }

    /// It hangs on nothing, takes away what it should, and leaves what existing machines need.
    async fn uninstall(
        &self,
        client: &Client,
        release: &Release,
        before: &BTreeSet<objects::Object>,
    ) -> Result<()> {
        let (pool, mut tasks) = (Pool::create(client, "survivor", TINY).await?, JoinSet::new());
        pool.served(&mut Served::watch(client.clone(), &mut tasks))
            .await?;
        pool.published(client, NAME).await?;
        let machine = fixtures::parse(pool.user_data().await?)?;
        release.uninstall().await?;
        wait_for(
            "what the release has to take with it to be gone",
            DEADLINE,
            async || {
                let now = objects::all(self.cluster).await?;
                let left: Vec<_> = now
                    .difference(before)
                    .filter(|(kind, _, name)| !(kind == "MachineDeployment" && *name == pool.name()))
                    .filter(|object| !objects::may_stay(object, NAME))
                    .collect();
                ensure!(left.is_empty(), "still there: {left:?}");
                Ok(Some(()))
            },
        )
        .await?;
        // A machine that boots now finds what its bootstrap was made for.
        let as_machine = self.cluster.control_plane.client(&machine.api_token)?;
        let secrets = Api::<Secret>::namespaced(as_machine, CLOUD_INIT_SETTINGS);
        let document = secrets
            .get(&machine.provisioning_secret)
            .await
            .context("as a booting machine")?;
        let document = provisioning::document(document)?;
        ensure!(
            osm_api::digest::sha256_hex(document.as_bytes()) == machine.provisioning_digest,
            "it is another document"
        );
        self.progress
            .step("helm uninstall leaves definitions, and what existing machines need");
        pool.delete().await?;
        let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(client.clone());
        namespaces.delete(NAME, &DeleteParams::default()).await?;
        wait_for("the namespace to be gone", DEADLINE, async || {
            check(namespaces.get_opt(NAME).await?.is_none())
        })
        .await?;
        self.progress
            .step("nothing hangs: MachineDeployment and namespace are deleted");
        Ok(())
    }

    /// What pods and events tell, for who has to find out what went wrong.
    pub async fn explain(&self) -> String {
        let pods = ["get", "pods", "--all-namespaces", "--output=wide"];
        let events = [
            "get",
            "events",
            "--all-namespaces",
            "--sort-by=.lastTimestamp",
            "--field-selector=type=Warning",
        ];
        let mut text = String::new();
        for (title, arguments) in [("pods", &pods[..]), ("events", &events[..])] {
            let said = self
                .cluster
                .kubectl(arguments)
                .await
                .unwrap_or_else(|error| format!("{error:#}\n"));
            let lines: Vec<&str> = said.lines().collect();
            let last = lines.get(lines.len().saturating_sub(30)..).unwrap_or_default();
            text += &format!("== {title}\n{}\n", last.join("\n"));
        }
        let namespaces = self.cluster.kubectl(&[
            "get",
            "pods",
            "--all-namespaces",
            "--selector",
            OURS,
            "--no-headers",
            "--output=custom-columns=N:.metadata.namespace,P:.metadata.name",
        ]);
        for line in namespaces.await.unwrap_or_default().lines() {
            let mut words = line.split_whitespace();
            let (Some(namespace), Some(pod)) = (words.next(), words.next()) else {
                continue;
            };
            for previous in ["--previous=true", "--previous=false"] {
                if let Ok(log) = self
                    .cluster
                    .kubectl(&["logs", "--namespace", namespace, pod, previous, "--tail=15"])
                    .await
                {
                    text += &format!("== log of {pod}, {previous}\n{log}\n");
                }
            }
        }
        text
    }
}

/// The chart's values, with a setting to be seen on nodes, and replicas.
pub fn values(pause_image: &str, replicas: u32) -> Value {
    let replicas = json!({"replicas": replicas});
    let mut values = json!({"settings": {"pauseImage": pause_image}});
    if let Some(fields) = values.as_object_mut() {
        fields.extend(Service::ALL.map(|service| (service.values_key().to_owned(), replicas.clone())));
    }
    values
}

fn replicas(values: &mut Value, service: Service, replicas: u32) -> Result<()> {
    *values
        .get_mut(service.values_key())
        .and_then(|values| values.get_mut("replicas"))
        .context("replicas")? = json!(replicas);
    Ok(())
}

#[allow(clippy::cast_precision_loss)]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
