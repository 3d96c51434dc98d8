//! Metrics of a service. Values of labels come from the code or from the API; none is the name of an object.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use osm_api::Reason;
use osm_api::rbac::Service;
use parking_lot::Mutex;
use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{
    Encoder, Error, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

use crate::cluster_gauge::{ClusterGauge, Shows};

/// Upper bounds of durations, in seconds.
pub(crate) const SECONDS: [f64; 8] = [0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0];

/// Hexadecimal digits of a digest whose number a gauge holds exactly: 48 bits. Prometheus stores numbers as
/// floats, which hold 53 bits exactly.
const DIGITS: usize = 12;

/// Everything that `/metrics` serves. Cheap to clone.
#[derive(Clone, Default)]
pub struct Catalog {
    registry: Registry,
    /// The metrics of the service, also those that have no value yet.
    pub added: Arc<Mutex<Vec<Box<dyn Collector>>>>,
}

impl Catalog {
    /// Adds a metric that was made.
    ///
    /// # Errors
    /// That of the metric, or its name is taken.
    pub fn add<C: Collector + Clone + 'static>(&self, metric: Result<C, Error>) -> Result<C, Error> {
        let metric = metric?;
        self.registry.register(Box::new(metric.clone()))?;
        self.added.lock().push(Box::new(metric.clone()));
        Ok(metric)
    }
}

/// Metrics that every service has.
#[derive(Clone)]
pub struct Metrics {
    /// Takes further metrics, which one service has.
    pub catalog: Catalog,
    reconciles: IntCounterVec,
    reconcile_seconds: HistogramVec,
    requests: IntCounterVec,
    request_seconds: HistogramVec,
    watch_errors: IntCounterVec,
    invalid_objects: IntCounterVec,
    ignored_objects: IntGaugeVec,
    settings_valid: IntGauge,
    settings_hash: IntGauge,
    ready: IntGauge,
    objects: IntGaugeVec,
    /// Keys that wait to be reconciled.
    pub queued: Arc<ClusterGauge>,
    /// Replicas of this service that are alive.
    pub replicas: IntGauge,
    /// Those of them that have no pod.
    pub without_pod: IntGauge,
    /// Objects that this replica owns.
    pub owned: Arc<ClusterGauge>,
}

/// What one watch counts, together with others of the same kind of object.
pub(crate) struct WatchMetrics {
    pub(crate) errors: IntCounter,
    /// Objects that can't be decoded.
    pub(crate) invalid: IntCounter,
    /// Objects for which there is no room.
    pub(crate) ignored: IntGauge,
}

