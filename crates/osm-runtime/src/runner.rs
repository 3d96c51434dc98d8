//! Runs reconciles from a queue, with bounded concurrency, a time limit and back-off. A panic ends only the
//! reconcile of its object. Keys that belong to another [replica](crate::replicas) are left to it.

use std::fmt::Display;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use osm_api::Reason;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::error::{Failure, LONGEST_DELAY};
use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::readiness::{LEASE, is_vital};
use crate::replicas::{OnChange, Replicas};
use crate::supervisor::Supervisor;
use crate::watch;

/// A replica joins the others as soon as it is ready, and after this time in any case: it may be the only
/// one.
const MAX_JOIN_DELAY: Duration = Duration::from_secs(5);

/// A key of the queue. Its text decides which replica owns it.
pub trait Key: Clone + Eq + Hash + Display + Send + Sync + 'static {}

impl Key for String {}

/// A controller whose keys are divided among replicas.
pub trait Shared<K>: Clone + Send + Sync + 'static {
    /// Every key that may need a reconcile.
    fn known(&self) -> Vec<K>;

    /// Another replica owns this key now. Drop what is remembered of it, which would be out of date when the
    /// key comes back, and what is counted for it, which the other replica counts.
    fn released(&self, key: &K);
}

/// Waits until every watch is in step, then reconciles the keys of this replica until shutdown. Before that,
/// an object that no watch has shown yet would look like a deleted one. The replicas that serve
/// `installation` divide the keys; one that is not ready gets none while another one is.
pub async fn work<K, S, F, Fut, E>(
    cluster: &Cluster,
    installation: &str,
    queue: Arc<Queue<K>>,
    shared: S,
    reconcile: F,
) where
    K: Key,
    S: Shared<K>,
    F: Fn(K) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Option<Duration>, E>> + Send + 'static,
    E: Failure + 'static,
{
    let (member, shutdown) = (Replicas::watch(cluster, installation), cluster.shutdown.clone());
    let ready = async {
        cluster.gates.opened(watch::GATE).await;
        let all_open = cluster
            .gates
            .until(|closed| closed.iter().all(|gate| gate == LEASE));
        let _ = tokio::time::timeout(MAX_JOIN_DELAY, all_open).await;
    };
    if shutdown.run_until_cancelled(ready).await.is_none() {
        return;
    }
    let process = &cluster.process;
    let replicas = member.replicas().clone();
    let supervisor = cluster.supervisor();
    let wake = wake_when_well(cluster.clone(), queue.clone(), shared.clone());
    cluster.spawn("requeue", wake);
    let done = CancellationToken::new();
    let take_part = member.take_part(requeue_owned(queue.clone(), shared.clone()), done.clone());
    let member = supervisor.spawn(LEASE, &shutdown, take_part);
    run(
        queue,
        (process.args.concurrency, process.args.reconcile_timeout),
        process.metrics.clone(),
        (supervisor, shutdown),
        (replicas, shared),
        reconcile,
    )
    .await;
    done.cancel();
    // It has reported a panic.
    let _ = member.await;
}

/// Queues every key of this replica whenever a missing right or the like has been granted. No watch reports
/// that, and failures that only a person can put right are retried rarely.
async fn wake_when_well<K: Key>(cluster: Cluster, queue: Arc<Queue<K>>, shared: impl Shared<K>) {
    let is_unwell = |closed: &[String]| closed.iter().any(|gate| is_vital(gate));
    loop {
        cluster.gates.until(is_unwell).await;
        cluster.gates.until(|closed| !is_unwell(closed)).await;
        shared.known().into_iter().for_each(|key| queue.add(key));
    }
}

/// Queues the keys that this replica now owns, to be reconciled, and those that it has lost, to be released.
fn requeue_owned<K: Key>(queue: Arc<Queue<K>>, shared: impl Shared<K>) -> OnChange {
    Box::new(move |replicas, before, after| {
        let mut owned = 0;
        for key in shared.known().into_iter() {
            let text = key.to_string();
            let (had, has) = (replicas.owns(before, &text), replicas.owns(after, &text));
            owned += usize::from(has);
            if had != has {
                queue.add(key);
            }
        }
        owned
    })
}

