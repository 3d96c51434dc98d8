//! The clock and the random numbers of a process. Model tests provide their own, so that a run can be
//! repeated.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rand::RngCore;

type Fill = dyn Fn(&mut [u8]) + Send + Sync;

/// The clock and the random numbers of a process. Cheap to clone.
#[derive(Clone)]
pub struct Environment {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    fill: Arc<Fill>,
}

impl Environment {
    /// An environment for model tests; the services use the default.
    pub fn new(
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
        fill: impl Fn(&mut [u8]) + Send + Sync + 'static,
    ) -> Self {
        Self {
            now: Arc::new(now),
            fill: Arc::new(fill),
        }
    }

    pub fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// Random bytes, strong enough for a key.
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        (self.fill)(&mut bytes);
        bytes
    }

    /// A random number from 0 to 1.
    pub fn fraction(&self) -> f64 {
        f64::from(u32::from_le_bytes(self.bytes())) / f64::from(u32::MAX)
    }

    /// The delay after so many consecutive failures, the last one included. It is doubled each time up to
    /// `longest`, times a random factor from 0.75 to 1.25 that keeps processes from retrying at the same
    /// time.
    pub(crate) fn delay(&self, failures: u32, first: Duration, longest: Duration) -> Duration {
        let doubled = first.saturating_mul(1 << failures.saturating_sub(1).min(16));
        doubled.min(longest).mul_f64(0.75 + self.fraction() / 2.0)
    }
}

impl Default for Environment {
    fn default() -> Self {
        Self::new(Timestamp::now, |bytes| rand::rng().fill_bytes(bytes))
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}