impl Metrics {
    /// The metrics of a service. Which service most of them belong to is in the labels that the scrape adds.
    ///
    /// # Errors
    /// Two metrics share a name.
    pub fn of(service: Service) -> Result<Self, Error> {
        let catalog = Catalog::default();
        catalog
            .registry
            .register(Box::new(ProcessCollector::for_self()))?;
        let counters = |name: &str, help: &str, labels: &[&str]| {
            catalog.add(IntCounterVec::new(Opts::new(name, help), labels))
        };
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            catalog.add(IntGaugeVec::new(Opts::new(name, help), labels))
        };
        let sum = |name: &str, help: &str| {
            gauges(name, help, &[]).map(|gauge| ClusterGauge::new(Shows::Sum, gauge))
        };
        let histograms = |name: &str, help: &str, label: &str| {
            let options = HistogramOpts::new(name, help).buckets(SECONDS.to_vec());
            catalog.add(HistogramVec::new(options, &[label]))
        };
        let build = gauges(
            "osm_build_info",
            "1, with the version of the service.",
            &["version"],
        )?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        // An alert that a service is missing can name it only by a label of its own metric, however
        // Prometheus finds the services.
        let ready = gauges(
            "osm_ready",
            "1 while `/readyz` reports that the service is ready. The label names the service.",
            &["component"],
        )?;
        let of_settings = |name: &str, help: &str| {
            let gauge = IntGauge::new(name, help);
            if service.reads_settings() {
                catalog.add(gauge)
            } else {
                gauge
            }
        };
        Ok(Self {
            reconciles: counters(
                "osm_reconciles_total",
                "Reconciles by result, and by reason where they failed.",
                &["result", "reason"],
            )?,
            reconcile_seconds: histograms(
                "osm_reconcile_duration_seconds",
                "Duration of reconciles.",
                "result",
            )?,
            requests: counters(
                "osm_api_requests_total",
                "Requests to the API server by response code; code 0 means that there was no response.",
                &["cluster", "verb", "resource", "code"],
            )?,
            request_seconds: histograms(
                "osm_api_request_duration_seconds",
                "Time until an answer, without watches.",
                "verb",
            )?,
            watch_errors: counters(
                "osm_watch_errors_total",
                "Watches that failed. Each one is resumed.",
                &["cluster", "watch"],
            )?,
            invalid_objects: counters(
                "osm_unreadable_objects_total",
                "Objects that cannot be decoded.",
                &["cluster", "watch"],
            )?,
            ignored_objects: gauges(
                "osm_ignored_objects",
                "Objects that are ignored, because there are more of them than a service keeps.",
                &["cluster", "watch"],
            )?,
            settings_valid: of_settings(
                "osm_settings_valid",
                "1 while the settings document exists and is valid.",
            )?,
            settings_hash: of_settings(
                "osm_settings_hash",
                "Number of the settings in force. Services with the same settings have the same number.",
            )?,
            ready: ready.with_label_values(&[service.name()]),
            objects: gauges(
                "osm_objects",
                "Objects by condition, status and reason, as last reconciled.",
                &["condition", "status", "reason"],
            )?,
            queued: sum("osm_reconcile_queue_depth", "Objects that wait to be reconciled.")?,
            replicas: catalog.add(IntGauge::new(
                "osm_replicas",
                "Replicas of this service that are alive, as this one sees them.",
            ))?,
            without_pod: catalog.add(IntGauge::new(
                "osm_replicas_without_pod",
                "Replicas of this service that are alive and have no pod: a program that is not a replica renews their Leases.",
            ))?,
            owned: sum(
                "osm_owned_objects",
                "Objects that this replica reconciles, counted every few seconds.",
            )?,
            catalog,
        })
    }

    /// Whether `/readyz` reports that the service is ready.
    pub fn set_ready(&self, is_ready: bool) {
        self.ready.set(is_ready.into());
    }

    /// The settings document with this digest is in force.
    pub fn settings_in_force(&self, digest: &str) {
        self.settings_valid.set(1);
        self.settings_hash.set(number(digest));
    }

    /// There is no valid settings document. The last one stays in force.
    pub fn settings_refused(&self) {
        self.settings_valid.set(0);
    }

    /// Counts a finished reconcile; `reason` is empty on success.
    pub fn reconciled(&self, result: &'static str, reason: &'static str, took: Duration) {
        self.reconciles.with_label_values(&[result, reason]).inc();
        self.reconcile_seconds
            .with_label_values(&[result])
            .observe(took.as_secs_f64());
    }

    /// Counts a request to the `management`, `worker` or `single` cluster; `code` 0: there was no response.
    pub fn requested(&self, cluster: &str, verb: &str, resource: &str, code: u16, took: Duration) {
        self.requests
            .with_label_values(&[cluster, verb, resource, &code.to_string()])
            .inc();
        if verb != "watch" {
            self.request_seconds
                .with_label_values(&[verb])
                .observe(took.as_secs_f64());
        }
    }

    /// A watch starts. Everything is counted from zero, so that the rate of the first failure is seen.
    pub(crate) fn watch(&self, cluster: &str, watch: &str) -> WatchMetrics {
        WatchMetrics {
            errors: self.watch_errors.with_label_values(&[cluster, watch]),
            invalid: self.invalid_objects.with_label_values(&[cluster, watch]),
            ignored: self.ignored_objects.with_label_values(&[cluster, watch]),
        }
    }

    /// All metrics that have a value, in Prometheus' text format.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.catalog.registry.gather(), &mut text) {
            tracing::error!(%error, "metrics can't be encoded");
        }
        text
    }
}

/// The first 48 bits of a digest in hexadecimal digits, which a gauge holds exactly. 0: it is none.
fn number(digest: &str) -> i64 {
    let digits = digest.get(..DIGITS).unwrap_or_default();
    i64::from_str_radix(digits, 16).unwrap_or_default()
}

