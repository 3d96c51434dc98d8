//! The metrics of a service that serves the user clusters of a seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use osm_api::Reason;
use parking_lot::Mutex;
use prometheus::{Error, IntGauge, IntGaugeVec, Opts};

use crate::cluster_gauge::{ClusterGauge, Shows};
use crate::metrics::Metrics;

pub struct FleetMetrics {
    /// When kubeconfigs expire.
    pub expiry: Arc<ClusterGauge>,
    /// Namespaces that lack a WorkerCluster.
    pub unregistered: IntGauge,
    problems: IntGaugeVec,
    /// What `problems` shows, by namespace.
    shown: Mutex<BTreeMap<String, Reason>>,
}

impl FleetMetrics {
    /// # Errors
    /// The name of a metric is taken.
    pub fn new(metrics: &Metrics) -> Result<Self, Error> {
        let expiry = Opts::new(
            "osm_kubeconfig_earliest_expiry_timestamp_seconds",
            "When the first kubeconfig of a WorkerCluster expires, in seconds since 1970; 0 if none does.",
        );
        let problems = Opts::new(
            "osm_cluster_problem",
            "1 for each user cluster that is not served, by the namespace of its WorkerCluster and the reason.",
        );
        let expiry = metrics.catalog.add(IntGaugeVec::new(expiry, &[]))?;
        Ok(Self {
            expiry: ClusterGauge::new(Shows::Least, expiry),
            unregistered: metrics.catalog.add(IntGauge::new(
                "osm_unregistered_namespaces",
                "Namespaces of the seed that have OperatingSystemConfigs and no WorkerCluster. Only osc-controller without a cluster selector counts them.",
            ))?,
            problems: metrics
                .catalog
                .add(IntGaugeVec::new(problems, &["cluster", "reason"]))?,
            shown: Mutex::default(),
        })
    }

    /// Shows why the cluster of this namespace is not served; `None`: it is, or should not be. A series exists only
    /// while there is a problem, so that there are few.
    pub fn problem(&self, namespace: &str, problem: Option<Reason>) {
        let mut shown = self.shown.lock();
        let before = match problem {
            Some(reason) => shown.insert(namespace.to_owned(), reason),
            None => shown.remove(namespace),
        };
        if before == problem {
            return;
        }
        if let Some(before) = before {
            // It exists.
            let _ = self.problems.remove_label_values(&[namespace, before.as_str()]);
        }
        if let Some(reason) = problem {
            self.problems
                .with_label_values(&[namespace, reason.as_str()])
                .set(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_has_a_series_while_it_has_a_problem() {
        let metrics = crate::scope::tests::process().process.metrics.clone();
        let fleet = FleetMetrics::new(&metrics).unwrap();
        let series = || {
            let text = String::from_utf8(metrics.encode()).unwrap();
            let series = text
                .lines()
                .filter(|line| line.starts_with("osm_cluster_problem{"));
            series.map(str::to_owned).collect::<Vec<_>>()
        };
        fleet.problem("a", Some(Reason::Unreachable));
        fleet.problem("b", Some(Reason::Slow));
        fleet.problem("a", Some(Reason::Unauthorized));
        fleet.problem("b", None);
        assert_eq!(
            series(),
            [r#"osm_cluster_problem{cluster="a",reason="Unauthorized"} 1"#]
        );
        fleet.problem("a", None);
        assert!(series().is_empty(), "{:?}", series());
    }
}
