//! One process serves the user clusters of a seed. Each has a WorkerCluster in a namespace of the seed, and
//! beside it a Secret with the kubeconfig of each service.
//!
//! A reconcile of a WorkerCluster starts the [task] that serves its cluster, restarts it with another
//! kubeconfig, or ends it, and reports in the condition of this service how it goes. Replicas divide the
//! WorkerClusters, and only the owner connects. What is in a user cluster belongs to its task alone, so that no
//! cluster affects another one.

mod metrics;
pub mod registration;
mod seed;
mod status;
mod task;

pub use self::metrics::FleetMetrics;
pub use self::seed::Connect;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::OptionFuture;
use k8s_openapi::api::core::v1::Secret;
use osm_api::names::worker_kubeconfig;
use osm_api::rbac::Service;
use osm_api::worker_cluster::{self, WorkerCluster};
use osm_api::{Reason, condition};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::DropGuard;
use tracing::Instrument as _;

use self::registration::{Registration, State, Validity, WorkerClusterView};
use self::seed::Seed;
use self::task::Serving;
use crate::cluster::Cluster;
use crate::cluster_gauge::Part;
use crate::controller::Controller;
use crate::metrics::ConditionGauge;
use crate::queue::Queue;
use crate::request::{Error, failed};
use crate::runner::{self, Keys};
use crate::settings::{self, Current};
use crate::watch::Watch;
use crate::{kubeconfig, settings_watch, upstream_osm};

/// WorkerClusters, and Secrets with a kubeconfig, that are kept.
const MAX_CLUSTERS: usize = 10_000;

/// A process that starts, or has become the owner, reports that it connects only if that takes longer. The
/// condition of the one before it is still true.
const TIME_TO_CONNECT: Duration = Duration::from_secs(15);

/// Pause between two counts of namespaces.
const COUNT_INTERVAL: Duration = Duration::from_secs(60);

/// Reconciles in one cluster at the same time, so that those of a slow one are few.
const WORKERS: u16 = 2;

/// Flags of the services that serve clusters.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct FleetArgs {
    /// Serve the clusters of all WorkerClusters in the cluster of --kubeconfig.
    #[arg(long, env = "OSM_FLEET")]
    pub fleet: bool,
    /// Serve only WorkerClusters with these labels, as a label selector such as ring=canary.
    #[arg(
        long,
        env = "OSM_CLUSTER_SELECTOR",
        value_name = "SELECTOR",
        requires = "fleet"
    )]
    pub cluster_selector: Option<String>,
}

/// Serves the clusters until shutdown. `seed` is the cluster of the WorkerClusters, and its installation that of
/// the release.
///
/// # Errors
/// Metrics whose names are taken.
pub async fn run<C: Controller>(seed: Cluster, args: &FleetArgs) -> Result<(), prometheus::Error> {
    let service = seed.process.service;
    let connect: Connect =
        Box::new(move |text| async move { kubeconfig::foreign(&text, service).await }.boxed());
    run_by::<C>(seed, args, connect).await
}

/// As [`run`], with other clients.
///
/// # Errors
/// Metrics whose names are taken.
pub async fn run_by<C: Controller>(
    mut seed: Cluster,
    args: &FleetArgs,
    connect: Connect,
) -> Result<(), prometheus::Error> {
    let (controller, metrics) = (C::start(&seed)?, FleetMetrics::new(&seed.process.metrics)?);
    if seed.process.service.reads_settings() {
        seed.go_leases = Some(upstream_osm::of_fleet(&seed));
    }
    let fleet = Fleet(Arc::new(Inner {
        queue: Arc::new(Queue::new(&seed.process.environment)),
        conditions: ConditionGauge::new(&seed.process.metrics),
        metrics,
        tasks: Mutex::default(),
        seed: Seed::new(seed, controller, connect),
    }));
    fleet.watch(args.cluster_selector.as_deref());
    let seed_cluster = &fleet.seed.cluster;
    // Those that another cell serves are not known here.
    if seed_cluster.process.service == Service::OscController && args.cluster_selector.is_none() {
        let counted = fleet.clone();
        let count = async move {
            loop {
                counted.count_unregistered().await;
                tokio::time::sleep(COUNT_INTERVAL).await;
            }
        };
        seed_cluster.scope.spawn("count of namespaces", count);
    }
    let (queue, keys) = (fleet.queue.clone(), fleet.clone());
    if fleet.seed.cluster.process.service.reads_settings() {
        let all = fleet.clone();
        let wake = move || all.known().into_iter().for_each(|key| all.queue.add(key));
        settings_watch::on_change(&fleet.seed.cluster, wake);
    }
    let reconciled = fleet.clone();
    let work = move |namespace| reconcile(reconciled.clone(), namespace);
    runner::work(
        (&fleet.seed.cluster, &fleet.seed.cluster.replicas),
        queue,
        keys,
        work,
    )
    .await;
    let tasks = std::mem::take(&mut *fleet.tasks.lock());
    for running in tasks.into_values().map(Task::end) {
        // It has reported a panic.
        let _ = running.await;
    }
    Ok(())
}

