//! Measures one number of clusters.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::DeleteParams;
use kube::{Api, Client};
use osm_api::names::WORKER_CLUSTER;
use osm_api::rbac::{Installation, Service};
use osm_api::{Reason, WorkerCluster, condition, worker_cluster};
use osm_testkit::control_plane::AuditLog;
use osm_testkit::installation::{self, IDENTITIES, Installed};
use osm_testkit::process::{self, ScratchDir};
use osm_testkit::procfs;
use osm_testkit::progress::Progress;
use osm_testkit::{ControlPlane, Options, wait_for};

use super::figures::{self, Figures, quantile};
use super::options::Fleet;
use super::profile::{self, NAMESPACE};
use super::services::{REQUESTS, SERVICES, Services, TIMEOUT};
use super::user_clusters::{self, Changed, UserClusters, Wanted};

/// Registrations at a time.
const CONCURRENCY: usize = 32;

/// Clusters that are registered one after the other, once all others are served; fewer if those are.
const LATER: u32 = 20;

/// Those that come and go at a time.
const CHURNED: u32 = 100;

pub struct Stage<'a> {
    // In the order in which they are dropped: what writes to a directory before the directory.
    services: Services,
    simulator: process::Service,
    _directory: ScratchDir,
    clusters: UserClusters,
    progress: Progress,
    options: &'a Fleet,
    client: Client,
    log: AuditLog,
    /// Clusters that are registered, without those that misbehave.
    registered: u32,
    figures: Figures,
    _seed: ControlPlane,
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

impl<'a> Stage<'a> {
    pub async fn measure(
        progress: Progress,
        options: &'a Fleet,
        binaries: &Path,
        clusters: u32,
    ) -> Result<Figures> {
        progress.step(&format!("{clusters} clusters with {} pools", options.pools));
        let mut stage = Self::start(progress, options, binaries, clusters).await?;
        let first = stage.clusters.healthy.first().context("a cluster")?;
        // Alone, with all, and with misbehaving ones.
        let mut changed =
            Changed::new(first, options.pools, options.pools.min(1) * 3 * options.changes).await?;
        stage.register(0..1).await?;
        stage.in_step().await?;
        let alone = stage.changes(&mut changed, "alone", None).await?;
        stage.cold_start(clusters).await?;
        stage.idle().await?;
        let bar = (figures::CHANGE, alone);
        stage.changes(&mut changed, "with all", Some(bar)).await?;
        stage.register_later().await?;
        if options.pools > 0 {
            stage.all_change().await?;
        }
        if options.away + options.hostile > 0 {
            stage.misbehave().await?;
            let bar = (figures::CHANGE_MISBEHAVING, alone);
            stage.changes(&mut changed, "with misbehaving", Some(bar)).await?;
        }
        if options.replicas > 1 {
            stage.kill_replica().await?;
        }
        if options.churn > 0 {
            stage.churn().await?;
        }
        Ok(stage.figures)
    }

    async fn start(progress: Progress, options: &'a Fleet, binaries: &Path, clusters: u32) -> Result<Self> {
        let spare = if options.churn > 0 { CHURNED } else { 0 };
        let wanted = Wanted {
            healthy: clusters + LATER.min(clusters) + spare,
            pools: options.pools,
            away: options.away,
            hostile: options.hostile,
        };
        let seed = ControlPlane::start(Options {
            audit: true,
            ..Options::default()
        })
        .await?;
        let release = Installation {
            id: NAMESPACE.to_owned(),
            namespace: NAMESPACE.to_owned(),
            fleet: true,
            ..Installation::default()
        };
        let mut installed = Installed::install(&seed, release.clone(), binaries).await?;
        // As in the chart.
        installed.log_filter = "info".to_owned();
        let limits = format!("limits: {{machineDeployments: {}}}", options.pools.max(200));
        installation::apply(&seed, &[installation::settings(&release, &limits)]).await?;
        installed.start_all().await?;
        let client = seed.admin()?;
        profile::create(&client, TIMEOUT).await?;
        let (user_clusters, simulator, directory) = UserClusters::start(binaries, &wanted).await?;
        let stage = Self {
            services: Services {
                installed,
                replicas: 1,
            },
            simulator,
            _directory: directory,
            clusters: user_clusters,
            progress,
            options,
            client,
            log: seed.audit_log()?,
            registered: 0,
            figures: Figures::new(clusters, options.pools),
            _seed: seed,
        };
        let all = stage.clusters.healthy.iter().enumerate();
        let named = all.map(|(number, kubeconfig)| (namespace(number), kubeconfig));
        stage.prepare(named).await?;
        Ok(stage)
    }

