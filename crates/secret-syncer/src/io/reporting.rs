//! Holds what reports about one cluster are made with: metrics, the gate for objects of another cluster, and what was reported
//! before.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use osm_api::condition::PUBLISHED;
use osm_runtime::cluster_gauge::{ClusterGauge, Part, Shows};
use osm_runtime::foreign_cluster::ForeignCluster;
use osm_runtime::metrics::ConditionGauge;
use osm_runtime::{Cluster, Metrics};
use parking_lot::Mutex;
use prometheus::{IntCounterVec, IntGaugeVec, Opts};

use crate::plan::findings::Cause;

pub struct Reporting {
    pub conditions: Arc<ConditionGauge>,
    pub foreign_cluster: ForeignCluster,
    earliest_expiry: Part,
    /// When each pool's first credential expires.
    expiries: Mutex<HashMap<String, Timestamp>>,
    /// Since when a config's reconciles fail.
    failing: Mutex<HashMap<String, Timestamp>>,
}

impl Reporting {
    pub fn new(metrics: &PublishMetrics, cluster: &Cluster) -> Self {
        Self {
            conditions: ConditionGauge::new(&cluster.process.metrics),
            foreign_cluster: ForeignCluster::new(cluster),
            earliest_expiry: metrics.earliest_expiry.part(),
            expiries: Mutex::default(),
            failing: Mutex::default(),
        }
    }

    /// The config is gone, or another replica's.
    pub fn forget(&self, config: &str) {
        self.conditions.forget(config, PUBLISHED);
        self.succeeded(config);
        self.note_expiry(config, None);
    }

    /// When the credentials of a pool expire; `None`: it has none, or another replica counts them.
    pub fn note_expiry(&self, config: &str, expiry: Option<Timestamp>) {
        let mut expiries = self.expiries.lock();
        match expiry {
            Some(expiry) => expiries.insert(config.to_owned(), expiry),
            None => expiries.remove(config),
        };
        let first = expiries.values().min();
        self.earliest_expiry
            .set(&[], first.map(|first| first.as_second()));
    }

    /// Returns since when the config's reconciles fail.
    pub fn failed(&self, config: &str, now: Timestamp) -> Timestamp {
        *self.failing.lock().entry(config.to_owned()).or_insert(now)
    }

    pub fn succeeded(&self, config: &str) {
        self.failing.lock().remove(config);
    }
}

/// Metrics of this controller besides reconciles and conditions.
pub struct PublishMetrics {
    pub publishes: IntCounterVec,
    pub earliest_expiry: Arc<ClusterGauge>,
}

impl PublishMetrics {
    /// # Errors
    /// Where a name is taken.
    pub fn new(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let catalog = &metrics.catalog;
        let expiry = Opts::new(
            "osm_credentials_earliest_expiry_timestamp_seconds",
            "When the first credential of any pool expires, in seconds since 1970; 0 without pools.",
        );
        let publishes = Opts::new(
            "osm_publishes_total",
            "Bootstrap Secrets written, by cause; one may have several.",
        );
        Ok(Self {
            publishes: catalog.add(IntCounterVec::new(publishes, &["cause"]))?,
            earliest_expiry: ClusterGauge::new(Shows::Least, catalog.add(IntGaugeVec::new(expiry, &[]))?),
        })
    }

    /// Counts a bootstrap Secret that was written for this cause.
    pub fn published(&self, cause: Cause) {
        self.publishes.with_label_values(&[<&str>::from(cause)]).inc();
    }
}