pub struct Fleet<C>(Arc<Inner<C>>);

impl<C> Clone for Fleet<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C> Deref for Fleet<C> {
    type Target = Inner<C>;

    fn deref(&self) -> &Inner<C> {
        &self.0
    }
}

pub struct Inner<C> {
    seed: Arc<Seed<C>>,
    /// Namespaces of WorkerClusters.
    queue: Arc<Queue<String>>,
    conditions: Arc<ConditionGauge>,
    metrics: FleetMetrics,
    /// By namespace.
    tasks: Mutex<BTreeMap<String, Task>>,
}

/// A cluster that is served.
struct Task {
    of: Registration,
    /// How long its kubeconfig is valid.
    validity: Option<Validity>,
    settings: watch::Sender<Option<Arc<Current>>>,
    state: watch::Receiver<State>,
    since: Instant,
    running: JoinHandle<()>,
    /// Says when its kubeconfig expires.
    _expiry: Part,
    /// Ends it when this is dropped.
    _ends: DropGuard,
}

impl Task {
    /// Ends it, without waiting for what runs. The handle does that.
    fn end(self) -> JoinHandle<()> {
        self.running
    }
}

impl<C: Controller> Keys<String> for Fleet<C> {
    fn known(&self) -> Vec<String> {
        let clusters = self.seed.clusters.select(|_| true).into_iter();
        let mut known: BTreeSet<String> = clusters.map(|view| view.namespace.clone()).collect();
        known.extend(self.tasks.lock().keys().cloned());
        known.into_iter().collect()
    }

    /// The other replica serves the cluster. For a moment both may, as two replicas may work on one object.
    fn released(&self, namespace: &String) {
        drop(self.tasks.lock().remove(namespace));
        self.forget(namespace);
    }
}

impl<C: Controller> Fleet<C> {
    fn watch(&self, selector: Option<&str>) {
        let (seed, queue) = (&self.seed.cluster, self.queue.clone());
        let others = self.clone();
        let mut clusters = Watch::all(&seed.management, "workerclusters").at_most(MAX_CLUSTERS);
        if let Some(selector) = selector {
            clusters = clusters.labels(selector);
        }
        clusters
            .project(|cluster: WorkerCluster| Some(WorkerClusterView::of(cluster)))
            .into_cache(&self.seed.clusters)
            .on_change(move |change| {
                // A duplicate may be the only one now, or this one be a duplicate of another.
                let both = [&change.old, &change.new].into_iter().flatten();
                let uids = both.filter_map(|view| view.cluster_uid.clone());
                let uids: BTreeSet<String> = uids.collect();
                for view in uids.iter().flat_map(|uid| others.seed.clusters.group(uid)) {
                    others.queue.add(view.namespace.clone());
                }
                add_namespace(&queue, &change.key);
            })
            .spawn(seed);
        let queue = self.queue.clone();
        let name = worker_kubeconfig(seed.process.service.name());
        Watch::all(&seed.management, "kubeconfigs")
            .fields(&format!("metadata.name={name}"))
            .at_most(MAX_CLUSTERS)
            .project(|secret: Secret| Some(registration::kubeconfig(secret)))
            .into_cache(&self.seed.kubeconfigs)
            .on_change(move |change| add_namespace(&queue, &change.key))
            .spawn(seed);
    }

