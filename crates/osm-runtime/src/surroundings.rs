//! What a service takes from the world besides the API server: the time of day, and chance. A model of the world gives its own.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use rand::RngCore;

type Fill = dyn Fn(&mut [u8]) + Send + Sync;

/// The clock and the dice of a process; cheap to clone.
#[derive(Clone)]
pub struct Surroundings {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    fill: Arc<Fill>,
}

impl Surroundings {
    /// Surroundings of a model: its time, and what it calls random.
    pub fn new(
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
        fill: impl Fn(&mut [u8]) + Send + Sync + 'static,
    ) -> Self {
        Self { now: Arc::new(now), fill: Arc::new(fill) }
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// Random bytes, good enough for a key.
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        (self.fill)(&mut bytes);
        bytes
    }

    /// A random number from 0 to 1.
    pub fn fraction(&self) -> f64 {
        f64::from(u32::from_le_bytes(self.bytes())) / f64::from(u32::MAX)
    }
}

impl Default for Surroundings {
    fn default() -> Self {
        Self::new(Timestamp::now, |bytes| rand::rng().fill_bytes(bytes))
    }
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Surroundings")
    }
}
