//! What was measured, and the bars that it is held against.

use std::fmt;

use osm_api::rbac::Service;
use serde::{Serialize, Serializer};

/// The number of clusters at which the bars are set.
const MANY: f64 = 1000.0;

/// The largest number at which times are judged, whatever share of the machine the user clusters take.
const JUDGED: u32 = 500;

/// Names of figures that have a bar.
pub const IDLE_CPU: &str = "idle CPU, % of one processor";
pub const IDLE_REQUESTS: &str = "idle requests, per second";
pub const WATCHES: &str = "watches on the seed";
pub const COLD_START: &str = "cold start, s";
pub const REGISTER: &str = "register until Serving, s, p99";
pub const CHANGE: &str = "change with all, p99 / alone";
pub const CHANGE_MISBEHAVING: &str = "change with misbehaving, p99 / alone";
pub const MORE_MISBEHAVING: &str = "more with misbehaving, MiB of one service";
pub const REASONS: &str = "reasons of misbehaving, s";
pub const OWNERS: &str = "other owners after a kill, s";
pub const KILLED: &str = "in step after a kill, s";
pub const CHURN: &str = "more after churn, % of one service";

/// The share of the machine that the user clusters take, from 0 to 1.
pub const SHARE: &str = "share of the user clusters";

/// The name of what a service takes while it is idle.
pub fn settled(service: Service) -> String {
    format!("{} settled, MiB", service.name())
}

/// How a bar is judged.
#[derive(Clone, Copy)]
enum At {
    /// By the value with 1,000 clusters.
    Many,
    /// By the value with the most clusters that leave enough of the machine to the services.
    Judged,
}

/// What must hold at most.
fn limits() -> Vec<(String, f64, At)> {
    let memory = [
        (Service::OscController, 200.0),
        (Service::SecretSyncer, 300.0),
        (Service::OspController, 20.0),
        (Service::CsrApprover, 250.0),
    ];
    let memory = memory.map(|(service, mib)| (settled(service), mib, At::Many));
    let others = [
        (IDLE_CPU, 5.0, At::Many),
        (IDLE_REQUESTS, 45.0, At::Many),
        (WATCHES, 20.0, At::Many),
        (COLD_START, 180.0, At::Judged),
        (REGISTER, 5.0, At::Judged),
        (CHANGE, 1.5, At::Judged),
        (CHANGE_MISBEHAVING, 1.5, At::Judged),
        (MORE_MISBEHAVING, 64.0, At::Judged),
        (REASONS, 90.0, At::Judged),
        (OWNERS, 45.0, At::Judged),
        (KILLED, 90.0, At::Judged),
        (CHURN, 5.0, At::Judged),
    ];
    let others = others.map(|(what, at_most, at)| (what.to_owned(), at_most, at));
    memory.into_iter().chain(others).collect()
}

/// Figures of one number of clusters.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figures {
    pub clusters: u32,
    pub pools: u32,
    /// By name, in the order in which they were measured.
    #[serde(serialize_with = "as_map")]
    values: Vec<(String, f64)>,
}

