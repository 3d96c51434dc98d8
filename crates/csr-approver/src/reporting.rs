//! Remembers what was reported: pending requests, and Events of the last minutes.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use osm_api::Reason;
use osm_runtime::cluster_gauge::Part;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::metrics::JoiningMetrics;
use crate::requester::Requester;

/// An Event about a pool is repeated after this time, while its reason lasts. The API server deletes Events
/// after an hour by default, so one can always be found.
const EVENT_INTERVAL: Duration = Duration::from_secs(600);

pub struct Reporting {
    pub metrics: Arc<JoiningMetrics>,
    oldest: Part,
    pub machines_without_node: Part,
    pub nodeclient_binding_found: Part,
    pending: Mutex<HashMap<Requester, Pending>>,
    emitted: Mutex<HashMap<(String, &'static str), Instant>>,
}

/// The pending requests of a requester.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// How many there are, by reason.
    pub reasons: BTreeMap<Reason, i64>,
    /// When the oldest was created, of those whose pool exists.
    pub oldest: Option<Timestamp>,
}

impl Reporting {
    /// Of one cluster.
    pub fn new(metrics: &Arc<JoiningMetrics>) -> Self {
        Self {
            metrics: metrics.clone(),
            oldest: metrics.oldest.part(),
            machines_without_node: metrics.machines_without_node.part(),
            nodeclient_binding_found: metrics.nodeclient_binding_found.part(),
            pending: Mutex::default(),
            emitted: Mutex::default(),
        }
    }

    /// Counts the pending requests of a requester.
    pub fn count(&self, requester: &Requester, now: Pending, at: Timestamp) {
        let mut all = self.pending.lock();
        let is_empty = now.reasons.is_empty();
        let gauge = |reason: &Reason| self.metrics.pending.with_label_values(&[reason.as_str()]);
        for (reason, count) in &now.reasons {
            gauge(reason).add(*count);
        }
        let before = if is_empty {
            all.remove(requester)
        } else {
            all.insert(requester.clone(), now)
        };
        for (reason, count) in before.unwrap_or_default().reasons {
            gauge(&reason).sub(count);
        }
        let oldest = all.values().filter_map(|pending| pending.oldest).min();
        let age = oldest.map(|oldest| at.duration_since(oldest).as_secs().max(0));
        self.oldest.set(&[], age);
    }

    /// The requester has no requests, or belongs to another replica.
    pub fn forget(&self, requester: &Requester) {
        self.count(requester, Pending::default(), Timestamp::now());
    }

    /// A request is ignored.
    pub fn dropped(&self, requester: &Requester) {
        self.metrics.dropped.inc();
        if self.is_due(&requester.to_string(), "dropped") {
            tracing::warn!(%requester, "too many requests are pending, and further ones are ignored; find out who creates them");
        }
    }

    /// Whether to emit an Event about a pool now, given its uid, or to log the same about a requester.
    pub fn is_due(&self, about: &str, reason: &'static str) -> bool {
        let (mut emitted, now) = (self.emitted.lock(), Instant::now());
        emitted.retain(|_, at| now.duration_since(*at) < EVENT_INTERVAL);
        match emitted.entry((about.to_owned(), reason)) {
            Entry::Vacant(entry) => {
                entry.insert(now);
                true
            }
            Entry::Occupied(_) => false,
        }
    }
}

/// What is left of a cluster that ends is pending no longer.
impl Drop for Reporting {
    fn drop(&mut self) {
        for (reason, count) in self.pending.lock().values().flat_map(|pending| &pending.reasons) {
            self.metrics
                .pending
                .with_label_values(&[reason.as_str()])
                .sub(*count);
        }
    }
}

#[cfg(test)]
mod tests {
    use osm_runtime::Metrics;

    use super::*;

    fn reporting() -> (Metrics, Reporting) {
        let metrics = Metrics::of(osm_api::rbac::Service::CsrApprover).unwrap();
        let reporting = Reporting::new(&Arc::new(JoiningMetrics::new(&metrics).unwrap()));
        (metrics, reporting)
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_is_repeated_after_ten_minutes_and_each_pool_and_reason_has_its_own() {
        let (_, reporting) = reporting();
        let [exists, has_node] = [Reason::NodeExists, Reason::MachineHasNode].map(Reason::as_str);
        assert!(reporting.is_due("1", exists));
        assert!(!reporting.is_due("1", exists));
        assert!(reporting.is_due("2", exists));
        assert!(reporting.is_due("1", has_node));
        tokio::time::advance(EVENT_INTERVAL).await;
        assert!(reporting.is_due("1", exists));
        assert_eq!(
            reporting.emitted.lock().len(),
            1,
            "what is out of date is dropped"
        );
    }

    #[test]
    fn pending_requests_are_counted_once_and_the_oldest_is_that_of_all_requesters() {
        let (metrics, reporting) = reporting();
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let pending = |count: i64, oldest: i64| Pending {
            reasons: [(Reason::NodeExists, count)].into(),
            oldest: Some(at(oldest)),
        };
        let [pool, other] = ["osm-node-1", "osm-node-2"].map(|name| Requester(name.to_owned()));
        reporting.count(&pool, pending(3, 10), at(100));
        reporting.count(&pool, pending(2, 20), at(100));
        reporting.count(&other, pending(1, 40), at(100));
        let has = |line: &str| {
            let text = String::from_utf8(metrics.encode()).unwrap();
            assert!(text.contains(line), "{line} missing in\n{text}");
        };
        has(r#"osm_joining_requests_pending{reason="NodeExists"} 3"#);
        has("osm_joining_oldest_pending_seconds 80");
        reporting.forget(&pool);
        has(r#"osm_joining_requests_pending{reason="NodeExists"} 1"#);
        reporting.count(&other, Pending::default(), at(100));
        has(r#"osm_joining_requests_pending{reason="NodeExists"} 0"#);
        has("osm_joining_oldest_pending_seconds 0");
        assert!(reporting.pending.lock().is_empty());
        reporting.count(&other, pending(1, 40), at(100));
        drop(reporting);
        has(r#"osm_joining_requests_pending{reason="NodeExists"} 0"#);
        has("osm_joining_oldest_pending_seconds 0");
    }
}
