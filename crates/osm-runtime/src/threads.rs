//! Threads for work that takes processor time, such as rendering.
//!
//! A thread can't be ended from outside. Work ends early if it looks at a flag, which is set once nothing
//! waits for its result any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinError;

/// Does this in a thread, and waits for it. Dropping the future sets the argument of `work`, which must then
/// end soon.
///
/// # Errors
/// The work panicked.
pub async fn run<T: Send + 'static>(
    work: impl FnOnce(&AtomicBool) -> T + Send + 'static,
) -> Result<T, JoinError> {
    let abandoned = Arc::new(AtomicBool::new(false));
    let _abandon = Abandon(abandoned.clone());
    tokio::task::spawn_blocking(move || work(&abandoned)).await
}

/// Abandons work when it is dropped.
struct Abandon(Arc<AtomicBool>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
