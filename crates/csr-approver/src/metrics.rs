//! Metrics of this controller.

use osm_api::Reason;
use osm_runtime::Metrics;
use osm_runtime::metrics::label::{Label, REASON};
use prometheus::{Gauge, Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use crate::verdict::Denial;

const APPROVED: &str = "approved";

const DENIED: &str = "denied";

const OUTCOME: Label = Label::of("outcome", &[APPROVED, DENIED]);

/// Upper bounds of the time until an approval, in seconds. The API server records the creation of a request in whole seconds.
const APPROVAL_SECONDS: [f64; 6] = [1.0, 2.5, 10.0, 60.0, 300.0, 1800.0];

pub struct JoiningMetrics {
    decided: IntCounterVec,
    /// Pending requests by reason.
    pub pending: IntGaugeVec,
    /// Age of the oldest pending request of a pool that exists.
    pub oldest: Gauge,
    /// From the request to its approval.
    pub approval: Histogram,
    /// Requests beyond the bounds.
    pub dropped: IntCounter,
    /// Machines that have not joined in time.
    pub machines_without_node: IntGauge,
}

impl JoiningMetrics {
    /// # Errors
    /// Where the names are taken.
    pub fn new(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let catalog = &metrics.catalog;
        let all = Self {
            decided: catalog.counters(
                "joining_requests_total",
                "CertificateSigningRequests that were approved or denied, by reason.",
                &[OUTCOME, REASON],
            )?,
            pending: catalog.gauges(
                "joining_requests_pending",
                "CertificateSigningRequests that were left pending, by reason.",
                &[REASON],
            )?,
            oldest: catalog.float_gauge(
                "joining_oldest_pending_seconds",
                "Age of the oldest pending CertificateSigningRequest of a pool that exists; 0 if there is none.",
            )?,
            approval: catalog.histogram(
                "joining_approval_seconds",
                "Time from a CertificateSigningRequest to its approval.",
                &APPROVAL_SECONDS,
            )?,
            dropped: catalog.counter(
                "joining_requests_dropped_total",
                "CertificateSigningRequests beyond the bounds, which are ignored. A kubelet sends another one within 15 minutes.",
            )?,
            machines_without_node: catalog.gauge(
                "machines_without_node",
                "Machines of pools that have no Node 15 minutes after they were created.",
            )?,
        };
        // From zero, so that the rate of the first one is seen.
        for reason in [Reason::PoolMachine, Reason::ApprovedAgain] {
            all.decided.with_label_values(&[APPROVED, reason.as_str()]);
        }
        for reason in Denial::REASONS {
            all.decided.with_label_values(&[DENIED, reason.as_str()]);
        }
        Ok(all)
    }

    pub fn approved(&self, reason: Reason) {
        self.decided.with_label_values(&[APPROVED, reason.as_str()]).inc();
    }

    pub fn denied(&self, reason: Reason) {
        self.decided.with_label_values(&[DENIED, reason.as_str()]).inc();
    }
}
