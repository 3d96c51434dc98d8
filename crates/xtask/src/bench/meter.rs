//! What an implementation and the control plane use: requests, processor time, memory, connections, bytes in etcd.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use kube::Client;
use osm_testkit::ControlPlane;
use osm_testkit::control_plane::{AuditEvent, AuditLog};
use osm_testkit::cost::{self, Cost};
use osm_testkit::procfs::{self, Usage};
use serde::Serialize;

use super::contender::Running;

/// What one process, or several with one name, used.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Used {
    /// Processor seconds.
    pub cpu_seconds: f64,
    /// Resident set at the end, in bytes.
    pub resident_bytes: u64,
    /// Largest resident set meanwhile, in bytes.
    pub peak_bytes: u64,
    /// TCP connections to kube-apiserver at the end.
    pub connections: usize,
}

/// What was used during a scenario.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// `kube-apiserver`, `etcd`, and the processes of the implementation by name.
    pub processes: BTreeMap<String, Used>,
    /// Requests of the implementation by verb and resource, without watches, Leases and Events.
    pub requests: BTreeMap<String, u64>,
    /// Bytes that were written to etcd, keys included.
    pub etcd_written_bytes: u64,
    /// Bytes of the latest version of all objects in etcd, at the end.
    pub etcd_stored_bytes: u64,
}

impl Sample {
    /// All requests.
    pub fn requests(&self) -> u64 {
        self.requests.values().sum()
    }
}

/// Names of the control plane's processes in [`Sample::processes`].
pub const CONTROL_PLANE: [&str; 2] = ["kube-apiserver", "etcd"];

/// Measures one scenario after the other.
pub struct Meter<'a> {
    plane: &'a ControlPlane,
    client: Client,
    log: AuditLog,
    start: Start,
}

/// Counters at the start of a scenario.
#[derive(Default)]
struct Start {
    usage: BTreeMap<String, Usage>,
    etcd_written_bytes: u64,
}

impl<'a> Meter<'a> {
    /// Starts with what happened so far.
    ///
    /// # Errors
    /// A control plane without an audit log.
    pub fn new(plane: &'a ControlPlane) -> Result<Self> {
        Ok(Self {
            plane,
            client: plane.admin()?,
            log: plane.audit_log()?,
            start: Start::default(),
        })
    }

    /// Begins a scenario. What is running now counts from now on, and what is started later from its start.
    ///
    /// # Errors
    /// Processes that don't run.
    pub async fn begin(&mut self, running: &Running) -> Result<()> {
        self.log.read()?;
        for pids in running.processes()?.values() {
            for pid in pids {
                procfs::reset_peak(*pid)?;
            }
        }
        self.start = Start {
            usage: self.usage(running).await?,
            etcd_written_bytes: self.written().await?,
        };
        Ok(())
    }

    /// Forgets the implementation's processes, which are being replaced.
    pub fn restarted(&mut self) {
        self.start
            .usage
            .retain(|name, _| CONTROL_PLANE.contains(&name.as_str()));
    }

    /// Waits until the implementation sends nothing. Returns what it used until its last request.
    ///
    /// # Errors
    /// An implementation that goes on until `deadline`, or does not run.
    pub async fn until_quiet(&mut self, running: &Running, deadline: Duration) -> Result<Sample> {
        let runtime = tokio::runtime::Handle::current();
        let mut last = BTreeMap::new();
        let plane = self.plane;
        let events = cost::until_quiet(&mut self.log, deadline, || {
            last = tokio::task::block_in_place(|| runtime.block_on(usage(plane, running)))?;
            Ok(())
        })
        .await?;
        self.sample(running, &events, last).await
    }

    /// What was used since the start, at this moment.
    ///
    /// # Errors
    /// An implementation that does not run.
    pub async fn now(&mut self, running: &Running) -> Result<Sample> {
        let events = self.log.read()?;
        let usage = self.usage(running).await?;
        self.sample(running, &events, usage).await
    }

    async fn sample(
        &self,
        running: &Running,
        events: &[AuditEvent],
        usage: BTreeMap<String, Usage>,
    ) -> Result<Sample> {
        let mut processes = BTreeMap::new();
        for (name, now) in usage {
            let before = self.start.usage.get(&name).copied().unwrap_or_default();
            let used = Used {
                cpu_seconds: (now.cpu_seconds - before.cpu_seconds).max(0.0),
                resident_bytes: now.rss,
                peak_bytes: now.peak_rss,
                connections: 0,
            };
            processes.insert(name, used);
        }
        for (name, pids) in running.processes()? {
            let used = processes.entry(name).or_default();
            for pid in pids {
                // A child may have ended.
                used.connections += procfs::connections(pid, self.plane.port()).unwrap_or_default();
            }
        }
        Ok(Sample {
            processes,
            requests: Cost::of(events).requests,
            etcd_written_bytes: self.written().await? - self.start.etcd_written_bytes,
            etcd_stored_bytes: self.stored().await?,
        })
    }

    async fn usage(&self, running: &Running) -> Result<BTreeMap<String, Usage>> {
        usage(self.plane, running).await
    }

    async fn written(&self) -> Result<u64> {
        let metrics = self.plane.etcd_metrics().await?;
        Ok(sum(&metrics, "etcd_debugging_mvcc_total_put_size_in_bytes"))
    }

    async fn stored(&self) -> Result<u64> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let metrics = self.client.request_text(request).await?;
        Ok(sum(&metrics, "apiserver_resource_size_estimate_bytes"))
    }
}

async fn usage(plane: &ControlPlane, running: &Running) -> Result<BTreeMap<String, Usage>> {
    let (apiserver, etcd) = plane.usage().await?;
    let [first, second] = CONTROL_PLANE.map(str::to_owned);
    let mut usage = BTreeMap::from([(first, apiserver), (second, etcd)]);
    for (name, pids) in running.processes()? {
        usage.insert(name, Usage::of_all(&pids));
    }
    Ok(usage)
}

/// Sum of a metric over all labels.
fn sum(metrics: &str, name: &str) -> u64 {
    let values = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        if !rest.starts_with(['{', ' ']) {
            return None;
        }
        rest.rsplit_once(' ')?.1.parse::<f64>().ok()
    });
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let total = values.filter(|value| *value > 0.0).sum::<f64>() as u64;
    total
}

/// Time since `start` in seconds.
pub fn seconds_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_summed_over_all_labels() {
        let metrics = "# TYPE size gauge\nsize{resource=\"secrets\"} 3e+06\nsize{resource=\"roles\"} 4\n\
            size{resource=\"broken\"} -1\nsize_of_more 100\n";
        assert_eq!(sum(metrics, "size"), 3_000_004);
        assert_eq!(sum("put 1.5e+03\n", "put"), 1500);
    }
}
