//! Threads for work that takes processor time, such as rendering.
//!
//! A thread can't be ended from outside. Work ends early if it looks at a flag, which is set once nothing waits for its result any more.
//! A thread that goes on even so holds its slot for good. So the service stops, and a restarted process does better: its Leases are
//! given up, and other replicas go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

use crate::Readiness;
use crate::supervisor::Supervisor;

/// How long a thread may go on after its work was abandoned. Work looks at the flag many times in a second.
const MAX_DELAY: Duration = Duration::from_secs(10);

/// Runs work in threads of its own. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Threads {
    supervisor: Supervisor,
    max_delay: Duration,
}

impl Threads {
    /// The service stops by `supervisor` if a thread does not come back.
    pub fn new(supervisor: Supervisor) -> Self {
        Self {
            supervisor,
            max_delay: MAX_DELAY,
        }
    }

    /// Threads of no service. For tests.
    #[must_use]
    pub fn of_no_service() -> Self {
        let gates = Readiness::default();
        Self::new(Supervisor::new(&gates, &CancellationToken::new()))
    }

    /// Does this in a thread, and waits for it. Dropping the future sets `abandoned`, and `work` must then end soon. `what` names it in
    /// messages.
    ///
    /// # Errors
    /// The work panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        what: impl Into<String>,
        abandoned: &Arc<AtomicBool>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let ended = CancellationToken::new();
        let _abandon = Abandon {
            threads: self.clone(),
            what: what.into(),
            abandoned: abandoned.clone(),
            ended: ended.clone(),
        };
        let ends = ended.drop_guard();
        tokio::task::spawn_blocking(move || {
            let _ends = ends;
            work()
        })
        .await
    }
}

/// Abandons work when it is dropped, and sees to it that its thread ends.
struct Abandon {
    threads: Threads,
    what: String,
    abandoned: Arc<AtomicBool>,
    ended: CancellationToken,
}

impl Drop for Abandon {
    fn drop(&mut self) {
        self.abandoned.store(true, Ordering::Relaxed);
        // While the runtime shuts down, the process ends anyway.
        let Some(runtime) = Handle::try_current().ok().filter(|_| !self.ended.is_cancelled()) else {
            return;
        };
        let (threads, what, ended) = (
            self.threads.clone(),
            std::mem::take(&mut self.what),
            self.ended.clone(),
        );
        runtime.spawn(async move {
            if tokio::time::timeout(threads.max_delay, ended.cancelled())
                .await
                .is_err()
            {
                threads
                    .supervisor
                    .failed(&what, "goes on in its thread although nothing waits for it");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const DEADLINE: Duration = Duration::from_secs(30);

    fn threads() -> (Threads, Readiness, CancellationToken) {
        let (readiness, stop) = (Readiness::default(), CancellationToken::new());
        let threads = Threads::new(Supervisor::new(&readiness, &stop));
        (threads, readiness, stop)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_thread_that_does_not_come_back_stops_the_service_and_is_named() {
        let (threads, readiness, stop) = threads();
        let threads = Threads {
            max_delay: Duration::from_millis(10),
            ..threads
        };
        let (end, ends) = mpsc::channel::<()>();
        let abandoned = Arc::default();
        let hung = threads.run("rendering of a", &abandoned, move || ends.recv().is_err());
        assert!(
            tokio::time::timeout(Duration::from_millis(1), hung)
                .await
                .is_err()
        );
        assert!(abandoned.load(Ordering::Relaxed));
        tokio::time::timeout(DEADLINE, stop.cancelled()).await.unwrap();
        let waiting = readiness.waiting();
        assert!(
            waiting[0].starts_with("task rendering of a: the task goes on in its thread"),
            "{waiting:?}"
        );
        drop(end);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn one_that_ends_once_it_is_abandoned_does_not() {
        let (threads, readiness, stop) = threads();
        let threads = Threads {
            max_delay: DEADLINE,
            ..threads
        };
        let (abandoned, (ended, ends)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
        let seen = abandoned.clone();
        let work = threads.run("a", &abandoned, move || {
            while !seen.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            ended.send(()).unwrap();
        });
        assert!(
            tokio::time::timeout(Duration::from_millis(1), work)
                .await
                .is_err()
        );
        tokio::task::spawn_blocking(move || ends.recv_timeout(DEADLINE).unwrap())
            .await
            .unwrap();
        assert_eq!(threads.run("b", &Arc::default(), || 7).await.unwrap(), 7);
        assert!(
            threads
                .run("c", &Arc::default(), || panic!("on purpose"))
                .await
                .unwrap_err()
                .is_panic()
        );
        assert!(!stop.is_cancelled());
        assert_eq!(readiness.waiting(), [""; 0]);
    }
}
