//! Metrics of this controller.

use std::sync::Arc;

use osm_api::Reason;
use osm_runtime::Metrics;
use osm_runtime::cluster_gauge::{ClusterGauge, Shows};
use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGaugeVec, Opts};

use crate::verdict::Denial;

const APPROVED: &str = "approved";

const DENIED: &str = "denied";

/// Upper bounds of the time until an approval, in seconds. The API server records the creation of a request
/// in whole seconds.
const APPROVAL_SECONDS: [f64; 6] = [1.0, 2.5, 10.0, 60.0, 300.0, 1800.0];

pub struct JoiningMetrics {
    decided: IntCounterVec,
    /// Pending requests by reason.
    pub pending: IntGaugeVec,
    /// Age of the oldest pending request of a pool that exists, in seconds.
    pub oldest: Arc<ClusterGauge>,
    /// From the request to its approval.
    pub approval: Histogram,
    /// Requests beyond the bounds.
    pub dropped: IntCounter,
    /// Machines that have not joined in time.
    pub machines_without_node: Arc<ClusterGauge>,
    /// 1 in a cluster that has such a binding.
    pub nodeclient_binding_found: Arc<ClusterGauge>,
}

impl JoiningMetrics {
    /// # Errors
    /// Where the names are taken.
    pub fn new(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let catalog = &metrics.catalog;
        let of_clusters = |shows, name: &str, help: &str| {
            let gauge = catalog.add(IntGaugeVec::new(Opts::new(name, help), &[]))?;
            Ok::<_, prometheus::Error>(ClusterGauge::new(shows, gauge))
        };
        let decided = Opts::new(
            "osm_joining_requests_total",
            "CertificateSigningRequests that were approved or denied, by reason.",
        );
        let pending = Opts::new(
            "osm_joining_requests_pending",
            "CertificateSigningRequests that were left pending, by reason.",
        );
        let approval = HistogramOpts::new(
            "osm_joining_approval_duration_seconds",
            "Time from a CertificateSigningRequest to its approval.",
        );
        let all = Self {
            decided: catalog.add(IntCounterVec::new(decided, &["result", "reason"]))?,
            pending: catalog.add(IntGaugeVec::new(pending, &["reason"]))?,
            oldest: of_clusters(
                Shows::Greatest,
                "osm_joining_oldest_pending_seconds",
                "Age of the oldest pending CertificateSigningRequest of a pool that exists; 0 if there is none.",
            )?,
            approval: catalog.add(Histogram::with_opts(
                approval.buckets(APPROVAL_SECONDS.to_vec()),
            ))?,
            dropped: catalog.add(IntCounter::new(
                "osm_joining_requests_ignored_total",
                "CertificateSigningRequests beyond the bounds, which are ignored. A kubelet sends another one within 15 minutes.",
            ))?,
            machines_without_node: of_clusters(
                Shows::Sum,
                "osm_machines_without_node",
                "Machines of pools that have no Node 15 minutes after they were created.",
            )?,
            nodeclient_binding_found: of_clusters(
                Shows::Sum,
                "osm_nodeclient_binding_found",
                "Clusters in which kube-controller-manager approves the certificate of any node for ServiceAccounts of cloud-init-settings.",
            )?,
        };
        // From zero, so that the rate of the first one is seen.
        for reason in [Reason::AutoApproved, Reason::ApprovedAgain] {
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
