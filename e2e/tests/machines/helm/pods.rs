//! The pods of a release, as a watch shows them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use parking_lot::{Mutex, MutexGuard};
use tokio::task::JoinSet;

/// The chart's label with the service that a pod is of.
const COMPONENT: &str = "app.kubernetes.io/component";

/// Selects the pods of releases of the chart.
pub const OURS: &str = "app.kubernetes.io/part-of=operating-system-manager";

/// Watches the pods of services in a namespace until it is dropped.
pub struct Pods {
    seen: Arc<Mutex<BTreeMap<String, Seen>>>,
    _watch: JoinSet<()>,
}

/// What was seen of a pod, by this process' clock.
#[derive(Clone, Debug)]
struct Seen {
    service: String,
    uid: String,
    /// It has a node, which has the image.
    scheduled: Option<Instant>,
    ready: Option<Instant>,
    restarts: i32,
    gone: bool,
}

impl Pods {
    /// Begins to watch.
    pub fn watch(client: Client, namespace: &str) -> Self {
        let pods = Api::<Pod>::namespaced(client, namespace);
        let seen = Arc::new(Mutex::new(BTreeMap::new()));
        let mut watch = JoinSet::new();
        watch.spawn(follow(pods, seen.clone()));
        Self { seen, _watch: watch }
    }

    fn seen(&self) -> MutexGuard<'_, BTreeMap<String, Seen>> {
        self.seen.lock()
    }

    /// Pods that are there, with how often their containers were started again.
    pub fn alive(&self) -> BTreeMap<String, i32> {
        let seen = self.seen();
        seen.iter()
            .filter(|(_, pod)| !pod.gone)
            .map(|(name, pod)| (name.clone(), pod.restarts))
            .collect()
    }

    /// Services of the pods that are there, with the pods' uids.
    pub fn services(&self) -> Vec<(String, String)> {
        let seen = self.seen();
        let alive = seen.values().filter(|pod| !pod.gone);
        alive.map(|pod| (pod.service.clone(), pod.uid.clone())).collect()
    }

    /// Containers that ended by themselves.
    pub fn restarts(&self) -> i32 {
        self.seen().values().map(|pod| pod.restarts).sum()
    }

    /// How long each pod took from its node to being ready, the shortest first.
    pub fn waits(&self) -> Vec<Duration> {
        let seen = self.seen();
        let took = |pod: &Seen| Some(pod.ready?.duration_since(pod.scheduled?));
        let mut waits: Vec<Duration> = seen.values().filter_map(took).collect();
        waits.sort();
        waits
    }
}

async fn follow(pods: Api<Pod>, seen: Arc<Mutex<BTreeMap<String, Seen>>>) {
    let mut events = std::pin::pin!(watcher(pods, watcher::Config::default().labels(OURS)).default_backoff());
    loop {
        match events.try_next().await {
            Ok(Some(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod))) => {
                note(&pod, &mut seen.lock())
            }
            Ok(Some(watcher::Event::Delete(pod))) => {
                if let Some(pod) = seen.lock().get_mut(&pod.name_any()) {
                    pod.gone = true;
                }
            }
            Ok(Some(_)) => {}
            Ok(None) => return,
            // It begins anew, after a while.
            Err(_) => {}
        }
    }
}

fn note(pod: &Pod, seen: &mut BTreeMap<String, Seen>) {
    let now = Instant::now();
    let service = pod.labels().get(COMPONENT).cloned().unwrap_or_default();
    let uid = pod.uid().unwrap_or_default();
    let new = || Seen {
        service,
        uid,
        scheduled: None,
        ready: None,
        restarts: 0,
        gone: false,
    };
    let known = seen.entry(pod.name_any()).or_insert_with(new);
    if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
        known.scheduled.get_or_insert(now);
    }
    let Some(status) = &pod.status else { return };
    let conditions = status.conditions.iter().flatten();
    if conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
    {
        known.ready.get_or_insert(now);
    }
    let containers = status.container_statuses.iter().flatten();
    known.restarts = containers.map(|container| container.restart_count).sum();
}
