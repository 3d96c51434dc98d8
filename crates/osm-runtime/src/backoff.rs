//! Delays that double after each consecutive failure.

use std::time::Duration;

use crate::Environment;

/// The delay doubles after each consecutive failure. A random part keeps processes from retrying at the same time.
pub(crate) struct Backoff {
    environment: Environment,
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// Delays from `first` to `longest`; the random part adds up to as much again.
    pub(crate) fn new(environment: &Environment, first: Duration, longest: Duration) -> Self {
        Self {
            environment: environment.clone(),
            first,
            longest,
            failures: 0,
        }
    }

    /// Returns the delay after another failure.
    pub(crate) fn failed(&mut self) -> Duration {
        let doubled = doubled(self.first, self.failures).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        doubled.mul_f64(1.0 + self.environment.fraction())
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A duration after so many doublings.
pub(crate) fn doubled(first: Duration, times: u32) -> Duration {
    first.saturating_mul(1 << times.min(16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_in_a_row_doubles_it_up_to_the_longest() {
        let (first, longest) = (Duration::from_secs(1), Duration::from_secs(6));
        let mut backoff = Backoff::new(&Environment::default(), first, longest);
        for seconds in [1, 2, 4, 6, 6] {
            let (least, pause) = (Duration::from_secs(seconds), backoff.failed());
            assert!(least <= pause && pause < least * 2, "{pause:?} after {least:?}");
        }
        backoff.reset();
        assert!(backoff.failed() < first * 2);
    }
}
