//! Compiles profiles and makes plans, which render templates, outside the threads that renew Leases and answer probes.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

/// How many profiles are compiled and plans are made at a time. Each can take as much memory as a profile may take.
const SLOTS: usize = 2;

/// Threads in which profiles are compiled and plans are made, a few at a time.
pub struct Planning {
    slots: Arc<Semaphore>,
}

impl Default for Planning {
    fn default() -> Self {
        Self {
            slots: Arc::new(Semaphore::new(SLOTS)),
        }
    }
}

/// Abandons a plan when it is dropped.
struct Abandon(Arc<AtomicBool>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Planning {
    /// Does this in a blocking thread. A reconcile that exceeds its time limit sets `abandoned`, and `make` should then end early.
    pub async fn run<T: Send + 'static>(
        &self,
        abandoned: &Arc<AtomicBool>,
        make: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        if Handle::current().runtime_flavor() != RuntimeFlavor::MultiThread {
            // Tests of the whole protocol have one thread, so that they can be repeated.
            return make();
        }
        // The semaphore is never closed, so there always is a permit. The thread holds it until the plan is made.
        let slot = self.slots.clone().acquire_owned().await;
        let _abandon = Abandon(abandoned.clone());
        let work = move || {
            let _slot = slot;
            make()
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(made) => made,
            // The reconcile reports the panic. Blocking tasks are not cancelled.
            Err(error) => resume_unwind(Box::new(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    const DEADLINE: Duration = Duration::from_secs(30);

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_plan_that_takes_long_stops_no_other_task_and_ends_when_it_is_abandoned() {
        static ENDED: AtomicUsize = AtomicUsize::new(0);
        let planning = Planning::default();
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
            let result = tokio::time::timeout(limit, planning.run(&abandoned, make)).await;
            assert!(result.is_err());
            tokio::time::timeout(DEADLINE, async {
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
        let planning = Arc::new(Planning::default());
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
                tokio::spawn(async move { planning.run(&Arc::default(), make).await })
            })
            .collect();
        for plan in plans {
            tokio::time::timeout(DEADLINE, plan).await.unwrap().unwrap();
        }
        assert!((1..=SLOTS).contains(&RUNNING.lock().unwrap().1));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_panic_is_passed_on() {
        let planning = Arc::new(Planning::default());
        for _ in 0..=SLOTS {
            let planning = planning.clone();
            let reconcile =
                tokio::spawn(async move { planning.run(&Arc::default(), || panic!("on purpose")).await });
            assert!(reconcile.await.is_err_and(|error| error.is_panic()));
        }
    }
}