    /// What is to be said about the cluster that this task serves, and when to look again. What keeps it from
    /// being served comes before what is wrong with it otherwise.
    fn state(
        &self,
        view: &WorkerClusterView,
        task: Option<&Task>,
        problem: Option<State>,
        settings: Option<State>,
    ) -> (State, Option<Duration>) {
        let state = match (task, problem) {
            (_, Some(problem)) => problem,
            (None, None) => State::new(Reason::Connecting, ""),
            (Some(task), None) => task.state.borrow().clone(),
        };
        if state.reason != Reason::Serving {
            return (state, None);
        }
        let now = self.seed.cluster.management.server_time.now();
        let (expiry, look_again) = match task.and_then(|task| task.validity) {
            Some(validity) => registration::expiry(validity, &view.namespace, now),
            None => (None, None),
        };
        (settings.or(expiry).unwrap_or(state), look_again)
    }

    /// The condition that this service reports.
    fn condition(&self) -> &'static str {
        worker_cluster::condition(self.seed.cluster.process.service).unwrap_or_default()
    }

    /// Counts the namespaces that have objects of a cluster, and no WorkerCluster: nobody renews what was published
    /// there.
    async fn count_unregistered(&self) {
        // The seed may have machines of its own, and so configs that another release serves.
        let Ok(uid) = self.seed.cluster.management.uid().await else {
            return;
        };
        let is_unregistered = |namespace: &String| self.seed.view(namespace).is_none();
        let namespaces = self.seed.controller.namespaces_of_others(&uid).into_iter();
        let count = namespaces.filter(is_unregistered).count();
        self.metrics
            .unregistered
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Counts the cluster in the metrics. Returns whether nothing is reported about it yet.
    fn count(&self, view: &WorkerClusterView, state: &State) -> bool {
        let type_ = self.condition();
        let is_serving = state.reason == Reason::Serving;
        self.conditions
            .count(&view.namespace, type_, is_serving, state.reason);
        let is_problem = !matches!(state.reason, Reason::Serving | Reason::NotServed);
        self.metrics
            .problem(&view.namespace, is_problem.then_some(state.reason));
        condition::find(&view.conditions, type_).is_none()
    }

    async fn report(&self, view: &WorkerClusterView, state: &State) -> Result<(), Error> {
        let (api, service) = (self.seed.api(&view.namespace), self.seed.cluster.process.service);
        let now = self.seed.cluster.management.server_time.now();
        let verdict = state.verdict(self.condition());
        let written = status::report(&api, service.name(), view, &verdict, now).await;
        if let Some(written) = written.map_err(failed("the status of the WorkerCluster"))? {
            self.seed.saw(written);
        }
        Ok(())
    }

    fn forget(&self, namespace: &str) {
        self.conditions.forget(namespace, self.condition());
        self.metrics.problem(namespace, None);
    }

    /// Serves the cluster in this way from now on, once what served it before has ended. The last valid settings
    /// stay in force.
    fn start(&self, of: Registration, before: Option<Task>) -> Task {
        let mut scope = self.seed.cluster.scope.part();
        scope.workers = WORKERS;
        let last = before.as_ref().and_then(|task| task.settings.borrow().clone());
        let (settings, receiver) = watch::channel(last);
        let (sender, state) = watch::channel(State::new(
            Reason::Connecting,
            "the first attempt has not ended yet",
        ));
        let namespace = of.installation.namespace.clone();
        let serving = Serving {
            registration: of.clone(),
            scope: scope.clone(),
            settings: receiver,
            state: sender,
        };
        let (seed, ended) = (self.seed.clone(), scope.shutdown.clone());
        let served = async move {
            // It ends within the time limit of a reconcile, which a cluster that is away can use up.
            let before = OptionFuture::from(before.map(Task::end));
            if ended.run_until_cancelled(before).await.is_some() {
                task::serve(&seed, serving).await;
            }
        };
        let (expiry, validity) = (self.metrics.expiry.part(), of.validity());
        expiry.set(&[], validity.map(|(_, expiry)| expiry.as_second()));
        let served = served.instrument(tracing::error_span!("cluster", namespace));
        let running = scope.spawn_until(format!("cluster {namespace}"), &scope.shutdown, served);
        let (mut states, queue) = (state.clone(), self.queue.clone());
        scope.spawn(format!("state of cluster {namespace}"), async move {
            while states.changed().await.is_ok() {
                queue.add(namespace.clone());
            }
            // The task has ended, and this one ends with it.
            std::future::pending().await
        });
        Task {
            of,
            validity,
            _ends: scope.shutdown.clone().drop_guard(),
            settings,
            state,
            since: Instant::now(),
            running,
            _expiry: expiry,
        }
    }
}