fn as_map<S: Serializer>(values: &[(String, f64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(values.iter().map(|(what, value)| (what, value)))
}

impl Figures {
    pub fn new(clusters: u32, pools: u32) -> Self {
        Self {
            clusters,
            pools,
            values: Vec::new(),
        }
    }

    pub fn set(&mut self, what: impl Into<String>, value: f64) {
        self.values.push((what.into(), value));
    }

    pub fn get(&self, what: &str) -> Option<f64> {
        let found = self.values.iter().find(|(name, _)| name == what);
        found.map(|(_, value)| *value)
    }
}

/// The smallest of sorted `times` that `percent` of them do not exceed.
pub fn quantile(times: &[f64], percent: usize) -> f64 {
    let rank = (times.len() * percent).div_ceil(100).max(1);
    times.get(rank - 1).copied().unwrap_or_default()
}

/// What must hold.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Bar {
    what: String,
    at_most: f64,
    found: Option<f64>,
    /// `None`: this run can't tell.
    holds: Option<bool>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    revision: String,
    processors: usize,
    sizes: Vec<Figures>,
    /// By service: the slope of the regression.
    kib_per_cluster: Vec<(&'static str, f64)>,
    bars: Vec<Bar>,
}

/// Slope and intercept of the line with the least squares; `None`: it takes two points.
fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let number = points.len() as f64;
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / number;
    let (x, y) = (mean(&|point| point.0), mean(&|point| point.1));
    let variance = mean(&|point| (point.0 - x).powi(2));
    let slope = mean(&|point| (point.0 - x) * (point.1 - y)) / variance;
    slope.is_finite().then_some((slope, y - slope * x))
}

fn points(sizes: &[Figures], what: &str) -> Vec<(f64, f64)> {
    let point = |size: &Figures| Some((f64::from(size.clusters), size.get(what)?));
    sizes.iter().filter_map(point).collect()
}

/// The value with 1,000 clusters, measured or by regression.
fn with_many(sizes: &[Figures], what: &str) -> Option<f64> {
    let points = points(sizes, what);
    let measured = points.iter().find(|(clusters, _)| *clusters == MANY);
    measured.map(|(_, value)| *value).or_else(|| {
        let (slope, intercept) = line(&points)?;
        Some(intercept + slope * MANY)
    })
}

impl Report {
    pub fn new(revision: String, sizes: Vec<Figures>) -> Self {
        let is_judged = |size: &&Figures| size.clusters <= JUDGED || size.get(SHARE) <= Some(0.5);
        let judged = sizes.iter().filter(is_judged).max_by_key(|size| size.clusters);
        let bar = |(what, at_most, at): (String, f64, At)| {
            let found = match at {
                At::Many => with_many(&sizes, &what),
                At::Judged => judged.and_then(|size| size.get(&what)),
            };
            let holds = found.map(|found| found <= at_most);
            Bar {
                what,
                at_most,
                found,
                holds,
            }
        };
        let slope = |service: Service| {
            let (slope, _) = line(&points(&sizes, &settled(service)))?;
            Some((service.name(), slope * 1024.0))
        };
        Self {
            revision,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            bars: limits().into_iter().map(bar).collect(),
            kib_per_cluster: Service::ALL.into_iter().filter_map(slope).collect(),
            sizes,
        }
    }

    /// Bars that don't hold.
    pub fn broken(&self) -> Vec<&str> {
        let broken = self.bars.iter().filter(|bar| bar.holds == Some(false));
        broken.map(|bar| bar.what.as_str()).collect()
    }
}

/// With three digits at least.
fn shown(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, {} processors\n", self.revision, self.processors)?;
        let numbers = self
            .sizes
            .iter()
            .map(|size| format!(" {} × {} pools |", size.clusters, size.pools));
        writeln!(f, "| clusters |{}", numbers.collect::<String>())?;
        writeln!(f, "|---|{}", "---|".repeat(self.sizes.len()))?;
        // Each number has the same figures, unless a measurement has failed.
        let first = self.sizes.first().into_iter().flat_map(|size| &size.values);
        for (what, _) in first {
            let values = self.sizes.iter().map(|size| shown(size.get(what)));
            writeln!(f, "| {what} | {} |", values.collect::<Vec<_>>().join(" | "))?;
        }
        writeln!(f, "\n| service | KiB per cluster |\n|---|---|")?;
        for (service, slope) in &self.kib_per_cluster {
            writeln!(f, "| {service} | {slope:.0} |")?;
        }
        writeln!(f, "\n| bar | at most | found | |\n|---|---|---|---|")?;
        for bar in &self.bars {
            let holds = match bar.holds {
                Some(true) => "pass",
                Some(false) => "FAIL",
                None => "not judged",
            };
            let (what, at_most, found) = (&bar.what, bar.at_most, shown(bar.found));
            writeln!(f, "| {what} | {at_most} | {found} | {holds} |")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(clusters: u32, mib: f64, share: f64) -> Figures {
        let mut figures = Figures::new(clusters, 1);
        figures.set(settled(Service::OscController), mib);
        figures.set(COLD_START, f64::from(clusters));
        figures.set(SHARE, share);
        figures
    }

    fn found(sizes: Vec<Figures>, what: &str) -> Option<f64> {
        let report = Report::new(String::new(), sizes);
        let bar = report.bars.iter().find(|bar| bar.what.starts_with(what));
        bar.unwrap().found
    }

    #[test]
    fn a_thousand_clusters_are_measured_or_follow_from_fewer() {
        let two = || vec![size(10, 10.0, 0.0), size(110, 20.0, 0.0)];
        assert_eq!(found(two(), "osc-controller").map(f64::round), Some(109.0));
        assert_eq!(found(vec![size(10, 1.0, 0.0)], "osc-controller"), None);
        let three = two().into_iter().chain([size(1000, 50.0, 0.0)]).collect();
        assert_eq!(found(three, "osc-controller"), Some(50.0));
    }

    #[test]
    fn times_are_judged_where_the_user_clusters_leave_half_of_the_machine() {
        let with = |share| vec![size(300, 0.0, 0.9), size(1000, 0.0, share)];
        assert_eq!(found(with(0.4), COLD_START), Some(1000.0));
        assert_eq!(found(with(0.6), COLD_START), Some(300.0));
        assert_eq!(Report::new(String::new(), with(0.4)).broken(), [COLD_START]);
    }
}