/// Works on the queue until `shutdown`; reconciles that run then are finished, within their time limit.
///
/// A reconcile returns after which time the key is reconciled again without an event.
async fn run<K, S, F, Fut, E>(
    queue: Arc<Queue<K>>,
    (concurrency, timeout): (u16, Duration),
    metrics: Metrics,
    (supervisor, shutdown): (Supervisor, CancellationToken),
    (replicas, shared): (Replicas, S),
    reconcile: F,
) where
    K: Key,
    S: Shared<K>,
    F: Fn(K) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Option<Duration>, E>> + Send + 'static,
    E: Failure + 'static,
{
    let worker = |number: u16| {
        let end = shutdown.clone();
        let (queue, metrics, shutdown, reconcile) = (
            queue.clone(),
            metrics.clone(),
            shutdown.clone(),
            reconcile.clone(),
        );
        let (replicas, shared) = (replicas.clone(), shared.clone());
        supervisor.spawn(format!("worker {number}"), &end, async move {
            while let Some(key) = shutdown.run_until_cancelled(queue.next()).await {
                if shutdown.run_until_cancelled(replicas.hold()).await.is_none() {
                    break;
                }
                if !replicas.own(&key.to_string()) {
                    shared.released(&key);
                    queue.done(&key, None);
                    continue;
                }
                metrics.queued.set(i64::try_from(queue.depth()).unwrap_or(i64::MAX));
                let started = Instant::now();
                // A task of its own, so that a panic ends this reconcile and nothing else.
                let task = tokio::spawn(tokio::time::timeout(timeout, reconcile(key.clone())));
                let failed = || queue.failed(&key, LONGEST_DELAY);
                let (outcome, reason) = match task.await {
                    Ok(Ok(Ok(again))) => {
                        queue.done(&key, again);
                        ("success", "")
                    }
                    Ok(Ok(Err(error))) if error.is_conflict() => {
                        let delay = failed();
                        tracing::debug!(object = %key, %error, ?delay, "another writer changed the object; the reconcile is repeated");
                        ("conflict", error.reason().as_str())
                    }
                    Ok(Ok(Err(error))) => {
                        let reason = error.reason().as_str();
                        let delay = queue.failed(&key, error.longest_delay());
                        tracing::warn!(object = %key, reason, %error, ?delay, "reconcile failed");
                        ("failure", reason)
                    }
                    Ok(Err(_)) => {
                        let delay = failed();
                        tracing::warn!(object = %key, limit = ?timeout, ?delay, "the reconcile exceeded its time limit");
                        ("timeout", Reason::Timeout.as_str())
                    }
                    Err(error) => {
                        let delay = failed();
                        tracing::error!(object = %key, panic = error.is_panic(), ?delay, "the reconcile panicked; please report this");
                        ("panic", Reason::Panic.as_str())
                    }
                };
                metrics.reconciled(outcome, reason, started.elapsed());
            }
        })
    };
    join_all((0..concurrency).map(worker)).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Readiness;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const TIMEOUT: Duration = Duration::from_secs(5);

    #[derive(Debug)]
    struct Broken(bool);
    impl Display for Broken {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("broken")
        }
    }
    impl Failure for Broken {
        fn reason(&self) -> Reason {
            Reason::RequestFailed
        }
        fn is_conflict(&self) -> bool {
            self.0
        }
    }

    impl Key for &'static str {}

    #[derive(Clone)]
    struct Nothing;
    impl Shared<&'static str> for Nothing {
        fn known(&self) -> Vec<&'static str> {
            Vec::new()
        }
        fn released(&self, key: &&'static str) {
            panic!("{key} is ours");
        }
    }

    fn supervised(shutdown: &CancellationToken) -> (Supervisor, CancellationToken) {
        let supervisor = Supervisor::new(&Readiness::default(), shutdown);
        (supervisor, shutdown.clone())
    }

    /// A key that a worker can't even look at.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Poison;
    impl Display for Poison {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("on purpose")
        }
    }
    impl Key for Poison {}
    impl Shared<Poison> for Nothing {
        fn known(&self) -> Vec<Poison> {
            Vec::new()
        }
        fn released(&self, _: &Poison) {}
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_dies_stops_the_service_and_is_named() {
        let (readiness, shutdown) = (Readiness::default(), CancellationToken::new());
        let queue = Arc::new(Queue::new(&crate::Environment::default()));
        queue.add(Poison);
        let supervisor = Supervisor::new(&readiness, &shutdown);
        let reconcile = |_| async { Ok::<_, Broken>(None) };
        let runner = run(
            queue,
            (3, TIMEOUT),
            Metrics::of(osm_api::rbac::Service::OscController).unwrap(),
            (supervisor, shutdown.clone()),
            (Replicas::only(), Nothing),
            reconcile,
        );
        tokio::time::timeout(Duration::from_secs(60), runner)
            .await
            .expect("the others end, too");
        assert!(shutdown.is_cancelled());
        let waiting = readiness.waiting();
        let named = |line: &String| line.starts_with("task worker") && line.contains("panicked");
        assert!(waiting.iter().any(named), "{waiting:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn panic_hang_failure_and_conflict_stay_with_their_object() {
        let queue = Arc::new(Queue::new(&crate::Environment::default()));
        let metrics = Metrics::of(osm_api::rbac::Service::OscController).unwrap();
        let shutdown = CancellationToken::new();
        // As many hang as there are workers.
        for key in ["panic", "hang", "hang too", "fail", "conflict", "good"] {
            queue.add(key);
        }
        let good = Arc::new(AtomicUsize::new(0));
        let count = good.clone();
        let runner = tokio::spawn(run(
            queue.clone(),
            (2, TIMEOUT),
            metrics.clone(),
            supervised(&shutdown),
            (Replicas::only(), Nothing),
            move |key: &'static str| {
                let count = count.clone();
                async move {
                    match key {
                        "panic" => panic!("on purpose"),
                        "hang" | "hang too" => std::future::pending().await,
                        "fail" => Err(Broken(false)),
                        "conflict" => Err(Broken(true)),
                        _ => {
                            count.fetch_add(1, Ordering::SeqCst);
                            Ok(Some(Duration::from_secs(1)))
                        }
                    }
                }
            },
        ));
        tokio::time::timeout(Duration::from_secs(100), async {
            while good.load(Ordering::SeqCst) < 10 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
        .await
        .expect("the good object is worked on whatever the others do");
        shutdown.cancel();
        runner.await.unwrap();
        let text = String::from_utf8(metrics.encode()).unwrap();
        for result in ["panic", "timeout", "failure", "conflict", "success"] {
            assert!(text.contains(&format!("result=\"{result}\"")), "{result}");
        }
    }

    #[derive(Clone, Default)]
    struct Released(Arc<parking_lot::Mutex<Vec<String>>>);
    impl Shared<String> for Released {
        fn known(&self) -> Vec<String> {
            Vec::new()
        }
        fn released(&self, key: &String) {
            self.0.lock().push(key.clone());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_of_another_replica_is_released_and_not_reconciled() {
        let queue = Arc::new(Queue::new(&crate::Environment::default()));
        let shutdown = CancellationToken::new();
        (0..20).for_each(|number| queue.add(format!("pool-{number}")));
        let replicas = Replicas::among("this", &["other"]);
        let released = Released::default();
        let reconciled = Arc::<parking_lot::Mutex<Vec<String>>>::default();
        let seen = reconciled.clone();
        let runner = tokio::spawn(run(
            queue,
            (2, TIMEOUT),
            Metrics::of(osm_api::rbac::Service::OscController).unwrap(),
            supervised(&shutdown),
            (replicas.clone(), released.clone()),
            move |key: String| {
                seen.lock().push(key);
                async { Ok::<_, Broken>(None) }
            },
        ));
        tokio::time::sleep(Duration::from_secs(10)).await;
        shutdown.cancel();
        runner.await.unwrap();
        let (released, reconciled) = (released.0.lock().clone(), reconciled.lock().clone());
        assert!(reconciled.iter().all(|key| replicas.own(key)), "{reconciled:?}");
        assert!(!released.iter().any(|key| replicas.own(key)), "{released:?}");
        assert!(!reconciled.is_empty() && !released.is_empty());
        assert_eq!(reconciled.len() + released.len(), 20);
    }
}
