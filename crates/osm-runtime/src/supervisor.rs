//! Tasks that run as long as the service. A task that ends before that would leave the service ready, with
//! something in it that stands still. So its gate closes, and the service stops: a restarted process may do
//! better.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::readiness::Readiness;

#[derive(Clone, Debug)]
pub struct Supervisor {
    gates: Readiness,
    stop: CancellationToken,
}

impl Supervisor {
    /// `stop` is cancelled if a task ends too early.
    pub fn new(gates: &Readiness, stop: &CancellationToken) -> Self {
        Self {
            gates: gates.clone(),
            stop: stop.clone(),
        }
    }

    /// Runs `task`, which may end once `end` is cancelled, and returns a handle that waits for that. `what`
    /// names it in messages.
    pub fn spawn(
        &self,
        what: impl Into<String>,
        end: &CancellationToken,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let (supervisor, what, end) = (self.clone(), what.into(), end.clone());
        tokio::spawn(async move {
            let panicked = AssertUnwindSafe(task).catch_unwind().await.is_err();
            if panicked {
                supervisor.failed(&what, "panicked");
            } else if !end.is_cancelled() {
                supervisor.failed(&what, "ended unexpectedly");
            }
        })
    }

    /// Stops the process because of a task that can't go on. `how` follows "the task".
    fn failed(&self, what: &str, how: &str) {
        let problem = format!("the task {how}, and the service restarts; report this bug with the log");
        self.gates.gate(format!("task {what}")).report(problem);
        self.stop.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn outcome(
        end: &CancellationToken,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Vec<String> {
        let (readiness, stop) = (Readiness::default(), CancellationToken::new());
        Supervisor::new(&readiness, &stop).spawn("watch of pools", end, task);
        if end.is_cancelled() {
            tokio::task::yield_now().await;
            assert!(!stop.is_cancelled());
        } else {
            stop.cancelled().await;
        }
        readiness.waiting()
    }

    #[tokio::test]
    async fn a_task_that_panics_or_ends_stops_the_process_and_is_named() {
        let running = CancellationToken::new();
        let panicked = outcome(&running, async { panic!("on purpose") }).await;
        assert!(
            panicked[0].starts_with("task watch of pools: the task panicked"),
            "{panicked:?}"
        );
        let ended = outcome(&running, async {}).await;
        assert!(ended[0].contains("ended unexpectedly"), "{ended:?}");
    }

    #[tokio::test]
    async fn a_task_that_ends_in_time_is_no_failure() {
        let end = CancellationToken::new();
        end.cancel();
        assert_eq!(outcome(&end, async {}).await, [""; 0]);
    }
}
