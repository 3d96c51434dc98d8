//! Metrics of a service. Every label has a closed set of values; no label is the name of an object.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use osm_api::Reason;
use parking_lot::Mutex;
use prometheus::process_collector::ProcessCollector;
use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

/// Metrics that every service has.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    /// Standard process metrics. Their names have no prefix.
    process: Registry,
    reconciles: IntCounterVec,
    reconcile_seconds: HistogramVec,
    requests: IntCounterVec,
    request_seconds: HistogramVec,
    answers_refused: IntCounterVec,
    pauses: IntCounterVec,
    watch_errors: IntCounterVec,
    invalid_objects: IntCounterVec,
    ignored_objects: IntCounterVec,
    /// Objects by condition and reason, as last reconciled.
    pub objects: IntGaugeVec,
    /// Keys that wait to be reconciled.
    pub queued: IntGauge,
    /// 1 while the settings document is valid. Only a service that reads settings registers it.
    pub settings_valid: IntGauge,
    /// Replicas of this service that are alive.
    pub replicas: IntGauge,
    /// Objects that this replica owns.
    pub owned: IntGauge,
}

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Outcome {
    Success,
    Conflict,
    Failure,
    Timeout,
    Panic,
}

impl Outcome {
    fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Conflict => "conflict",
            Self::Failure => "failure",
            Self::Timeout => "timeout",
            Self::Panic => "panic",
        }
    }
}

