//! What the services use: requests, processor time, memory.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use osm_api::rbac::Service;
use osm_testkit::installation::Installed;
use osm_testkit::wait_for;

/// Services that send no request for this long are idle.
const IDLE_AFTER: Duration = Duration::from_secs(2);

/// Resources that one service used since it started, or between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// Requests to the API server, watches included.
    pub requests: u64,
    /// Processor seconds.
    pub cpu: f64,
    /// The largest resident set since the service started, in bytes.
    pub peak_rss: u64,
}

/// Resources by service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample(pub BTreeMap<&'static str, Used>);

impl Sample {
    /// Resources used since `earlier`. The memory is the current value.
    pub fn since(&self, earlier: &Self) -> Self {
        let used = |(name, now): (&&'static str, &Used)| {
            let before = earlier.0.get(name).copied().unwrap_or_default();
            let requests = now.requests.saturating_sub(before.requests);
            (
                *name,
                Used {
                    requests,
                    cpu: now.cpu - before.cpu,
                    peak_rss: now.peak_rss,
                },
            )
        };
        Self(self.0.iter().map(used).collect())
    }

    /// Requests of all services.
    pub fn requests(&self) -> u64 {
        self.0.values().map(|used| used.requests).sum()
    }

    /// Processor seconds of all services.
    pub fn cpu(&self) -> f64 {
        self.0.values().map(|used| used.cpu).sum()
    }

    /// Peak memory of all services, in bytes.
    pub fn peak_rss(&self) -> u64 {
        self.0.values().map(|used| used.peak_rss).sum()
    }
}

/// Reads samples.
pub struct Meter<'a> {
    installed: &'a Installed,
    timeout: Duration,
}

impl<'a> Meter<'a> {
    /// Measures these services, which become idle within `timeout`.
    pub fn new(installed: &'a Installed, timeout: Duration) -> Self {
        Self { installed, timeout }
    }

    /// Resources that each service used so far.
    ///
    /// # Errors
    /// A service that does not run or respond.
    pub async fn sample(&self) -> Result<Sample> {
        let mut sample = Sample::default();
        for service in Service::ALL {
            let (code, metrics) = self.installed.get(service, "/metrics").await?;
            ensure!(code == 200, "{}: /metrics answers {code}", service.name());
            let process = self.installed.process(service)?;
            let used = Used {
                requests: requests(&metrics),
                cpu: process.cpu_seconds()?,
                peak_rss: process.peak_rss_bytes()?,
            };
            sample.0.insert(service.name(), used);
        }
        Ok(sample)
    }

    /// As [`Self::sample`], after the services became idle.
    ///
    /// # Errors
    /// Services that are busy until the timeout.
    pub async fn settled(&self) -> Result<Sample> {
        let (mut last, mut since) = (self.sample().await?, Instant::now());
        wait_for("the services to become idle", self.timeout, async || {
            let now = self.sample().await?;
            if now.requests() != last.requests() {
                (last, since) = (now, Instant::now());
            }
            Ok((since.elapsed() >= IDLE_AFTER).then(|| last.clone()))
        })
        .await
    }
}

/// Sum of all `osm_api_requests_total`.
fn requests(metrics: &str) -> u64 {
    let counters = metrics
        .lines()
        .filter(|line| line.starts_with("osm_api_requests_total{"));
    counters
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_summed_over_all_labels() {
        let metrics = "# TYPE osm_api_requests_total counter\n\
            osm_api_requests_total{code=\"200\",resource=\"secrets\",verb=\"get\"} 3\n\
            osm_api_requests_total{code=\"409\",resource=\"secrets\",verb=\"update\"} 4\n\
            osm_reconciles_total{outcome=\"success\",reason=\"\"} 9\n";
        assert_eq!(requests(metrics), 7);
    }

    #[test]
    fn differences_are_by_service_and_memory_is_the_current_value() {
        let of = |requests, cpu| {
            Sample(BTreeMap::from([
                (
                    "a",
                    Used {
                        requests,
                        cpu,
                        peak_rss: requests,
                    },
                ),
                ("b", Used::default()),
            ]))
        };
        let used = of(10, 3.0).since(&of(4, 1.0));
        assert_eq!((used.requests(), used.cpu(), used.peak_rss()), (6, 2.0, 10));
    }
}
