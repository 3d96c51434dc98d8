//! When a config is reconciled again though nothing changes.

use std::time::Duration;

use jiff::Timestamp;

/// Each config is reconciled at least this often: timers don't count the time that a machine sleeps.
pub const MAX_REQUEUE_INTERVAL: Duration = Duration::from_secs(600);

/// Time from `now` to `at`, at least a second.
pub fn until(now: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now))
        .unwrap_or_default()
        .max(Duration::from_secs(1))
}
