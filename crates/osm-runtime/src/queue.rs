//! A work queue with timers and per-key back-off. Each key is in it at most once, and is worked on at most
//! once at a time.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::environment::Environment;

/// Delay after the first failure; doubled by each further one. Most failures are conflicts, which end once a
/// watch shows the other write; it needs some milliseconds.
const FIRST_DELAY: Duration = Duration::from_millis(250);

/// Keys to be reconciled. Memory is bounded by the number of distinct keys.
#[derive(Debug)]
pub struct Queue<K> {
    state: Mutex<State<K>>,
    changed: Notify,
    environment: Environment,
}

#[derive(Debug)]
struct State<K> {
    /// Keys that wait for a worker, in the order in which they were added.
    ready: VecDeque<K>,
    /// The same keys.
    waiting: HashSet<K>,
    running: HashSet<K>,
    /// Added while running: runs again.
    dirty: HashSet<K>,
    timers: BTreeMap<(Instant, u64), K>,
    timer_of: HashMap<K, (Instant, u64)>,
    /// Consecutive failures that have lengthened the delay.
    failures: HashMap<K, u32>,
    sequence: u64,
}

impl<K: Clone + Eq + Hash> Queue<K> {
    pub fn new(environment: &Environment) -> Self {
        let state = State {
            ready: VecDeque::new(),
            waiting: HashSet::new(),
            running: HashSet::new(),
            dirty: HashSet::new(),
            timers: BTreeMap::new(),
            timer_of: HashMap::new(),
            failures: HashMap::new(),
            sequence: 0,
        };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            environment: environment.clone(),
        }
    }

    /// Queues `key` for work at once. A key that is queued already keeps its place.
    pub fn add(&self, key: K) {
        self.state.lock().add(key);
        self.changed.notify_one();
    }

    /// Number of keys that are ready or being worked on.
    pub fn depth(&self) -> usize {
        let state = self.state.lock();
        state.ready.len() + state.running.len()
    }

    /// The next key to work on; [`Queue::done`] or [`Queue::failed`] must follow. Safe to cancel.
    pub async fn next(&self) -> K {
        loop {
            let changed = self.changed.notified();
            let due = {
                let mut state = self.state.lock();
                state.fire_timers();
                if let Some(key) = state.ready.pop_front() {
                    state.waiting.remove(&key);
                    state.running.insert(key.clone());
                    // Another worker has to wait for what is left.
                    if !state.ready.is_empty() || !state.timers.is_empty() {
                        self.changed.notify_one();
                    }
                    return key;
                }
                state.timers.first_key_value().map(|((at, _), _)| *at)
            };
            match due {
                Some(at) => {
                    let _ = tokio::time::timeout_at(at, changed).await;
                }
                None => changed.await,
            }
        }
    }

    /// Work on `key` has succeeded; `requeue_after` sets its timer.
    pub fn done(&self, key: &K, requeue_after: Option<Duration>) {
        let mut state = self.state.lock();
        state.failures.remove(key);
        state.finish(key, requeue_after);
        drop(state);
        self.changed.notify_one();
    }

    /// Work on `key` has failed and is repeated after the returned delay, which grows with each consecutive
    /// failure up to `longest`.
    ///
    /// An attempt that an event caused before the delay was over does not lengthen it. Otherwise a burst of
    /// events during an outage would postpone the recovery.
    pub fn failed(&self, key: &K, longest: Duration) -> Duration {
        let mut state = self.state.lock();
        let pending = state
            .timer_of
            .get(key)
            .map(|(at, _)| at.saturating_duration_since(Instant::now()));
        let pending = pending.filter(|_| state.failures.contains_key(key));
        let failures = state.failures.entry(key.clone()).or_default();
        let delay = match pending {
            // The failure before may have been one that is repeated rarely.
            Some(left) => left.min(longest),
            None => {
                *failures = failures.saturating_add(1);
                self.environment.delay(*failures, FIRST_DELAY, longest)
            }
        };
        state.finish(key, Some(delay));
        drop(state);
        self.changed.notify_one();
        delay
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    fn add(&mut self, key: K) {
        if self.running.contains(&key) {
            self.dirty.insert(key);
        } else if self.waiting.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    fn finish(&mut self, key: &K, requeue_after: Option<Duration>) {
        self.running.remove(key);
        if let Some(timer) = self.timer_of.remove(key) {
            self.timers.remove(&timer);
        }
        if let Some(delay) = requeue_after {
            self.sequence += 1;
            let timer = (Instant::now() + delay, self.sequence);
            self.timers.insert(timer, key.clone());
            self.timer_of.insert(key.clone(), timer);
        }
        if self.dirty.remove(key) {
            self.add(key.clone());
        }
    }

    fn fire_timers(&mut self) {
        let now = Instant::now();
        while let Some(entry) = self.timers.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let key = entry.remove();
            self.timer_of.remove(&key);
            self.add(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{LONGEST_DELAY, LONGEST_DELAY_OF_PERMANENT};
    use futures::FutureExt;

    fn fail(queue: &Queue<&'static str>, key: &'static str) -> Duration {
        queue.failed(&key, LONGEST_DELAY)
    }

    fn try_next(queue: &Queue<&'static str>) -> Option<&'static str> {
        queue.next().now_or_never()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_never_worked_on_twice_at_once_and_no_change_is_lost() {
        let queue = Queue::new(&Environment::default());
        queue.add("a");
        queue.add("a");
        assert_eq!(try_next(&queue), Some("a"));
        queue.add("a");
        assert_eq!(try_next(&queue), None, "a is at work");
        queue.done(&"a", None);
        assert_eq!(try_next(&queue), Some("a"), "what came meanwhile is not lost");
        queue.done(&"a", None);
        assert_eq!(try_next(&queue), None);
    }

    #[tokio::test(start_paused = true)]
    async fn timers_fire_and_the_last_one_counts() {
        let queue = Queue::new(&Environment::default());
        queue.add("a");
        let key = queue.next().await;
        queue.done(&key, Some(Duration::from_secs(100)));
        queue.add("a");
        let key = queue.next().await;
        queue.done(&key, Some(Duration::from_secs(10)));
        let before = Instant::now();
        assert_eq!(queue.next().await, "a");
        assert_eq!(before.elapsed().as_secs(), 10);
        queue.done(&"a", None);
        assert!(
            tokio::time::timeout(Duration::from_secs(1000), queue.next())
                .await
                .is_err()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn failures_back_off_until_a_success() {
        let queue = Queue::new(&Environment::default());
        queue.add("a");
        let mut last = Duration::ZERO;
        for _ in 0..6 {
            let key = queue.next().await;
            let delay = fail(&queue, key);
            assert!(delay > last.mul_f64(1.1), "{delay:?} after {last:?}");
            last = delay;
        }
        let key = queue.next().await;
        queue.done(&key, None);
        queue.add("a");
        let key = queue.next().await;
        assert!(fail(&queue, key) < Duration::from_secs(1));
        for longest in [LONGEST_DELAY, LONGEST_DELAY_OF_PERMANENT] {
            let delay = Environment::default().delay(1000, FIRST_DELAY, longest);
            assert!((longest.mul_f64(0.75)..=longest.mul_f64(1.25)).contains(&delay));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn events_do_not_lengthen_the_delay() {
        let queue = Queue::new(&Environment::default());
        queue.add("a");
        let key = queue.next().await;
        let first = fail(&queue, key);
        for _ in 0..20 {
            queue.add("a");
            let key = queue.next().await;
            let delay = fail(&queue, key);
            assert!(delay <= first, "{delay:?} after {first:?}");
        }
        // Once the delay is over, the next failure counts.
        let key = queue.next().await;
        assert!(fail(&queue, key) > first);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_retried_rarely_does_not_delay_what_may_pass() {
        let queue = Queue::new(&Environment::default());
        queue.add("a");
        let mut last = Duration::ZERO;
        for _ in 0..14 {
            let key = queue.next().await;
            last = queue.failed(&key, LONGEST_DELAY_OF_PERMANENT);
        }
        assert!(last >= LONGEST_DELAY_OF_PERMANENT.mul_f64(0.75), "{last:?}");
        queue.add("a");
        let key = queue.next().await;
        assert!(fail(&queue, key) <= LONGEST_DELAY);
    }
}
