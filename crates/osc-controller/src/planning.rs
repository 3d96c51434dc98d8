//! Compiles profiles and makes plans, which render templates, outside the threads that renew Leases and answer probes.

use std::collections::HashMap;
use std::future::Future;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use osm_runtime::metrics::Catalog;
use osm_runtime::threads::Threads;
use parking_lot::Mutex;
use prometheus::PullingGauge;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// How many profiles are compiled and plans are made at a time. Each can take as much memory as a profile may take.
const SLOTS: usize = 2;

/// How long a pool waits for a slot until its condition says so.
const LONG: Duration = Duration::from_secs(60);

/// Threads in which profiles are compiled and plans are made, a few at a time.
pub struct Planning {
    slots: Arc<Semaphore>,
    threads: Threads,
    /// How long one reconcile waits for a slot. The rest of its time limit is for what it does with it.
    patience: Duration,
    waits: Waits,
}

/// By name of the config: since when it waits for a slot, over all its reconciles. Cheap to clone.
#[derive(Clone)]
pub struct Waits(Arc<Mutex<HashMap<String, Instant>>>);

impl Waits {
    /// # Errors
    /// The name of the metric is taken.
    pub fn new(catalog: &Catalog) -> Result<Self, prometheus::Error> {
        let waits = Self(Arc::default());
        let known = waits.clone();
        catalog.add(PullingGauge::new(
            "osm_render_wait_seconds",
            "How long the pool has waited that waits the longest for a thread to render in.",
            Box::new(move || {
                let oldest = known.0.lock().values().min().map(Instant::elapsed);
                oldest.map_or(0.0, |time| time.as_secs_f64())
            }),
        ))?;
        Ok(waits)
    }
}

/// A slot, which is free again when it is dropped. Tests of the whole protocol need none.
pub type Slot = Option<OwnedSemaphorePermit>;

/// The plans of other pools took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

impl Planning {
    /// `time_limit` is that of a reconcile.
    pub fn new(threads: Threads, time_limit: Duration, waits: Waits) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(SLOTS)),
            threads,
            patience: time_limit / 2,
            waits,
        }
    }

    /// Waits for a slot for the plan of a config.
    ///
    /// # Errors
    /// None was free in time.
    pub async fn slot(&self, config: &str) -> Result<Slot, Busy> {
        if !has_threads() {
            return Ok(None);
        }
        self.patiently(config, self.acquire()).await
    }

    /// The semaphore is never closed, so there always is a permit.
    async fn acquire(&self) -> Slot {
        self.slots.clone().acquire_owned().await.ok()
    }

    /// Does what needs a slot for a config, and notes since when the config waits for that.
    ///
    /// # Errors
    /// It took too long.
    pub async fn patiently<T>(&self, config: &str, work: impl Future<Output = T>) -> Result<T, Busy> {
        self.waits
            .0
            .lock()
            .entry(config.to_owned())
            .or_insert_with(Instant::now);
        let done = timeout(self.patience, work).await.map_err(|_| Busy)?;
        self.forget(config);
        Ok(done)
    }

    /// Whether a config has waited for so long that its condition says so.
    pub fn waits_long(&self, config: &str) -> bool {
        let waits = self.waits.0.lock();
        waits.get(config).is_some_and(|since| since.elapsed() >= LONG)
    }

    /// A config waits no longer, or is gone.
    pub fn forget(&self, config: &str) {
        self.waits.0.lock().remove(config);
    }

    /// Waits for a slot, and then does this as [`Planning::run`] does.
    pub async fn run_in_turn<T: Send + 'static>(
        &self,
        what: &str,
        abandoned: &Arc<AtomicBool>,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let slot = match has_threads() {
            true => self.acquire().await,
            false => None,
        };
        self.run(slot, what, abandoned, make).await
    }

    /// Does this in a thread, which holds the slot until it is done. `what` names it in messages. A reconcile that exceeds its time limit sets
    /// `abandoned`, and `make` must then end soon.
    pub async fn run<T: Send + 'static>(
        &self,
        slot: Slot,
        what: &str,
        abandoned: &Arc<AtomicBool>,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        if !has_threads() {
            return make();
        }
        let work = move || {
            let _slot = slot;
            make()
        };
        match self.threads.run(what, abandoned, work).await {
            Ok(made) => made,
            // The reconcile reports the panic. Blocking tasks are not cancelled.
            Err(error) => resume_unwind(Box::new(error.to_string())),
        }
    }
}