fn add_namespace(queue: &Queue<String>, key: &str) {
    if let Some((namespace, _)) = key.split_once('/') {
        queue.add(namespace.to_owned());
    }
}

/// Starts, restarts or ends what serves the cluster of this namespace, and reports how that goes.
async fn reconcile<C: Controller>(fleet: Fleet<C>, namespace: String) -> Result<Option<Duration>, Error> {
    let running = fleet.tasks.lock().remove(&namespace);
    let Some(view) = fleet.seed.view(&namespace) else {
        if running.is_some() {
            tracing::info!(cluster = namespace, "no longer served");
        }
        fleet.forget(&namespace);
        return Ok(None);
    };
    let (task, problem) = next(&fleet, running, fleet.seed.wanted(&view)).await;
    let settings = settings_of(&fleet, &view, task.as_ref());
    let (state, look_again) = fleet.state(&view, task.as_ref(), problem, settings);
    let is_young = task
        .as_ref()
        .is_some_and(|task| task.since.elapsed() < TIME_TO_CONNECT);
    if let Some(task) = task {
        fleet.tasks.lock().insert(namespace, task);
    }
    let is_new = fleet.count(&view, &state);
    if state.reason == Reason::Connecting && is_young && !is_new {
        return Ok(Some(TIME_TO_CONNECT));
    }
    fleet.report(&view, &state).await?;
    Ok(look_again)
}

/// The task that serves the cluster from now on, and what is wrong with how it should be served.
async fn next<C: Controller>(
    fleet: &Fleet<C>,
    running: Option<Task>,
    wanted: Result<Registration, State>,
) -> (Option<Task>, Option<State>) {
    match (running, wanted) {
        (Some(task), Ok(wanted)) if task.of == wanted => (Some(task), None),
        (running, Ok(wanted)) => {
            let invalid = (fleet.seed.connect)(wanted.kubeconfig.clone()).await;
            let invalid = invalid.err().map(|problem| format!("{problem:#}"));
            match (running, invalid) {
                (Some(task), Some(problem)) if task.of.is_of_same(&wanted) => {
                    let message = format!("{problem}. The previous kubeconfig stays in use");
                    (Some(task), Some(State::new(Reason::KubeconfigInvalid, message)))
                }
                (_, Some(problem)) => (None, Some(State::new(Reason::KubeconfigInvalid, problem))),
                (running, None) => (Some(fleet.start(wanted, running)), None),
            }
        }
        (_, Err(problem)) => (None, Some(problem)),
    }
}

/// Gives the task the settings of its cluster. Returns what is wrong with them; the last valid ones stay in
/// force.
fn settings_of<C: Controller>(
    fleet: &Fleet<C>,
    view: &WorkerClusterView,
    task: Option<&Task>,
) -> Option<State> {
    let release = fleet.seed.cluster.settings.borrow().clone()?;
    let merged = settings::of_cluster(&release, &view.namespace, view.spec.settings.as_ref());
    let (current, problem) = match merged {
        Ok(current) => (Some(current), None),
        Err(problem) => (None, Some(problem)),
    };
    if let Some(task) = task {
        task.settings.send_if_modified(|last| {
            let mut next = current.clone().or_else(|| last.clone());
            if let (Some(next), Some(problem)) = (&mut next, &problem)
                && next.refused.as_ref() != Some(problem)
            {
                Arc::make_mut(next).refused = Some(problem.clone());
            }
            let differs = *last != next;
            *last = next;
            differs
        });
    }
    problem.map(|problem| State::new(Reason::SettingsInvalid, problem))
}
