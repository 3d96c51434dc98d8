//! Checks that are repeated from the start until they find no problem. Readiness waits for that.

use std::future::Future;
use std::time::Duration;

use crate::environment::Environment;
use crate::readiness::Gate;
use crate::scope::Scope;

/// Begins a problem that says nothing about what is checked: the API server gave no answer.
pub(crate) const UNCHECKED: &str = "can't be checked yet";

/// Pauses while there is a problem. At the very start, what is missing may just have been created.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// Bounds how late a service notices that the problem is solved.
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// Starts a check, which returns the problem that it finds. `name` is that of its gate.
pub(crate) fn spawn<F, Fut>(scope: &Scope, name: String, check: F)
where
    F: Fn() -> Fut + Send + 'static,
    Fut: Future<Output = Option<String>> + Send,
{
    let gate = scope.gates.gate(&name);
    let environment = scope.process.environment.clone();
    scope.spawn(name, async move {
        // In a box, which goes with the check.
        Box::pin(repeat(gate, environment, check)).await;
        // The check is done, but a supervised task must not end.
        std::future::pending().await
    });
}

async fn repeat<Fut: Future<Output = Option<String>>>(
    gate: Gate,
    environment: Environment,
    check: impl Fn() -> Fut,
) {
    let mut failures = 0;
    while let Some(problem) = check().await {
        gate.report(problem);
        failures += 1;
        let pause = environment.delay(failures, FIRST_PAUSE, LONGEST_PAUSE);
        tokio::time::sleep(pause).await;
    }
    gate.open();
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;
    use crate::Readiness;

    #[tokio::test(start_paused = true)]
    async fn a_problem_is_reported_until_it_is_solved() {
        let problem = Arc::new(Mutex::new(Some("missing".to_owned())));
        let readiness = Readiness::default();
        let (gate, found) = (readiness.gate("permissions"), problem.clone());
        let running = tokio::spawn(repeat(gate, Environment::default(), move || {
            std::future::ready(found.lock().clone())
        }));
        tokio::time::sleep(LONGEST_PAUSE).await;
        assert_eq!(readiness.waiting(), ["permissions: missing"]);
        *problem.lock() = None;
        tokio::time::sleep(LONGEST_PAUSE * 2).await;
        assert_eq!(readiness.waiting(), [""; 0]);
        running.await.unwrap();
    }
}