/// Tests of the whole protocol have one thread, so that they can be repeated.
fn has_threads() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use osm_runtime::Metrics;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const DEADLINE: Duration = Duration::from_secs(30);

    pub(crate) fn planning() -> Planning {
        let metrics = Metrics::of(osm_api::rbac::Service::OscController).unwrap();
        let waits = Waits::new(&metrics.catalog).unwrap();
        Planning::new(Threads::of_no_service(), 2 * DEADLINE, waits)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_plan_that_takes_long_stops_no_other_task_and_ends_when_it_is_abandoned() {
        static ENDED: AtomicUsize = AtomicUsize::new(0);
        let planning = planning();
        for ended in 1..=SLOTS + 1 {
            let abandoned = Arc::new(AtomicBool::new(false));
            let seen = abandoned.clone();
            let make = move || {
                while !seen.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                ENDED.fetch_add(1, Ordering::SeqCst);
            };
            // The only thread of the runtime is free: otherwise the time limit would never be noticed.
            let limit = Duration::from_millis(10);
            let result = timeout(limit, planning.run_in_turn("a", &abandoned, make)).await;
            assert!(result.is_err());
            timeout(DEADLINE, async {
                while ENDED.load(Ordering::SeqCst) < ended {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
            .await
            .unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn few_plans_are_made_at_a_time() {
        static RUNNING: Mutex<(usize, usize)> = Mutex::new((0, 0));
        let planning = Arc::new(planning());
        let make = || {
            {
                let mut running = RUNNING.lock().unwrap();
                running.0 += 1;
                running.1 = running.1.max(running.0);
            }
            std::thread::yield_now();
            RUNNING.lock().unwrap().0 -= 1;
        };
        let plans: Vec<_> = (0..50)
            .map(|_| {
                let planning = planning.clone();
                tokio::spawn(async move { planning.run_in_turn("a", &Arc::default(), make).await })
            })
            .collect();
        for plan in plans {
            timeout(DEADLINE, plan).await.unwrap().unwrap();
        }
        assert!((1..=SLOTS).contains(&RUNNING.lock().unwrap().1));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_panic_is_passed_on() {
        let planning = Arc::new(planning());
        for _ in 0..=SLOTS {
            let planning = planning.clone();
            let reconcile = tokio::spawn(async move {
                planning
                    .run_in_turn("a", &Arc::default(), || panic!("on purpose"))
                    .await
            });
            assert!(reconcile.await.is_err_and(|error| error.is_panic()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_config_that_waits_for_others_is_known_and_the_metric_shows_how_long() {
        let metrics = Metrics::of(osm_api::rbac::Service::OscController).unwrap();
        let waits = Waits::new(&metrics.catalog).unwrap();
        let planning = Planning::new(Threads::of_no_service(), LONG, waits);
        let waits = |seconds: &str| {
            let line = format!("osm_render_wait_seconds {seconds}\n");
            String::from_utf8(metrics.encode()).unwrap().contains(&line)
        };
        let held = [planning.acquire().await, planning.acquire().await];
        assert!(waits("0"));
        // The first reconcile gives up after half of its time, and the next one goes on waiting.
        assert!(planning.patiently("a", planning.acquire()).await.is_err());
        assert!(waits("30") && !planning.waits_long("a"));
        assert!(planning.patiently("a", planning.acquire()).await.is_err());
        assert!(waits("60") && planning.waits_long("a") && !planning.waits_long("b"));
        drop(held);
        assert!(planning.patiently("a", planning.acquire()).await.is_ok());
        assert!(waits("0") && !planning.waits_long("a"));
    }
}
