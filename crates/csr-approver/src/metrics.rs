//! Metrics of this controller.

use osm_api::Reason;
use osm_runtime::Metrics;
use prometheus::{Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGaugeVec, Opts};

use crate::verdict::Denial;

pub struct JoiningMetrics {
    decided: IntCounterVec,
    /// Pending requests by reason.
    pub pending: IntGaugeVec,
    /// Age of the oldest pending request of a pool that exists.
    pub oldest: Gauge,
    /// From the request to its approval.
    pub approval: Histogram,
    /// Requests that were not remembered.
    pub forgotten: IntCounter,
}

impl JoiningMetrics {
    /// # Errors
    /// Where the names are taken.
    pub fn new(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let all = Self {
            decided: IntCounterVec::new(
                Opts::new(
                    "joining_requests_total",
                    "CertificateSigningRequests that were approved or denied, by reason.",
                ),
                &["outcome", "reason"],
            )?,
            pending: IntGaugeVec::new(
                Opts::new(
                    "joining_requests_pending",
                    "CertificateSigningRequests that were left pending, by reason.",
                ),
                &["reason"],
            )?,
            oldest: Gauge::new(
                "joining_oldest_pending_seconds",
                "Age of the oldest pending CertificateSigningRequest of a pool that exists; 0 if there is none.",
            )?,
            approval: Histogram::with_opts(
                HistogramOpts::new(
                    "joining_approval_seconds",
                    "Time from a CertificateSigningRequest to its approval.",
                )
                .buckets(vec![
                    0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0, 1800.0,
                ]),
            )?,
            forgotten: IntCounter::new(
                "joining_requests_forgotten_total",
                "CertificateSigningRequests beyond the bounds, which are listed again every five minutes.",
            )?,
        };
        // From zero, so that the rate of the first one is seen.
        for reason in [Reason::PoolMachine, Reason::ApprovedAgain] {
            all.decided.with_label_values(&["approved", reason.as_str()]);
        }
        for reason in Denial::REASONS {
            all.decided.with_label_values(&["denied", reason.as_str()]);
        }
        metrics.register(all.decided.clone())?;
        metrics.register(all.pending.clone())?;
        metrics.register(all.oldest.clone())?;
        metrics.register(all.approval.clone())?;
        metrics.register(all.forgotten.clone())?;
        Ok(all)
    }

    pub fn approved(&self, reason: Reason) {
        self.decided
            .with_label_values(&["approved", reason.as_str()])
            .inc();
    }

    pub fn denied(&self, reason: Reason) {
        self.decided.with_label_values(&["denied", reason.as_str()]).inc();
    }
}