/// Maintains `Metrics::objects`: each object of one cluster counts once for every condition.
#[derive(Debug)]
pub struct ConditionGauge {
    gauge: IntGaugeVec,
    seen: Mutex<HashMap<(String, &'static str), [String; 2]>>,
}

impl ConditionGauge {
    /// A gauge in the metrics of a service.
    pub fn new(metrics: &Metrics) -> Arc<Self> {
        Arc::new(Self {
            gauge: metrics.objects.clone(),
            seen: Mutex::default(),
        })
    }

    /// Counts `key` under this status and reason of the condition, and no longer under another.
    pub fn count(&self, key: &str, condition: &'static str, status: bool, reason: Reason) {
        let now = [
            if status { "True" } else { "False" }.to_owned(),
            reason.to_string(),
        ];
        let mut seen = self.seen.lock();
        let [status, reason] = &now;
        self.gauge.with_label_values(&[condition, status, reason]).inc();
        if let Some([status, reason]) = seen.insert((key.to_owned(), condition), now) {
            self.gauge.with_label_values(&[condition, &status, &reason]).dec();
        }
    }

    /// The object no longer exists, or belongs to another replica.
    pub fn forget(&self, key: &str, condition: &'static str) {
        let mut seen = self.seen.lock();
        if let Some([status, reason]) = seen.remove(&(key.to_owned(), condition)) {
            self.gauge.with_label_values(&[condition, &status, &reason]).dec();
        }
    }
}

/// What is left of a cluster that ends counts no longer.
impl Drop for ConditionGauge {
    fn drop(&mut self) {
        for ((_, condition), [status, reason]) in self.seen.lock().drain() {
            self.gauge.with_label_values(&[condition, &status, &reason]).dec();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_settings_is_that_of_the_digest_in_force() {
        let metrics = Metrics::of(Service::OscController).unwrap();
        let shows = |lines: &[&str]| {
            let text = String::from_utf8(metrics.encode()).unwrap();
            lines.iter().all(|line| text.lines().any(|other| other == *line))
        };
        assert!(shows(&["osm_settings_valid 0", "osm_settings_hash 0"]));
        metrics.settings_in_force("00000000000fa0");
        assert!(shows(&["osm_settings_valid 1", "osm_settings_hash 15"]));
        metrics.settings_refused();
        assert!(shows(&["osm_settings_valid 0", "osm_settings_hash 15"]));
        // The largest one: a gauge of Prometheus holds numbers below 2^53 exactly.
        metrics.settings_in_force(&"f".repeat(64));
        assert!(shows(&["osm_settings_hash 281474976710655"]));

        let text = Metrics::of(Service::CsrApprover).unwrap().encode();
        assert!(
            !String::from_utf8(text).unwrap().contains("osm_settings"),
            "it reads none"
        );
    }

    #[test]
    fn metrics_are_prometheus_text() {
        let metrics = Metrics::of(Service::OspController).unwrap();
        metrics.reconciled("failure", "ProfileNotFound", Duration::from_millis(3));
        metrics.requested("single", "get", "secrets", 200, Duration::from_millis(3));
        let _ = metrics.watch("single", "secrets");
        let conditions = ConditionGauge::new(&metrics);
        conditions.count("a", "Rendered", true, Reason::Rendered);
        conditions.count("a", "Rendered", false, Reason::TemplateFailed);
        let text = String::from_utf8(metrics.encode()).unwrap();
        for line in [
            r#"osm_reconciles_total{reason="ProfileNotFound",result="failure"} 1"#,
            r#"osm_api_requests_total{cluster="single",code="200",resource="secrets",verb="get"} 1"#,
            r#"osm_objects{condition="Rendered",reason="TemplateFailed",status="False"} 1"#,
            r#"osm_objects{condition="Rendered",reason="Rendered",status="True"} 0"#,
            concat!(
                r#"osm_build_info{version=""#,
                env!("CARGO_PKG_VERSION"),
                r#""} 1"#
            ),
            r#"osm_watch_errors_total{cluster="single",watch="secrets"} 0"#,
            "process_resident_memory_bytes",
        ] {
            assert!(text.contains(line), "{line} missing in\n{text}");
        }
        drop(conditions);
        let text = String::from_utf8(metrics.encode()).unwrap();
        let gone = r#"osm_objects{condition="Rendered",reason="TemplateFailed",status="False"} 0"#;
        assert!(text.contains(gone), "its cluster has ended:\n{text}");
    }
}
