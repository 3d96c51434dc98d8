//! What begins and ends together: the whole process, or the part of it that serves one worker cluster. Its
//! tasks run until its end. A task that ends before that would leave everything else ready, with something
//! in it that stands still. So its gate closes, and the scope ends: starting it again may help.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::process::Process;
use crate::readiness::Readiness;

/// Cheap to clone.
#[derive(Clone)]
pub struct Scope {
    pub process: Arc<Process>,
    /// What it waits for. A part waits for the gates of the process as well.
    pub gates: Readiness,
    /// Cancelled when it is to end.
    pub shutdown: CancellationToken,
    /// Reconciles of a controller that run at the same time.
    pub workers: u16,
}

impl Scope {
    /// The whole process.
    pub fn of(process: &Arc<Process>) -> Self {
        Self {
            process: process.clone(),
            gates: process.readiness.clone(),
            shutdown: process.shutdown.clone(),
            workers: process.args.concurrency,
        }
    }

    /// A part, which ends no later than this scope does. If one of its tasks fails, it ends alone.
    pub fn part(&self) -> Self {
        Self {
            process: self.process.clone(),
            gates: self.gates.part(),
            shutdown: self.shutdown.child_token(),
            workers: self.workers,
        }
    }

    /// Runs a task, which must not end, until the end of this scope.
    pub fn spawn(&self, what: impl Into<String>, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn_endless(what, &self.shutdown, task);
    }

    /// The same, until `end` is cancelled.
    pub fn spawn_endless(
        &self,
        what: impl Into<String>,
        end: &CancellationToken,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        // In a box, because a future has room for what it awaits, and once more for what that was made of. A fleet
        // has thousands of tasks.
        let (cancelled, task) = (end.clone(), Box::pin(task));
        self.spawn_until(what, end, async move {
            cancelled.run_until_cancelled(task).await;
        });
    }

    /// Runs `task`, which may end once `end` is cancelled, and returns a handle that waits for that. `what`
    /// names it in messages.
    pub fn spawn_until(
        &self,
        what: impl Into<String>,
        end: &CancellationToken,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let (scope, what, end) = (self.clone(), what.into(), end.clone());
        let task = Box::pin(task);
        let supervised = async move {
            let panicked = AssertUnwindSafe(task).catch_unwind().await.is_err();
            if panicked {
                scope.failed(&what, "panicked");
            } else if !end.is_cancelled() {
                scope.failed(&what, "ended unexpectedly");
            }
        };
        // Its lines in the log name the cluster, if there is one.
        tokio::spawn(supervised.in_current_span())
    }

    /// Ends the scope because of a task that can't go on. `how` follows "the task".
    fn failed(&self, what: &str, how: &str) {
        let problem = format!("the task {how}, and the service restarts; report this bug with the log");
        self.gates.gate(format!("task {what}")).report(problem);
        self.shutdown.cancel();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use osm_api::rbac::Service;

    use super::*;
    use crate::{CommonArgs, Environment};

    /// A process of osc-controller with the default flags.
    pub(crate) fn process() -> Scope {
        let args = CommonArgs::default();
        Scope::of(&Process::new(Service::OscController, args, Environment::default()).unwrap())
    }

    async fn outcome(scope: &Scope, task: impl Future<Output = ()> + Send + 'static) -> Vec<String> {
        let end = CancellationToken::new();
        scope.spawn_until("watch of pools", &end, task);
        scope.shutdown.cancelled().await;
        scope.gates.waiting()
    }

    #[tokio::test]
    async fn a_task_that_panics_or_ends_is_named_and_ends_its_scope_alone() {
        let process = process();
        let panicked = outcome(&process.part(), async { panic!("on purpose") }).await;
        assert!(
            panicked[0].starts_with("task watch of pools: the task panicked"),
            "{panicked:?}"
        );
        assert!(!process.shutdown.is_cancelled() && process.gates.waiting().is_empty());
        let ended = outcome(&process, async {}).await;
        assert!(ended[0].contains("ended unexpectedly"), "{ended:?}");
    }

    #[tokio::test]
    async fn a_task_that_ends_in_time_is_no_failure() {
        let (process, end) = (process(), CancellationToken::new());
        end.cancel();
        process.spawn_until("task", &end, async {}).await.unwrap();
        assert!(!process.shutdown.is_cancelled() && process.gates.waiting().is_empty());
    }
}
