//! Runs reconciles from a queue: bounded concurrency, a time limit, back-off, and a panic that stays with its object. Keys that
//! belong to another [replica](crate::replicas) are left to it.

use std::fmt::Display;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::metrics::{Metrics, Outcome};
use crate::queue::Queue;
use crate::replicas::{OnChange, Replicas};
use crate::{Context, watch};

/// At shutdown, others wait no longer than this for reconciles that run to be finished.
const HAND_OVER: Duration = Duration::from_secs(2);

/// What is worked on. Its text is what replicas go by.
pub trait Key: Clone + Eq + Hash + Display + Send + Sync + 'static {
    /// Whether each replica works on it for itself, rather than one for all.
    fn is_of_each(&self) -> bool {
        false
    }
}

impl Key for String {}

/// A controller whose keys are shared by replicas.
pub trait Shared<K>: Clone + Send + Sync + 'static {
    /// Every key that there may be work for.
    fn known(&self) -> Vec<K>;

    /// Another replica works on this key. What is remembered of it would be out of date when it comes back, and what is counted
    /// is counted there.
    fn released(&self, key: &K);
}

/// What a failed reconcile can tell about itself.
pub trait Failure: Display + Send {
    /// From the closed set of the controller.
    fn reason(&self) -> &'static str;
    /// Somebody else wrote in between: gather again, this is no failure.
    fn is_conflict(&self) -> bool;
}

/// Limits of a runner.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Reconciles at the same time.
    pub concurrency: usize,
    /// Longest time of one.
    pub timeout: Duration,
}

/// Waits until every watch is in step (before, an object that has yet to be shown would look like one that is gone),
/// then works until shutdown on those keys of the queue that are this replica's, among all that serve `installation`.
pub async fn work<K, S, F, Fut, E>(
    context: &Context,
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
    let (member, shutdown) = (Replicas::watch(context, installation), context.shutdown.clone());
    if shutdown.run_until_cancelled(context.readiness.opened(watch::GATE)).await.is_none() {
        return;
    }
    let limits =
        Limits { concurrency: context.args.concurrency.into(), timeout: context.args.reconcile_timeout() };
    let replicas = member.replicas().clone();
    let mut joined = member.join(wakes(queue.clone(), shared.clone()));
    let worked = CancellationToken::new();
    let work = async {
        run(queue, limits, context.metrics.clone(), shutdown.clone(), (replicas, shared), reconcile).await;
        worked.cancel();
    };
    let leave = async {
        if shutdown.run_until_cancelled(joined.broke_off()).await.is_some() {
            // Started anew, it may do better.
            return shutdown.cancel();
        }
        let _ = tokio::time::timeout(HAND_OVER, worked.cancelled()).await;
        joined.leave().await;
    };
    tokio::join!(work, leave);
}

/// Wakes the keys that have come to us, to be worked on, and those that have gone, to be released.
fn wakes<K: Key>(queue: Arc<Queue<K>>, shared: impl Shared<K>) -> OnChange {
    Box::new(move |replicas, before, after| {
        let mut owned = 0;
        for key in shared.known().into_iter().filter(|key| !key.is_of_each()) {
            let text = key.to_string();
            owned += usize::from(replicas.own(&text));
            if replicas.moved(&text, before, after) {
                queue.add(key);
            }
        }
        owned
    })
}

/// Works on the queue until `shutdown`; reconciles that run then are finished, within their time limit.
///
/// A reconcile returns when the key shall run again without an event.
pub async fn run<K, S, F, Fut, E>(
    queue: Arc<Queue<K>>,
    limits: Limits,
    metrics: Metrics,
    shutdown: CancellationToken,
    (replicas, shared): (Replicas, S),
    reconcile: F,
) where
    K: Key,
    S: Shared<K>,
    F: Fn(K) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Result<Option<Duration>, E>> + Send + 'static,
    E: Failure + 'static,
{
    let workers = (0..limits.concurrency).map(|_| {
        let (queue, metrics, shutdown, reconcile) = (queue.clone(), metrics.clone(), shutdown.clone(), reconcile.clone());
        let (replicas, shared) = (replicas.clone(), shared.clone());
        tokio::spawn(async move {
            while let Some(key) = shutdown.run_until_cancelled(queue.next()).await {
                if shutdown.run_until_cancelled(replicas.hold()).await.is_none() {
                    break;
                }
                if !key.is_of_each() && !replicas.own(&key.to_string()) {
                    shared.released(&key);
                    queue.done(&key, None);
                    continue;
                }
                metrics.queued.set(i64::try_from(queue.depth()).unwrap_or(i64::MAX));
                let started = Instant::now();
                // A task of its own, so that a panic ends this reconcile and nothing else.
                let task = tokio::spawn(tokio::time::timeout(limits.timeout, reconcile(key.clone())));
                let (outcome, reason) = match task.await {
                    Ok(Ok(Ok(again))) => {
                        queue.done(&key, again);
                        (Outcome::Success, "")
                    }
                    Ok(Ok(Err(error))) if error.is_conflict() => {
                        let delay = queue.failed(&key);
                        tracing::debug!(object = %key, %error, ?delay, "changed by somebody else, once more");
                        (Outcome::Conflict, error.reason())
                    }
                    Ok(Ok(Err(error))) => {
                        let delay = queue.failed(&key);
                        tracing::warn!(object = %key, reason = error.reason(), %error, ?delay, "reconcile failed");
                        (Outcome::Failure, error.reason())
                    }
                    Ok(Err(_)) => {
                        let delay = queue.failed(&key);
                        tracing::warn!(object = %key, limit = ?limits.timeout, ?delay, "reconcile took too long");
                        (Outcome::Timeout, "Timeout")
                    }
                    Err(error) => {
                        let delay = queue.failed(&key);
                        tracing::error!(object = %key, panic = error.is_panic(), ?delay, "reconcile broke off; please report this");
                        (Outcome::Panic, "Panic")
                    }
                };
                metrics.reconciled(outcome, reason, started.elapsed());
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        if let Err(error) = worker.await {
            tracing::error!(%error, "a worker broke off");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Debug)]
    struct Broken(bool);
    impl Display for Broken {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("broken")
        }
    }
    impl Failure for Broken {
        fn reason(&self) -> &'static str {
            "Broken"
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

    #[tokio::test(start_paused = true)]
    async fn panic_hang_failure_and_conflict_stay_with_their_object() {
        let queue = Arc::new(Queue::new(&crate::Surroundings::default()));
        let metrics = Metrics::new().unwrap();
        let shutdown = CancellationToken::new();
        for key in ["panic", "hang", "fail", "conflict", "good"] {
            queue.add(key);
        }
        let good = Arc::new(AtomicUsize::new(0));
        let count = good.clone();
        let limits = Limits { concurrency: 2, timeout: Duration::from_secs(5) };
        let runner = tokio::spawn(run(
            queue.clone(),
            limits,
            metrics.clone(),
            shutdown.clone(),
            (Replicas::only(), Nothing),
            move |key: &'static str| {
                let count = count.clone();
                async move {
                    match key {
                        "panic" => panic!("on purpose"),
                        "hang" => std::future::pending().await,
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
        for outcome in ["panic", "timeout", "failure", "conflict", "success"] {
            assert!(text.contains(&format!("outcome=\"{outcome}\"")), "{outcome}");
        }
    }
}
