//! Makes plans, which compile and render templates, outside the threads that renew Leases and answer probes.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use osm_runtime::threads;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::compiled::CompiledProfiles;
use crate::gather::Gathered;
use crate::plan::{self, Plan, Renderer};

/// Plans that are made at a time. Each can take as much memory as a profile may take, so more of them need a
/// larger memory limit.
const SLOTS: usize = 2;

/// Threads in which plans are made, a few at a time.
pub struct Planning {
    slots: Arc<Semaphore>,
    /// How long one reconcile waits for a slot. The rest of its time limit is for what it does with it.
    patience: Duration,
    profiles: Arc<CompiledProfiles>,
}

impl Planning {
    /// `time_limit` is that of a reconcile.
    pub fn new(time_limit: Duration) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(SLOTS)),
            patience: time_limit / 2,
            profiles: Arc::default(),
        }
    }

    /// Makes a plan in a thread. If the plans of other pools take too long, it is a plan that renders
    /// nothing.
    pub async fn plan(&self, gathered: &Arc<Gathered>) -> Plan {
        let (of, profiles) = (gathered.clone(), self.profiles.clone());
        let make = move |abandoned: &AtomicBool| {
            let profiles = &profiles;
            plan::plan(&of, Some(&Renderer { profiles, abandoned }))
        };
        // Tests of the whole protocol have one thread, so that they can be repeated.
        if Handle::current().runtime_flavor() != RuntimeFlavor::MultiThread {
            return make(&AtomicBool::new(false));
        }
        match self.slot().await {
            Some(slot) => run(slot, make).await,
            None => plan::plan(gathered, None),
        }
    }

    /// Waits for a slot, which is free again when the permit is dropped. `None`: no slot was free in time.
    async fn slot(&self) -> Option<OwnedSemaphorePermit> {
        let slot = timeout(self.patience, self.slots.clone().acquire_owned());
        // The semaphore is never closed.
        slot.await.ok()?.ok()
    }
}

/// Does this in a thread, which holds the slot until it is done. Its argument is set where the reconcile
/// exceeds its time limit; it must then end soon.
async fn run<T: Send + 'static>(
    slot: OwnedSemaphorePermit,
    make: impl FnOnce(&AtomicBool) -> T + Send + 'static,
) -> T {
    let work = move |abandoned: &AtomicBool| {
        let _slot = slot;
        make(abandoned)
    };
    match threads::run(work).await {
        Ok(made) => made,
        // The reconcile reports the panic. Blocking tasks are not cancelled.
        Err(error) => resume_unwind(Box::new(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const DEADLINE: Duration = Duration::from_secs(30);

    fn planning() -> Planning {
        Planning::new(2 * DEADLINE)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_plan_that_takes_long_stops_no_other_task_and_ends_when_it_is_abandoned() {
        static ENDED: AtomicUsize = AtomicUsize::new(0);
        let planning = planning();
        for ended in 1..=SLOTS + 1 {
            let make = |abandoned: &AtomicBool| {
                while !abandoned.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                ENDED.fetch_add(1, Ordering::SeqCst);
            };
            // The only thread of the runtime is free: otherwise the time limit would never be noticed.
            let slot = planning.slot().await.unwrap();
            let limit = Duration::from_millis(10);
            assert!(timeout(limit, run(slot, make)).await.is_err());
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
    async fn a_thread_holds_its_slot_until_it_is_done_even_if_nobody_waits_for_it() {
        static FINISH: AtomicBool = AtomicBool::new(false);
        let planning = planning();
        let slot = planning.slot().await.unwrap();
        let run = run(slot, |_| {
            while !FINISH.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        });
        assert!(timeout(Duration::from_millis(10), run).await.is_err());
        let free = planning.slots.available_permits();
        FINISH.store(true, Ordering::Relaxed);
        assert_eq!(free, SLOTS - 1);
        timeout(DEADLINE, async {
            while planning.slots.available_permits() < SLOTS {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await
        .unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_panic_is_passed_on_and_frees_its_slot() {
        let planning = Arc::new(planning());
        for _ in 0..=SLOTS {
            let planning = planning.clone();
            let reconcile = tokio::spawn(async move {
                let slot = planning.slot().await.unwrap();
                run(slot, |_| panic!("on purpose")).await
            });
            assert!(reconcile.await.is_err_and(|error| error.is_panic()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reconcile_waits_for_a_slot_for_half_of_its_time() {
        let (planning, began) = (planning(), tokio::time::Instant::now());
        let held = [planning.slot().await, planning.slot().await];
        assert!(planning.slot().await.is_none());
        assert_eq!(began.elapsed(), DEADLINE);
        drop(held);
        assert!(planning.slot().await.is_some());
    }
}
