//! Waiting for a condition, with a deadline.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How often a condition is looked at in the first two seconds. Then it is a fifth of that: the machine may
/// be busy.
const INTERVAL: Duration = Duration::from_millis(50);

/// Asks `condition` again and again until it gives a value. An error counts as "not yet".
///
/// # Errors
/// After `deadline`: names `what` was waited for, and the last error.
pub async fn wait_for<T>(
    what: &str,
    deadline: Duration,
    mut condition: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let started = Instant::now();
    let mut last_error = None;
    loop {
        let left = deadline.saturating_sub(started.elapsed());
        match tokio::time::timeout(left, condition()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => last_error = None,
            Ok(Err(error)) => last_error = Some(error),
            Err(_) => {}
        }
        if started.elapsed() >= deadline {
            match last_error {
                Some(error) => bail!("waited {deadline:?} in vain for {what}: {error:#}"),
                None => bail!("waited {deadline:?} in vain for {what}"),
            }
        }
        let is_late = started.elapsed() > 40 * INTERVAL;
        tokio::time::sleep(if is_late { 5 * INTERVAL } else { INTERVAL }).await;
    }
}

/// Turns a yes or no into what [`wait_for`] asks for.
///
/// # Errors
/// None; the type is what a condition returns.
pub fn check(holds: bool) -> Result<Option<()>> {
    Ok(holds.then_some(()))
}
