//! The services that are measured, and what they say about themselves.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use osm_api::rbac::Service;
use osm_testkit::installation::Installed;
use osm_testkit::procfs::Usage;
use osm_testkit::wait_for;

/// Time in which anything ends that is waited for.
pub const TIMEOUT: Duration = Duration::from_secs(900);

/// The metric of requests to API servers.
pub const REQUESTS: &str = "osm_api_requests_total";

/// Those that serve clusters.
pub const SERVICES: [Service; 3] = [
    Service::OscController,
    Service::SecretSyncer,
    Service::CsrApprover,
];

/// What the services had used at some moment.
pub struct Usages {
    pub at: Instant,
    pub services: BTreeMap<&'static str, Usage>,
}

impl Usages {
    /// Processor time of all services.
    pub fn cpu_seconds(&self) -> f64 {
        self.services.values().map(|usage| usage.cpu_seconds).sum()
    }
}

/// The services, and how many replicas those have that serve clusters.
pub struct Services {
    pub installed: Installed,
    pub replicas: usize,
}

impl Services {
    /// A metric of a service, summed over all replicas that run and over the labels that contain these texts.
    pub async fn sum(&self, service: Service, metric: &str, labels: &[&str]) -> Result<f64> {
        let mut total = 0.0;
        for replica in 0..self.replicas {
            let (_, metrics) = self.installed.get((service, replica), "/metrics").await?;
            total += sum(&metrics, metric, labels)?;
        }
        Ok(total)
    }

    /// How many objects have this condition.
    pub async fn having(&self, service: Service, type_: &str, labels: &[&str]) -> Result<f64> {
        let label = format!("condition=\"{type_}\"");
        let labels = [&[label.as_str()], labels].concat();
        self.sum(service, "osm_objects", &labels).await
    }

    pub fn usages(&self) -> Result<Usages> {
        let of = |service: Service| anyhow::Ok((service.name(), self.installed.process(service)?.usage()?));
        Ok(Usages {
            at: Instant::now(),
            services: Service::ALL.into_iter().map(of).collect::<Result<_>>()?,
        })
    }

    pub fn log_tails(&self) -> String {
        let tail = |service: Service| {
            let process = self.installed.process(service);
            let tail = process.map(|process| process.log_tail(10));
            format!("== {}\n{}", service.name(), tail.unwrap_or_default())
        };
        Service::ALL.map(tail).join("\n")
    }

    /// Requests to the seed and to user clusters so far.
    pub async fn requests(&self) -> Result<(f64, f64)> {
        let (mut to_seed, mut to_clusters) = (0.0, 0.0);
        for service in Service::ALL {
            let of_clusters = self.sum(service, REQUESTS, &["cluster=\"worker\""]).await?;
            to_clusters += of_clusters;
            to_seed += self.sum(service, REQUESTS, &[]).await? - of_clusters;
        }
        Ok((to_seed, to_clusters))
    }

    /// Waits until the replicas see each other and no other one, which decides who owns a cluster.
    pub async fn agreed(&self) -> Result<()> {
        let all = self.replicas as f64;
        wait_for("the replicas to see each other", TIMEOUT, async || {
            for service in SERVICES {
                for replica in 0..self.replicas {
                    let (_, metrics) = self.installed.get((service, replica), "/metrics").await?;
                    let seen = sum(&metrics, "osm_replicas", &[])?;
                    ensure!(seen == all, "{service:?} {replica} sees {seen} of {all}");
                }
            }
            Ok(Some(()))
        })
        .await
    }
}

/// The number that a metric of a service has, summed over all labels that contain these texts.
fn sum(metrics: &str, name: &str, labels: &[&str]) -> Result<f64> {
    let mut sum = 0.0;
    for line in metrics.lines() {
        let rest = line
            .strip_prefix(name)
            .filter(|rest| rest.starts_with(['{', ' ']));
        if let Some(rest) = rest.filter(|rest| labels.iter().all(|label| rest.contains(label))) {
            let value = rest.rsplit(' ').next().context("a value")?;
            sum += value.parse::<f64>().context("a number")?;
        }
    }
    Ok(sum)
}
