//! What osmctl waits for, on standard error. It appears on a terminal only, and only if reading takes longer than a second.

use std::cell::Cell;
use std::future::Future;
use std::io::{IsTerminal, Write};
use std::pin::pin;
use std::time::Duration;

use tokio::time::Instant;

const VISIBLE_AFTER: Duration = Duration::from_secs(1);

/// Erases a line of a terminal.
const ERASE: &str = "\r\x1b[2K";

pub struct Progress {
    is_terminal: bool,
    visible_from: Instant,
    is_shown: Cell<bool>,
}

impl Progress {
    pub fn new() -> Self {
        Self {
            is_terminal: std::io::stderr().is_terminal(),
            visible_from: Instant::now() + VISIBLE_AFTER,
            is_shown: Cell::new(false),
        }
    }

    /// Waits for a request, and shows `what` it is about if that takes long.
    pub async fn during<T>(&self, what: &str, request: impl Future<Output = T>) -> T {
        if !self.is_terminal {
            return request.await;
        }
        let mut request = pin!(request);
        tokio::select! {
            biased;
            done = &mut request => return done,
            () = tokio::time::sleep_until(self.visible_from) => self.show(what),
        }
        request.await
    }

    fn show(&self, what: &str) {
        self.is_shown.set(true);
        let mut stderr = std::io::stderr();
        // A terminal that is gone is no reason to stop.
        _ = write!(stderr, "{ERASE}osmctl: reading {what} …");
        _ = stderr.flush();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown.get() {
            eprint!("{ERASE}");
        }
    }
}
