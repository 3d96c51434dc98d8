//! Finds out whether the Go implementation runs in the worker cluster, by the Lease of its leader election.
//!
//! Both implementations would replace the objects of the other. So osc-controller and secret-syncer start nothing new while the Lease is being
//! renewed. They are not ready until something is published in this cluster. What is published is renewed in any case.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use osm_api::names::{GO_LEASE, KUBE_SYSTEM};
use tokio::time::Instant;

use crate::error::brief;
use crate::queue::{Priority, Queue};
use crate::readiness::Gate;
use crate::runner::{Key, Shared};
use crate::shared_problem::SharedProblem;
use crate::{Api, Cluster, Connection};

/// Interval of the checks. It is shorter than the 15 seconds after which the Lease of a replica that has stopped expires.
const INTERVAL: Duration = Duration::from_secs(10);

/// Interval until the first answer.
const RETRY: Duration = Duration::from_secs(2);

/// The longest time for which one renewal counts, whatever the Lease says.
const LONGEST_VALIDITY: Duration = Duration::from_secs(60);

/// Duration of a Lease that names none, as client-go sets it.
const DEFAULT_VALIDITY: i32 = 15;

const RUNS: &str = "it renews the Lease kube-system/operating-system-manager in this cluster; stop it with the script that `osmctl migrate \
                    script` prints";

/// Checks once, and then regularly until shutdown. Each key is queued when the result changes. `is_published`: whether anything is published
/// in this cluster.
pub async fn watch<K: Key>(
    cluster: &Cluster,
    queue: &Arc<Queue<K>>,
    shared: impl Shared<K>,
    is_published: impl Fn() -> bool + Send + Sync + 'static,
) {
    let mut check = Check {
        connection: cluster.worker.clone(),
        renewals: Renewals::default(),
        answer: None,
        gate: cluster.gates.gate("Go implementation"),
        problem: cluster.go_implementation.clone(),
    };
    let (queue, shutdown) = (queue.clone(), cluster.shutdown.clone());
    // Nothing may be started before the first answer.
    let first = check.look(&is_published);
    if shutdown.run_until_cancelled(first).await.is_none() {
        return;
    }
    let repeat = async move {
        loop {
            let pause = if check.answer.is_some() { INTERVAL } else { RETRY };
            tokio::time::sleep(pause).await;
            if check.look(&is_published).await {
                let known = shared.known().into_iter();
                known.for_each(|key| queue.add_with(key, Priority::Low));
            }
        }
    };
    let stop = shutdown.clone();
    cluster
        .supervisor()
        .spawn("Go implementation", &stop, async move {
            let _ = shutdown.run_until_cancelled(repeat).await;
        });
}

struct Check {
    connection: Connection,
    renewals: Renewals,
    /// The last answer. `None`: there was none yet.
    answer: Option<bool>,
    gate: Gate,
    problem: SharedProblem,
}

impl Check {
    /// Looks at the Lease. Returns whether the result is another one than before.
    async fn look(&mut self, is_published: &(impl Fn() -> bool + Sync)) -> bool {
        let found = self.found().await;
        match &found {
            Some(found) if !is_published() => self.gate.close(found.clone()),
            _ => self.gate.open(),
        }
        let has_changed = self.problem.note(found.clone());
        if has_changed {
            let cluster = self.connection.role().label();
            match found {
                Some(found) => tracing::error!(cluster, "Go implementation: {found}"),
                None => tracing::info!(cluster, "the Go implementation does not run"),
            }
        }
        has_changed
    }

    /// Why nothing new may be started. If the Lease can't be read, the last answer holds.
    async fn found(&mut self) -> Option<String> {
        let leases = Api::<Lease>::namespaced(self.connection.client.clone(), KUBE_SYSTEM);
        match leases.get_opt(GO_LEASE).await {
            Ok(lease) => {
                let spec = lease.and_then(|lease| lease.spec);
                let clock = self.connection.server_time.now();
                self.answer = Some(self.renewals.is_renewed(spec.as_ref(), clock, Instant::now()));
            }
            Err(error) if self.answer.is_none() => {
                let problem = brief(&error);
                return Some(format!(
                    "the Lease {KUBE_SYSTEM}/{GO_LEASE} can't be read yet: {problem}"
                ));
            }
            Err(_) => {}
        }
        (self.answer == Some(true)).then(|| RUNS.to_owned())
    }
}

