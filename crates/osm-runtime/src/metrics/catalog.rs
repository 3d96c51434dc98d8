//! The metrics that a service has. All of them are made here, so that each has a description, and each label a closed set of values.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::process_collector::ProcessCollector;
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{
    Error, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry,
};

use super::label::Label;

const PREFIX: &str = "osm";

/// Makes metrics, each under a name that is not taken yet. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Catalog {
    registry: Registry,
    /// Standard metrics of the process. Their names have no prefix.
    process: Registry,
    descriptions: Arc<Mutex<Vec<Description>>>,
}

#[derive(Clone, Debug)]
pub struct Description {
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    pub labels: Vec<Label>,
    pub help: String,
}

impl Catalog {
    /// A catalog with the metrics of the process.
    ///
    /// # Errors
    /// Two metrics share a name.
    pub fn new() -> Result<Self, Error> {
        let catalog = Self {
            registry: Registry::new_custom(Some(PREFIX.to_owned()), None)?,
            process: Registry::new(),
            descriptions: Arc::default(),
        };
        let process = ProcessCollector::for_self();
        catalog.describe("", &process, &[]);
        catalog.process.register(Box::new(process))?;
        Ok(catalog)
    }

    /// Makes a counter without labels.
    pub fn counter(&self, name: &str, help: &str) -> Result<IntCounter, Error> {
        self.add(IntCounter::new(name, help)?, &[])
    }

    /// Makes a counter with labels.
    pub fn counters(&self, name: &str, help: &str, labels: &[Label]) -> Result<IntCounterVec, Error> {
        self.add(IntCounterVec::new(Opts::new(name, help), &names(labels))?, labels)
    }

    /// Makes a gauge of whole numbers without labels.
    pub fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, Error> {
        self.add(IntGauge::new(name, help)?, &[])
    }

    /// Makes a gauge of whole numbers with labels.
    pub fn gauges(&self, name: &str, help: &str, labels: &[Label]) -> Result<IntGaugeVec, Error> {
        self.add(IntGaugeVec::new(Opts::new(name, help), &names(labels))?, labels)
    }

    /// Makes a gauge of any number without labels.
    pub fn float_gauge(&self, name: &str, help: &str) -> Result<Gauge, Error> {
        self.add(Gauge::new(name, help)?, &[])
    }

    /// Makes a gauge without labels whose value is asked for at each scrape.
    pub fn gauge_of(
        &self,
        name: &str,
        help: &str,
        value: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Result<(), Error> {
        let (gauge, value) = (Gauge::new(name, help)?, Arc::new(value));
        self.add(GaugeOf { gauge, value }, &[]).map(drop)
    }

    /// Makes a histogram without labels.
    pub fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Result<Histogram, Error> {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.add(Histogram::with_opts(options)?, &[])
    }

    /// Makes a histogram with labels.
    pub fn histograms(
        &self,
        name: &str,
        help: &str,
        buckets: &[f64],
        labels: &[Label],
    ) -> Result<HistogramVec, Error> {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.add(HistogramVec::new(options, &names(labels))?, labels)
    }

    /// Every metric, also those that have no value yet.
    pub fn descriptions(&self) -> Vec<Description> {
        self.descriptions.lock().clone()
    }

    /// The metrics that have a value.
    pub(super) fn gather(&self) -> Vec<MetricFamily> {
        let mut families = self.registry.gather();
        families.extend(self.process.gather());
        families
    }

    fn add<C: Collector + Clone + 'static>(&self, collector: C, labels: &[Label]) -> Result<C, Error> {
        self.registry.register(Box::new(collector.clone()))?;
        self.describe(PREFIX, &collector, labels);
        Ok(collector)
    }

    fn describe(&self, prefix: &str, collector: &dyn Collector, labels: &[Label]) {
        let describe = |family: MetricFamily| Description {
            name: match prefix {
                "" => family.name().to_owned(),
                prefix => format!("{prefix}_{}", family.name()),
            },
            kind: match family.get_field_type() {
                MetricType::COUNTER => "counter",
                MetricType::GAUGE => "gauge",
                MetricType::HISTOGRAM => "histogram",
                MetricType::SUMMARY => "summary",
                MetricType::UNTYPED => "untyped",
            },
            labels: labels.to_vec(),
            help: family.help().to_owned(),
        };
        let described = collector.collect().into_iter().map(describe);
        self.descriptions.lock().extend(described);
    }
}

/// A gauge that asks for its value.
#[derive(Clone)]
struct GaugeOf {
    gauge: Gauge,
    value: Arc<dyn Fn() -> f64 + Send + Sync>,
}

impl Collector for GaugeOf {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.gauge.set((self.value)());
        self.gauge.collect()
    }
}

fn names(labels: &[Label]) -> Vec<&'static str> {
    labels.iter().map(|label| label.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_described_before_it_has_a_value() {
        let catalog = Catalog::new().unwrap();
        catalog
            .counters("things_total", "Things.", &[Label::of("size", &["large"])])
            .unwrap();
        assert!(
            catalog
                .gather()
                .iter()
                .all(|family| family.name() != "osm_things_total")
        );
        let all = catalog.descriptions();
        let things = all
            .iter()
            .find(|metric| metric.name == "osm_things_total")
            .unwrap();
        assert_eq!(
            (things.kind, things.labels.len(), &*things.help),
            ("counter", 1, "Things.")
        );
        let process = all
            .iter()
            .find(|metric| metric.name == "process_cpu_seconds_total")
            .unwrap();
        assert_eq!(process.kind, "counter");
        assert!(
            catalog.gauge("things_total", "Others.").is_err(),
            "the name is taken"
        );
    }
}