impl Metrics {
    /// Registers the metrics. Which service they belong to is in the labels that the scrape adds.
    ///
    /// # Errors
    /// Two metrics share a name.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new_custom(Some("osm".to_owned()), None)?;
        let seconds = |name: &str, help: &str| {
            HistogramOpts::new(name, help).buckets(vec![0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0])
        };
        let metrics = Self {
            reconciles: IntCounterVec::new(
                Opts::new(
                    "reconciles_total",
                    "Reconciles by outcome, and by reason where they failed.",
                ),
                &["outcome", "reason"],
            )?,
            reconcile_seconds: HistogramVec::new(
                seconds("reconcile_duration_seconds", "Duration of reconciles."),
                &["outcome"],
            )?,
            requests: IntCounterVec::new(
                Opts::new(
                    "api_requests_total",
                    "Requests to the API server by response code; code 0 means that there was no response.",
                ),
                &["cluster", "verb", "resource", "code"],
            )?,
            request_seconds: HistogramVec::new(
                seconds(
                    "api_request_duration_seconds",
                    "Time until the API server answers, without watches.",
                ),
                &["verb"],
            )?,
            answers_refused: IntCounterVec::new(
                Opts::new(
                    "api_answers_refused_total",
                    "Answers of the API server that exceeded a limit of bytes or time and were not read to the end.",
                ),
                &["cluster", "resource", "limit"],
            )?,
            pauses: IntCounterVec::new(
                Opts::new(
                    "api_pauses_total",
                    "Pauses of all requests to a cluster, because its API server was overloaded or unavailable.",
                ),
                &["cluster"],
            )?,
            watch_errors: IntCounterVec::new(
                Opts::new("watch_errors_total", "Watches that failed."),
                &["cluster", "kind"],
            )?,
            invalid_objects: IntCounterVec::new(
                Opts::new("invalid_objects_total", "Objects that cannot be decoded."),
                &["cluster", "kind"],
            )?,
            ignored_objects: IntCounterVec::new(
                Opts::new(
                    "ignored_objects_total",
                    "Objects that were ignored, because there are more of them than a service keeps.",
                ),
                &["cluster", "kind"],
            )?,
            objects: IntGaugeVec::new(
                Opts::new(
                    "objects",
                    "Objects by condition, status and reason, as last reconciled.",
                ),
                &["condition", "status", "reason"],
            )?,
            queued: IntGauge::new("reconcile_queue_depth", "Objects that wait to be reconciled.")?,
            settings_valid: IntGauge::new(
                "settings_valid",
                "1 while the settings document exists and is valid.",
            )?,
            replicas: IntGauge::new(
                "replicas",
                "Replicas of this service that are alive, as this one sees them.",
            )?,
            owned: IntGauge::new(
                "owned_objects",
                "Objects that this replica reconciles, counted every few seconds.",
            )?,
            registry,
            process: Registry::new(),
        };
        metrics.process.register(Box::new(ProcessCollector::for_self()))?;
        let all: [Box<dyn prometheus::core::Collector>; 13] = [
            Box::new(metrics.reconciles.clone()),
            Box::new(metrics.reconcile_seconds.clone()),
            Box::new(metrics.requests.clone()),
            Box::new(metrics.request_seconds.clone()),
            Box::new(metrics.answers_refused.clone()),
            Box::new(metrics.pauses.clone()),
            Box::new(metrics.watch_errors.clone()),
            Box::new(metrics.invalid_objects.clone()),
            Box::new(metrics.ignored_objects.clone()),
            Box::new(metrics.objects.clone()),
            Box::new(metrics.queued.clone()),
            Box::new(metrics.replicas.clone()),
            Box::new(metrics.owned.clone()),
        ];
        for collector in all {
            metrics.registry.register(collector)?;
        }
        Ok(metrics)
    }

    /// Registers a metric of one service.
    ///
    /// # Errors
    /// Where the name is taken.
    pub fn register(
        &self,
        collector: impl prometheus::core::Collector + 'static,
    ) -> Result<(), prometheus::Error> {
        self.registry.register(Box::new(collector))
    }

    /// Counts a finished reconcile; `reason` is empty on success.
    pub fn reconciled(&self, outcome: Outcome, reason: &str, took: Duration) {
        self.reconciles
            .with_label_values(&[outcome.label(), reason])
            .inc();
        self.reconcile_seconds
            .with_label_values(&[outcome.label()])
            .observe(took.as_secs_f64());
    }

    /// Counts a request to the `management`, `worker` or `only` cluster; `code` 0: there was no response.
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

    /// Counts an answer that exceeded its `limit`, `bytes` or `time`.
    pub fn answer_refused(&self, cluster: &str, resource: &str, limit: &str) {
        self.answers_refused
            .with_label_values(&[cluster, resource, limit])
            .inc();
    }

    /// Counts a pause of all requests to a cluster.
    pub fn paused(&self, cluster: &str) {
        self.pauses.with_label_values(&[cluster]).inc();
    }

    /// Counts a broken watch.
    pub fn watch_failed(&self, cluster: &str, kind: &str) {
        self.watch_errors.with_label_values(&[cluster, kind]).inc();
    }

    /// Counts an object that could not be decoded.
    pub fn invalid_object(&self, cluster: &str, kind: &str) {
        self.invalid_objects.with_label_values(&[cluster, kind]).inc();
    }

    /// Counts an object that a watch has no room for.
    pub fn ignored_object(&self, cluster: &str, kind: &str) {
        self.ignored_objects.with_label_values(&[cluster, kind]).inc();
    }

    /// All metrics in Prometheus' text format.
    pub fn encode(&self) -> Vec<u8> {
        let mut families = self.registry.gather();
        families.extend(self.process.gather());
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&families, &mut text) {
            tracing::error!(%error, "metrics can't be encoded");
        }
        text
    }
}

/// Maintains [`Metrics::objects`]: each object counts once for every condition.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_prometheus_text() {
        let metrics = Metrics::new().unwrap();
        metrics.reconciled(Outcome::Failure, "ProfileNotFound", Duration::from_millis(3));
        metrics.requested("only", "get", "secrets", 200, Duration::from_millis(3));
        let conditions = ConditionGauge::new(&metrics);
        conditions.count("a", "Rendered", true, Reason::Rendered);
        conditions.count("a", "Rendered", false, Reason::TemplateFailed);
        let text = String::from_utf8(metrics.encode()).unwrap();
        for line in [
            r#"osm_reconciles_total{outcome="failure",reason="ProfileNotFound"} 1"#,
            r#"osm_api_requests_total{cluster="only",code="200",resource="secrets",verb="get"} 1"#,
            r#"osm_objects{condition="Rendered",reason="TemplateFailed",status="False"} 1"#,
            r#"osm_objects{condition="Rendered",reason="Rendered",status="True"} 0"#,
            "process_resident_memory_bytes",
        ] {
            assert!(text.contains(line), "{line} missing in\n{text}");
        }
    }
}
