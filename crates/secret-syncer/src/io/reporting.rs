//! What reports are made with: metrics, the gate for objects of another cluster, and what was reported before.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use osm_api::condition::PUBLISHED;
use osm_runtime::foreign_cluster::ForeignCluster;
use osm_runtime::metrics::ConditionGauge;
use osm_runtime::{Cluster, Process};
use parking_lot::Mutex;

use crate::io::metrics::PublishMetrics;
use crate::plan::legacy_tokens::Reported;

pub struct Reporting {
    pub conditions: Arc<ConditionGauge>,
    pub foreign_cluster: ForeignCluster,
    pub metrics: PublishMetrics,
    pub legacy_tokens: Mutex<Reported>,
    expiries: Mutex<Expiries>,
    /// Since when a config's reconciles fail.
    failing: Mutex<HashMap<String, Timestamp>>,
}

impl Reporting {
    /// # Errors
    /// Metrics whose names are taken.
    pub fn new(process: &Process, cluster: &Cluster) -> Result<Self, prometheus::Error> {
        Ok(Self {
            conditions: ConditionGauge::new(&process.metrics),
            foreign_cluster: ForeignCluster::new(cluster),
            metrics: PublishMetrics::new(&process.metrics)?,
            legacy_tokens: Mutex::default(),
            expiries: Mutex::default(),
            failing: Mutex::default(),
        })
    }

    /// The config is gone, or another replica's.
    pub fn forget(&self, config: &str) {
        self.conditions.forget(config, PUBLISHED);
        self.succeeded(config);
        self.note_expiry(config, None);
    }

    /// Another replica reports non-expiring tokens from now on.
    pub fn forget_legacy_tokens(&self) {
        self.metrics.non_expiring_tokens.set(0);
        self.legacy_tokens.lock().clear();
    }

    /// When the credentials of a pool expire; `None`: it has none, or another replica counts them.
    pub fn note_expiry(&self, config: &str, expiry: Option<Timestamp>) {
        let mut expiries = self.expiries.lock();
        expiries.note(config, expiry.map(Timestamp::as_second));
        self.metrics.earliest_expiry.set(expiries.first());
    }

    /// Returns since when the config's reconciles fail.
    pub fn failed(&self, config: &str, now: Timestamp) -> Timestamp {
        *self.failing.lock().entry(config.to_owned()).or_insert(now)
    }

    pub fn succeeded(&self, config: &str) {
        self.failing.lock().remove(config);
    }
}

/// When each pool's first credential expires, in seconds since 1970.
#[derive(Debug, Default)]
struct Expiries {
    of: HashMap<String, i64>,
    ordered: BTreeSet<(i64, String)>,
}

impl Expiries {
    fn note(&mut self, pool: &str, expiry: Option<i64>) {
        if let Some(old) = self.of.remove(pool) {
            self.ordered.remove(&(old, pool.to_owned()));
        }
        if let Some(expiry) = expiry {
            self.of.insert(pool.to_owned(), expiry);
            self.ordered.insert((expiry, pool.to_owned()));
        }
    }

    /// The first of all; 0 where there is none.
    fn first(&self) -> i64 {
        self.ordered.first().map_or(0, |(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_expiry_is_that_of_the_pools_that_are_there() {
        let mut expiries = Expiries::default();
        assert_eq!(expiries.first(), 0);
        expiries.note("a", Some(20));
        expiries.note("b", Some(10));
        assert_eq!(expiries.first(), 10);
        expiries.note("b", Some(30));
        assert_eq!(expiries.first(), 20);
        expiries.note("a", None);
        assert_eq!(expiries.first(), 30);
    }
}
