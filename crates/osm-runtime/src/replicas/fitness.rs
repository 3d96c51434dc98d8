//! Whether a replica is fit to own keys while other replicas live. Pure: no client, no clock.
//!
//! A replica that has never been ready may lack a right, the settings or newer CustomResourceDefinitions; while it does, the replicas that
//! it is to replace keep every key. One that was ready steps back only if it is known to be unable to work, and not for a moment.

use std::time::Duration;

use tokio::time::Instant;

use crate::readiness::{LEASE, is_vital};

/// A replica steps back after its problem has lasted this long.
const STEP_BACK_AFTER: Duration = Duration::from_secs(10);
/// A replica that has stepped back is fit again after it has been ready for this long.
const RETURN_AFTER: Duration = Duration::from_secs(30);

/// The fitness of one replica over time.
#[derive(Debug, Default)]
pub struct Fitness {
    is_fit: bool,
    was_fit: bool,
    /// Since when the gates speak for the opposite.
    doubted_since: Option<Instant>,
}

impl Fitness {
    /// Takes the names of the gates that are closed now; returns whether the replica is fit.
    pub fn judge(&mut self, closed: &[String], now: Instant) -> bool {
        let is_well = match self.is_fit {
            true => !closed.iter().any(|gate| is_vital(gate)),
            // This replica's own Lease says nothing about what it can do.
            false => closed.iter().all(|gate| gate == LEASE),
        };
        if is_well == self.is_fit {
            self.doubted_since = None;
            return self.is_fit;
        }
        let since = *self.doubted_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= self.patience() {
            (self.is_fit, self.was_fit) = (is_well, true);
            self.doubted_since = None;
        }
        self.is_fit
    }

    /// When to judge again though no gate moves.
    pub fn due(&self) -> Option<Instant> {
        self.doubted_since.map(|since| since + self.patience())
    }

    fn patience(&self) -> Duration {
        match (self.is_fit, self.was_fit) {
            (true, _) => STEP_BACK_AFTER,
            (false, true) => RETURN_AFTER,
            (false, false) => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readiness::{DEFINITIONS, RIGHTS};

    #[test]
    fn fit_once_ready_and_unfit_only_if_unable_for_a_while() {
        let begin = Instant::now();
        let mut fitness = Fitness::default();
        for (second, closed, fit, due) in [
            (0, vec!["watch of secrets", LEASE], false, None),
            (1, vec!["settings (ConfigMap n/s)"], false, None),
            (2, vec![RIGHTS], false, None),
            (3, vec![LEASE], true, None),
            // The last valid settings stay in force, and watches come back.
            (
                4,
                vec!["settings (ConfigMap n/s)", "watch of secrets"],
                true,
                None,
            ),
            (5, vec![DEFINITIONS], true, Some(15)),
            (14, vec![DEFINITIONS], true, Some(15)),
            (15, vec![], true, None),
            (20, vec!["credentials of the worker cluster"], true, Some(30)),
            (30, vec!["credentials of the worker cluster"], false, None),
            (40, vec![], false, Some(70)),
            // It has to be ready all the time.
            (50, vec!["watch of secrets"], false, None),
            (60, vec![], false, Some(90)),
            (90, vec![], true, None),
        ] {
            let closed: Vec<String> = closed.into_iter().map(str::to_owned).collect();
            let now = begin + Duration::from_secs(second);
            assert_eq!(fitness.judge(&closed, now), fit, "at {second} s, {closed:?}");
            let due = due.map(|due| begin + Duration::from_secs(due));
            assert_eq!(fitness.due(), due, "at {second} s, {closed:?}");
        }
    }
}
