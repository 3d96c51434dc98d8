//! Runs reconciles from a queue, with bounded concurrency, a time limit and back-off. A panic ends only the
//! reconcile of its object. Keys that belong to another [replica](crate::replicas) are left to it.

use std::fmt::Display;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use osm_api::Reason;
use tracing::Instrument as _;

use crate::error::{Failure, LONGEST_DELAY};
use crate::queue::Queue;
use crate::readiness::{LEASE, is_vital};
use crate::replicas::{LeaseState, Replicas};
use crate::scope::Scope;
use crate::watch;

/// A replica joins the others as soon as it is ready, and after this time in any case: it may be the only
/// one.
const MAX_JOIN_DELAY: Duration = Duration::from_secs(5);

/// A key of the queue. Its text decides which replica owns it.
pub trait Key: Clone + Eq + Hash + Display + Send + Sync + 'static {}

impl Key for String {}

/// The keys of a controller in one cluster, which are divided among replicas.
pub trait Keys<K>: Clone + Send + Sync + 'static {
    /// Every key that may need a reconcile.
    fn known(&self) -> Vec<K>;

    /// Another replica owns this key now. Drop what is remembered of it, which would be out of date when the
    /// key comes back, and what is counted for it, which the other replica counts.
    fn released(&self, key: &K);
}

/// Waits until every watch is in step, then reconciles the keys of this replica until shutdown. Before that,
/// an object that no watch has shown yet would look like a deleted one. The replicas divide the keys; one that
/// is not ready gets none while another one is.
pub async fn work<K, S, F, Fut, E>(
    (scope, replicas): (&Scope, &Replicas),
    queue: Arc<Queue<K>>,
    keys: S,
    reconcile: F,
) where
    K: Key,
    S: Keys<K>,
    F: Fn(K) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Option<Duration>, E>> + Send + 'static,
    E: Failure + 'static,
{
    let ready = async {
        scope.gates.opened(watch::GATE).await;
        let all_open = scope
            .gates
            .until(|closed| closed.iter().all(|gate| gate == LEASE));
        let _ = tokio::time::timeout(MAX_JOIN_DELAY, all_open).await;
    };
    if scope.shutdown.run_until_cancelled(ready).await.is_none() {
        return;
    }
    scope.spawn(
        "requeue",
        wake_when_well(scope.clone(), queue.clone(), keys.clone()),
    );
    let share = follow_share(scope.clone(), replicas.clone(), queue.clone(), keys.clone());
    scope.spawn("share of the work", share);
    replicas.join();
    run(scope, queue, (replicas.clone(), keys), reconcile).await;
}

/// Queues every key of this replica whenever a missing right or the like has been granted. No watch reports
/// that, and failures that only a person can put right are retried rarely.
async fn wake_when_well<K: Key>(scope: Scope, queue: Arc<Queue<K>>, keys: impl Keys<K>) {
    let is_unwell = |closed: &[String]| closed.iter().any(|gate| is_vital(gate));
    loop {
        scope.gates.until(is_unwell).await;
        scope.gates.until(|closed| !is_unwell(closed)).await;
        keys.known().into_iter().for_each(|key| queue.add(key));
    }
}

/// Queues the keys that this replica now owns, to be reconciled, and those that it has lost, to be released;
/// all that it owns whenever its Lease has become valid.
async fn follow_share<K: Key>(scope: Scope, replicas: Replicas, queue: Arc<Queue<K>>, keys: impl Keys<K>) {
    let counted = scope.process.metrics.owned.part();
    let (mut lease, mut before) = (replicas.subscribe(), LeaseState::default());
    loop {
        let after = lease.borrow_and_update().clone();
        let mut owned = 0;
        for key in keys.known() {
            let (has, has_moved) = replicas.moved([&before, &after], &key.to_string());
            owned += usize::from(has);
            if has_moved {
                queue.add(key);
            }
        }
        counted.count(owned);
        before = after;
        // The sender lives as long as `replicas`, so that this can't fail.
        let _ = lease.changed().await;
    }
}