/// What successive reads of a Lease have shown.
#[derive(Debug, Default)]
struct Renewals {
    last: Option<Renewal>,
}

#[derive(Debug)]
struct Renewal {
    time: Timestamp,
    seen: Instant,
    /// Another time was seen before.
    has_changed: bool,
}

impl Renewals {
    /// Whether the Lease is being renewed: its time was seen to change, or is recent by the `clock` of the API server. An old time that does
    /// not change is that of a replica that has stopped, even if the clocks differ.
    fn is_renewed(&mut self, lease: Option<&LeaseSpec>, clock: Timestamp, now: Instant) -> bool {
        let held = lease.filter(|lease| {
            lease
                .holder_identity
                .as_ref()
                .is_some_and(|holder| !holder.is_empty())
        });
        let Some((lease, time)) = held.and_then(|lease| Some((lease, lease.renew_time.as_ref()?.0))) else {
            return false;
        };
        let last = match self.last.take() {
            Some(last) if last.time == time => last,
            before => Renewal {
                time,
                seen: now,
                has_changed: before.is_some(),
            },
        };
        let seconds = lease.lease_duration_seconds.unwrap_or(DEFAULT_VALIDITY);
        let valid = Duration::from_secs(seconds.max(1).unsigned_abs().into()).min(LONGEST_VALIDITY);
        let is_recent = clock.duration_since(time).unsigned_abs() < valid;
        let is_renewed = (last.has_changed || is_recent) && now.duration_since(last.seen) < valid;
        self.last = Some(last);
        is_renewed
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;

    /// Each look is at a second, at a Lease that was renewed at another one; `None`: it does not exist.
    fn looks(looks: &[(i64, Option<i64>)]) -> Vec<bool> {
        let (start, began) = (Timestamp::from_second(1_800_000_000).unwrap(), Instant::now());
        let at = |second: i64| start + SignedDuration::from_secs(second);
        let mut renewals = Renewals::default();
        let look = |&(second, renewed): &(i64, Option<i64>)| {
            let lease = renewed.map(|renewed| LeaseSpec {
                holder_identity: Some("go".to_owned()),
                lease_duration_seconds: Some(15),
                renew_time: Some(MicroTime(at(renewed))),
                ..LeaseSpec::default()
            });
            let now = began + Duration::from_secs(second.unsigned_abs());
            renewals.is_renewed(lease.as_ref(), at(second), now)
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn a_lease_is_renewed_while_its_time_is_recent_or_changes() {
        for (what, steps, expected) in [
            ("no Lease", vec![(0, None), (10, None)], vec![false, false]),
            ("renewed", vec![(0, Some(-1)), (10, Some(9))], vec![true, true]),
            (
                "expired",
                vec![(0, Some(-15)), (10, Some(-15))],
                vec![false, false],
            ),
            ("starts", vec![(0, Some(-600)), (10, Some(9))], vec![false, true]),
            (
                "stops",
                vec![(0, Some(-1)), (10, Some(9)), (20, Some(9)), (30, Some(9))],
                vec![true, true, true, false],
            ),
            (
                "its clock is late",
                vec![
                    (0, Some(-600)),
                    (10, Some(-590)),
                    (20, Some(-590)),
                    (30, Some(-590)),
                ],
                vec![false, true, true, false],
            ),
            (
                "its clock is early, and it stops",
                vec![(0, Some(10)), (10, Some(10)), (20, Some(10))],
                vec![true, true, false],
            ),
            (
                "recreated",
                vec![(0, Some(-1)), (10, None), (20, Some(-600 + 20))],
                vec![true, false, true],
            ),
        ] {
            assert_eq!(looks(&steps), expected, "{what}");
        }
    }

    #[test]
    fn a_lease_without_a_holder_is_not_renewed_and_one_of_a_year_ends_within_a_minute() {
        let (clock, now) = (Timestamp::from_second(1_800_000_000).unwrap(), Instant::now());
        let lease = |holder: &str| LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(31_536_000),
            renew_time: Some(MicroTime(clock)),
            ..LeaseSpec::default()
        };
        let mut renewals = Renewals::default();
        assert!(!renewals.is_renewed(Some(&lease("")), clock, now));
        assert!(renewals.is_renewed(Some(&lease("go")), clock, now));
        assert!(!renewals.is_renewed(Some(&lease("go")), clock, now + LONGEST_VALIDITY));
    }
}
