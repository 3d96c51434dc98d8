//! What the services have used.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use osm_api::rbac::Service;
use osm_testkit::installation::Installed;

/// By service name.
#[derive(Clone, Debug, Default)]
pub struct Usage(pub BTreeMap<&'static str, Used>);

/// What one service has used.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// Requests to the API server, but for watches, which only begin.
    pub requests: f64,
    /// Processor time in seconds, user and system.
    pub cpu_seconds: f64,
}

impl Usage {
    /// Since the services started.
    ///
    /// # Errors
    /// A service that does not run.
    pub async fn now(installed: &Installed) -> Result<Self> {
        let mut usage = Self::default();
        for service in Service::ALL {
            let (code, metrics) = installed.get(service, "/metrics").await?;
            ensure!(code == 200, "{}: /metrics answers {code}", service.name());
            let used = Used {
                requests: requests(&metrics).with_context(|| format!("metrics of {}", service.name()))?,
                cpu_seconds: installed.process(service)?.cpu_seconds()?,
            };
            usage.0.insert(service.name(), used);
        }
        Ok(usage)
    }

    /// The difference.
    pub fn since(&self, before: &Self) -> Self {
        let difference = |(name, now): (&&'static str, &Used)| {
            let then = before.0.get(name).copied().unwrap_or_default();
            let used = Used {
                requests: now.requests - then.requests,
                cpu_seconds: now.cpu_seconds - then.cpu_seconds,
            };
            (*name, used)
        };
        Self(self.0.iter().map(difference).collect())
    }

    /// Requests of all services.
    pub fn all_requests(&self) -> f64 {
        self.0.values().map(|used| used.requests).sum()
    }

    /// Processor time of all services, in seconds.
    pub fn all_cpu_seconds(&self) -> f64 {
        self.0.values().map(|used| used.cpu_seconds).sum()
    }
}

/// The most memory that each service has had resident, in bytes.
///
/// # Errors
/// A service that does not run.
pub fn peak_rss(installed: &Installed) -> Result<BTreeMap<&'static str, u64>> {
    Service::ALL
        .into_iter()
        .map(|service| Ok((service.name(), installed.process(service)?.peak_rss_bytes()?)))
        .collect()
}

/// The sum of `osm_api_requests_total`, watches excepted.
fn requests(metrics: &str) -> Result<f64> {
    let mut sum = 0.0;
    for line in metrics.lines().filter(|line| line.starts_with("osm_api_requests_total{")) {
        if !line.contains("verb=\"watch\"") {
            let (_, value) = line.rsplit_once(' ').context("a metric without value")?;
            sum += value.parse::<f64>()?;
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_added_but_for_watches() {
        let metrics = "# TYPE osm_api_requests_total counter\n\
            osm_api_requests_total{code=\"200\",resource=\"secrets\",verb=\"get\"} 3\n\
            osm_api_requests_total{code=\"200\",resource=\"secrets\",verb=\"watch\"} 100\n\
            osm_api_requests_total{code=\"409\",resource=\"secrets\",verb=\"update\"} 2\n\
            osm_reconciles_total{outcome=\"success\",reason=\"\"} 50\n";
        assert_eq!(requests(metrics).unwrap(), 5.0);
    }
}
