//! Metrics of this controller besides reconciles and conditions.

use osm_runtime::Metrics;
use prometheus::{IntCounterVec, IntGauge, Opts};

use crate::plan::cause::Cause;

pub struct PublishMetrics {
    pub publishes: IntCounterVec,
    pub non_expiring_tokens: IntGauge,
    pub joining_open: IntGauge,
    pub joining_open_unknown: IntGauge,
    pub earliest_expiry: IntGauge,
}

impl PublishMetrics {
    /// # Errors
    /// Where a name is taken.
    pub fn new(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let catalog = &metrics.catalog;
        let gauge = |name: &str, help: &str| catalog.add(IntGauge::new(name, help));
        let publishes = Opts::new(
            "osm_publishes_total",
            "Bootstrap Secrets written, by cause; one may have several.",
        );
        Ok(Self {
            publishes: catalog.add(IntCounterVec::new(publishes, &["cause"]))?,
            non_expiring_tokens: gauge(
                "osm_non_expiring_tokens",
                "Secrets in cloud-init-settings with a ServiceAccount's token that never expires. OSM creates no such Secret.",
            )?,
            joining_open: gauge(
                "osm_joining_open",
                "1 while kube-controller-manager approves the certificate of any node for ServiceAccounts of cloud-init-settings.",
            )?,
            joining_open_unknown: gauge(
                "osm_joining_open_unknown",
                "1 while secret-syncer cannot determine osm_joining_open, which then has its last value.",
            )?,
            earliest_expiry: gauge(
                "osm_credentials_earliest_expiry_timestamp_seconds",
                "When the first credential of any pool expires, in seconds since 1970; 0 without pools.",
            )?,
        })
    }

    /// Counts a bootstrap Secret that was written for this cause.
    pub fn published(&self, cause: Cause) {
        self.publishes.with_label_values(&[<&str>::from(cause)]).inc();
    }
}
