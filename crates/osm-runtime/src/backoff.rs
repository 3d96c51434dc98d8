//! Waiting longer after each failure in a row.

use std::time::Duration;

use crate::Surroundings;

/// How long to wait after a failure: twice as long after each one in a row, and never the same for two processes.
pub(crate) struct Backoff {
    surroundings: Surroundings,
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// From `first` to `longest`; up to twice as much of either.
    pub(crate) fn new(surroundings: &Surroundings, first: Duration, longest: Duration) -> Self {
        Self { surroundings: surroundings.clone(), first, longest, failures: 0 }
    }

    /// It has failed once more.
    pub(crate) fn failed(&mut self) -> Duration {
        let doubled = self.first.saturating_mul(1 << self.failures.min(16)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        doubled.mul_f64(1.0 + self.surroundings.fraction())
    }

    /// It has not failed.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_in_a_row_doubles_it_up_to_the_longest() {
        let (first, longest) = (Duration::from_secs(1), Duration::from_secs(6));
        let mut backoff = Backoff::new(&Surroundings::default(), first, longest);
        for seconds in [1, 2, 4, 6, 6] {
            let (least, pause) = (Duration::from_secs(seconds), backoff.failed());
            assert!(least <= pause && pause < least * 2, "{pause:?} after {least:?}");
        }
        backoff.reset();
        assert!(backoff.failed() < first * 2);
    }
}