/// Works on the queue until the end of the scope; reconciles that run then are finished, within their time
/// limit.
///
/// A reconcile returns after which time the key is reconciled again without an event.
async fn run<K, S, F, Fut, E>(
    scope: &Scope,
    queue: Arc<Queue<K>>,
    (replicas, keys): (Replicas, S),
    reconcile: F,
) where
    K: Key,
    S: Keys<K>,
    F: Fn(K) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Option<Duration>, E>> + Send + 'static,
    E: Failure + 'static,
{
    let (metrics, timeout) = (&scope.process.metrics, scope.process.args.reconcile_timeout);
    let queued = Arc::new(metrics.queued.part());
    let worker = |number: u16| {
        let (metrics, queued) = (metrics.clone(), queued.clone());
        let (shutdown, queue, reconcile) = (scope.shutdown.clone(), queue.clone(), reconcile.clone());
        let (replicas, keys) = (replicas.clone(), keys.clone());
        scope.spawn_until(format!("worker {number}"), &scope.shutdown, async move {
            while let Some(key) = shutdown.run_until_cancelled(queue.next()).await {
                if shutdown.run_until_cancelled(replicas.hold()).await.is_none() {
                    break;
                }
                if !replicas.own(&key.to_string()) {
                    keys.released(&key);
                    queue.done(&key, None);
                    continue;
                }
                queued.count(queue.depth());
                let started = Instant::now();
                // A task of its own, so that a panic ends this reconcile and nothing else.
                let task = tokio::time::timeout(timeout, reconcile(key.clone()));
                let task = tokio::spawn(task.in_current_span());
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
    join_all((0..scope.workers).map(worker)).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CommonArgs, Process};
    use osm_api::rbac::Service;
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
    impl Keys<&'static str> for Nothing {
        fn known(&self) -> Vec<&'static str> {
            Vec::new()
        }
        fn released(&self, key: &&'static str) {
            panic!("{key} is ours");
        }
    }

    /// With so many workers.
    fn process(concurrency: u16) -> Scope {
        let args = CommonArgs {
            concurrency,
            reconcile_timeout: TIMEOUT,
            ..CommonArgs::default()
        };
        let environment = crate::Environment::default();
        Scope::of(&Process::new(Service::OscController, args, environment).unwrap())
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
    impl Keys<Poison> for Nothing {
        fn known(&self) -> Vec<Poison> {
            Vec::new()
        }
        fn released(&self, _: &Poison) {}
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_dies_stops_the_service_and_is_named() {
        let scope = process(3);
        let queue = Arc::new(Queue::new(&crate::Environment::default()));
        queue.add(Poison);
        let reconcile = |_| async { Ok::<_, Broken>(None) };
        let runner = run(&scope, queue, (Replicas::only(), Nothing), reconcile);
        tokio::time::timeout(Duration::from_secs(60), runner)
            .await
            .expect("the others end, too");
        assert!(scope.shutdown.is_cancelled());
        let waiting = scope.gates.waiting();
        let named = |line: &String| line.starts_with("task worker") && line.contains("panicked");
        assert!(waiting.iter().any(named), "{waiting:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn panic_hang_failure_and_conflict_stay_with_their_object() {
        let queue = Arc::new(Queue::new(&crate::Environment::default()));
        let scope = process(2);
        let (metrics, shutdown) = (scope.process.metrics.clone(), scope.shutdown.clone());
        // As many hang as there are workers.
        for key in ["panic", "hang", "hang too", "fail", "conflict", "good"] {
            queue.add(key);
        }
        let good = Arc::new(AtomicUsize::new(0));
        let count = good.clone();
        let reconcile = move |key: &'static str| {
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
        };
        let runner =
            tokio::spawn(async move { run(&scope, queue, (Replicas::only(), Nothing), reconcile).await });
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
    impl Keys<String> for Released {
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
        let scope = process(2);
        let shutdown = scope.shutdown.clone();
        (0..20).for_each(|number| queue.add(format!("pool-{number}")));
        let replicas = Replicas::among("this", &["other"]);
        let released = Released::default();
        let reconciled = Arc::<parking_lot::Mutex<Vec<String>>>::default();
        let seen = reconciled.clone();
        let share = (replicas.clone(), released.clone());
        let reconcile = move |key: String| {
            seen.lock().push(key);
            async { Ok::<_, Broken>(None) }
        };
        let runner = tokio::spawn(async move { run(&scope, queue, share, reconcile).await });
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