    async fn prepare<'k>(&self, named: impl Iterator<Item = (String, &'k String)>) -> Result<()> {
        let prepared = stream::iter(named).map(|(namespace, kubeconfig)| async move {
            user_clusters::prepare(&self.client, &namespace, kubeconfig).await
        });
        prepared.buffer_unordered(CONCURRENCY).try_collect().await
    }

    /// Creates the WorkerClusters of these.
    async fn create(&self, namespaces: impl Iterator<Item = String>) -> Result<()> {
        let registered = stream::iter(namespaces)
            .map(|namespace| async move { user_clusters::register(&self.client, &namespace).await });
        registered.buffer_unordered(CONCURRENCY).try_collect().await
    }

    async fn register(&mut self, numbers: Range<u32>) -> Result<()> {
        self.registered += numbers.end - numbers.start;
        self.create(numbers.map(|number| namespace(number as usize)))
            .await
    }

    /// Deletes the WorkerClusters of these.
    async fn remove(&mut self, numbers: Range<u32>) -> Result<()> {
        self.registered -= numbers.end - numbers.start;
        let all = numbers.map(|number| self.registrations(number));
        let removed = stream::iter(all).map(|clusters| async move {
            let how = DeleteParams::default();
            clusters.delete(WORKER_CLUSTER, &how).await.map(drop)
        });
        let () = removed.buffer_unordered(CONCURRENCY).try_collect().await?;
        Ok(())
    }

    fn registrations(&self, number: u32) -> Api<WorkerCluster> {
        Api::namespaced(self.client.clone(), &namespace(number as usize))
    }

    /// Waits until the services serve as many clusters as are registered, and all pools of them.
    async fn in_step(&self) -> Result<()> {
        let (clusters, pools) = (self.registered, self.registered * self.options.pools);
        let waited = wait_for("all clusters and pools to be served", TIMEOUT, async || {
            for (service, type_, expected) in [
                (Service::OscController, condition::RENDERING, clusters),
                (Service::OscController, condition::RENDERED, pools),
                (Service::SecretSyncer, condition::PUBLISHING, clusters),
                (Service::SecretSyncer, condition::PUBLISHED, pools),
                (Service::CsrApprover, condition::JOINING, clusters),
            ] {
                let found = self.services.having(service, type_, &["status=\"True\""]).await?;
                // Some pools of hostile clusters are served as well.
                ensure!(found >= f64::from(expected), "{found} of {expected} are {type_}");
            }
            Ok(Some(()))
        });
        waited
            .await
            .map_err(|error| error.context(self.services.log_tails()))
    }

    /// Changes pools of one cluster. Returns the time that most changes take at most, which `bar` is compared with.
    async fn changes(&mut self, changed: &mut Changed, what: &str, bar: Option<(&str, f64)>) -> Result<f64> {
        if self.options.pools == 0 {
            return Ok(0.0);
        }
        self.progress
            .step(&format!("{} changes {what}", self.options.changes));
        let took = changed.change(self.options.changes).await;
        let took = took.map_err(|error| error.context(self.services.log_tails()))?;
        let [half, most] = [50, 99].map(|percent| quantile(&took, percent));
        self.figures.set(format!("change {what}, s, p50"), half);
        self.figures.set(format!("change {what}, s, p99"), most);
        if let Some((bar, alone)) = bar {
            self.figures.set(bar, most / alone);
        }
        Ok(most)
    }

    /// Starts the services again, with all clusters.
    async fn cold_start(&mut self, clusters: u32) -> Result<()> {
        for service in Service::ALL {
            self.services.installed.kill9(service)?;
        }
        self.register(1..clusters).await?;
        self.log.read()?;
        self.progress.step("cold start");
        let (started, before) = (Instant::now(), self.simulator.usage()?);
        self.services.installed.start_all().await?;
        self.in_step().await?;
        let (took, after) = (started.elapsed().as_secs_f64(), self.simulator.usage()?);
        let processors = std::thread::available_parallelism()?.get() as f64;
        self.figures.set(figures::COLD_START, took);
        let share = (after.cpu_seconds - before.cpu_seconds) / took / processors;
        self.figures.set(figures::SHARE, share);
        let cpu = self.services.usages()?.cpu_seconds();
        self.figures.set("cold start, s of CPU", cpu);
        Ok(())
    }

    /// Waits while nothing changes, and measures what the services use then.
    async fn idle(&mut self) -> Result<()> {
        self.progress
            .step(&format!("{} minutes idle", self.options.minutes));
        let (before, requests) = (self.services.usages()?, self.services.requests().await?);
        tokio::time::sleep(Duration::from_secs(60 * self.options.minutes)).await;
        let (after, later) = (self.services.usages()?, self.services.requests().await?);
        let seconds = (after.at - before.at).as_secs_f64();
        for service in Service::ALL {
            let name = service.name();
            let (Some(before), Some(after)) = (before.services.get(name), after.services.get(name)) else {
                continue;
            };
            self.figures.set(figures::settled(service), mib(after.rss));
            self.figures.set(format!("{name} peak, MiB"), mib(after.peak_rss));
            let percent = 100.0 * (after.cpu_seconds - before.cpu_seconds) / seconds;
            self.figures.set(format!("{name} idle, % CPU"), percent);
            let labels = ["cluster=\"worker\"", "verb=\"watch\""];
            let watches = self.services.sum(service, REQUESTS, &labels).await?;
            let watches = watches / f64::from(self.registered);
            self.figures.set(format!("{name} watches per cluster"), watches);
        }
        let percent = 100.0 * (after.cpu_seconds() - before.cpu_seconds()) / seconds;
        self.figures.set(figures::IDLE_CPU, percent);
        let [to_seed, to_clusters] = [later.0 - requests.0, later.1 - requests.1].map(|of| of / seconds);
        self.figures.set("idle requests to the seed, per second", to_seed);
        self.figures.set(figures::IDLE_REQUESTS, to_seed + to_clusters);
        let prefix = format!("system:serviceaccount:{IDENTITIES}:");
        let watches = self.log.read()?.into_iter().filter_map(|event| {
            let is_ours = event.verb == "watch" && event.user.starts_with(&prefix);
            let (path, query) = event.uri.split_once('?').unwrap_or((&event.uri, ""));
            let selects = query.split('&').filter(|pair| pair.contains("Selector="));
            is_ours.then(|| format!("{} {path} {}", event.user, selects.collect::<String>()))
        });
        let watches = watches.collect::<BTreeSet<_>>().len();
        self.figures.set(figures::WATCHES, watches as f64);
        Ok(())
    }

    /// Registers one cluster after the other.
    async fn register_later(&mut self) -> Result<()> {
        self.progress.step("further clusters");
        let (first, mut took) = (self.registered, Vec::new());
        for number in first..first + LATER.min(first) {
            let started = Instant::now();
            self.register(number..number + 1).await?;
            let clusters = self.registrations(number);
            wait_for("the cluster to be served", TIMEOUT, async || {
                let status = clusters.get(WORKER_CLUSTER).await?.status.unwrap_or_default();
                let served = status.conditions.iter().filter(|of| of.status == "True");
                ensure!(served.count() == SERVICES.len(), "{:?}", status.conditions);
                Ok(Some(()))
            })
            .await?;
            took.push(started.elapsed().as_secs_f64());
        }
        took.sort_unstable_by(f64::total_cmp);
        self.figures
            .set("register until Serving, s, p50", quantile(&took, 50));
        self.figures.set(figures::REGISTER, quantile(&took, 99));
        self.in_step().await
    }

    /// Changes the profile of all pools.
    async fn all_change(&mut self) -> Result<()> {
        self.progress.step("all pools change");
        for service in Service::ALL {
            procfs::reset_peak(self.services.installed.process(service)?.pid())?;
        }
        let (before, pools) = (
            self.services.usages()?,
            f64::from(self.registered * self.options.pools),
        );
        let published = async || {
            self.services
                .sum(Service::SecretSyncer, "osm_publishes_total", &[])
                .await
        };
        let expected = published().await? + pools;
        profile::change(&self.client).await?;
        let waited = wait_for("all pools to be published again", TIMEOUT, async || {
            let found = published().await?;
            ensure!(found >= expected, "{found} of {expected} are");
            Ok(Some(()))
        });
        waited
            .await
            .map_err(|error| error.context(self.services.log_tails()))?;
        let after = self.services.usages()?;
        let (seconds, cpu) = (
            (after.at - before.at).as_secs_f64(),
            after.cpu_seconds() - before.cpu_seconds(),
        );
        self.figures.set("all pools change, s", seconds);
        self.figures
            .set("all pools change, ms of CPU per pool", 1000.0 * cpu / pools);
        for (service, usage) in after.services {
            self.figures
                .set(format!("{service} while all change, MiB"), mib(usage.peak_rss));
        }
        Ok(())
    }

    /// Registers the clusters that misbehave, waits until each has a reason, and measures what they cost.
    async fn misbehave(&mut self) -> Result<()> {
        self.progress.step("clusters that misbehave");
        let before = self.services.usages()?;
        let all = self.clusters.away.iter().chain(&self.clusters.hostile);
        let bad = |number: usize| format!("bad-{number:04}");
        let named = all.enumerate().map(|(number, of)| (bad(number), of));
        self.prepare(named).await?;
        let number = (self.options.away + self.options.hostile) as usize;
        let started = Instant::now();
        self.create((0..number).map(bad)).await?;
        let waited = wait_for("a reason for each", TIMEOUT, async || {
            // All kinds of misbehavior concern this service.
            let having = async |reason: &str| {
                let labels = ["status=\"False\"", &format!("reason=\"{reason}")];
                self.services
                    .having(Service::OscController, condition::RENDERING, &labels)
                    .await
            };
            let found = having("").await? - having(Reason::Connecting.as_str()).await?;
            ensure!(found >= number as f64, "{found} of {number} have one");
            Ok(Some(()))
        });
        waited
            .await
            .map_err(|error| error.context(self.services.log_tails()))?;
        self.figures
            .set(figures::REASONS, started.elapsed().as_secs_f64());
        tokio::time::sleep(Duration::from_secs(60 * self.options.minutes)).await;
        // It fails if a process has ended.
        let (after, mut most) = (self.services.usages()?, 0.0);
        for (service, usage) in after.services {
            let more = mib(usage.rss) - before.services.get(service).map_or(0.0, |of| mib(of.rss));
            self.figures
                .set(format!("{service} more with misbehaving, MiB"), more);
            most = f64::max(most, more);
        }
        self.figures.set(figures::MORE_MISBEHAVING, most);
        self.in_step().await
    }

    /// Starts further replicas, kills one of each service, and waits until the others serve its clusters.
    async fn kill_replica(&mut self) -> Result<()> {
        self.progress.step("replicas");
        for replica in 1..self.options.replicas {
            for service in SERVICES {
                self.services.installed.start((service, replica)).await?;
            }
        }
        // osp-controller serves no clusters, and has one.
        self.services.replicas = self.options.replicas;
        self.services.agreed().await?;
        self.in_step().await?;
        self.progress.step("a replica is killed");
        self.services.replicas -= 1;
        for service in SERVICES {
            self.services.installed.kill9((service, self.services.replicas))?;
        }
        let killed = Instant::now();
        self.services.agreed().await?;
        self.figures.set(figures::OWNERS, killed.elapsed().as_secs_f64());
        self.in_step().await?;
        self.figures.set(figures::KILLED, killed.elapsed().as_secs_f64());
        Ok(())
    }

    /// Registers and removes clusters again and again.
    async fn churn(&mut self) -> Result<()> {
        let (first, rounds) = (self.registered, self.options.churn.div_ceil(CHURNED));
        let (numbers, mut before) = (first..first + CHURNED, None);
        for round in 0..rounds {
            self.register(numbers.clone()).await?;
            self.in_step().await?;
            self.remove(numbers.clone()).await?;
            self.gone().await?;
            if round == rounds / 10 {
                before = Some(self.services.usages()?.services);
                self.progress
                    .step(&format!("{round} of {rounds} rounds of {CHURNED}"));
            }
        }
        let after = self.services.usages()?.services;
        let mut most = None;
        for (service, before) in before.context("a round")? {
            let after = after.get(service).context("a service")?.rss;
            let percent = 100.0 * (after as f64 / before.rss as f64 - 1.0);
            self.figures
                .set(format!("{service} after churn, MiB"), mib(after));
            self.figures
                .set(format!("{service} more after churn, %"), percent);
            most = Some(most.map_or(percent, |most: f64| most.max(percent)));
        }
        self.figures.set(figures::CHURN, most.context("a service")?);
        Ok(())
    }

    /// Waits until no cluster is served that is not registered.
    async fn gone(&self) -> Result<()> {
        let expected = f64::from(self.registered + self.options.away + self.options.hostile);
        wait_for("clusters to be served no longer", TIMEOUT, async || {
            for service in SERVICES {
                let type_ = worker_cluster::condition(service).unwrap_or_default();
                let found = self.services.having(service, type_, &[]).await?;
                ensure!(found <= expected, "{found} instead of {expected} are");
            }
            Ok(Some(()))
        })
        .await
    }
}

fn namespace(number: usize) -> String {
    format!("cluster-{number:04}")
}
