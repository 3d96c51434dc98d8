//! `osmctl status`: the pools and services of a cluster, and what each pool waits for.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use jiff::{Timestamp, Unit};
use osm_api::condition::{self, PUBLISHED, READY, RENDERED};
use osm_api::names::{CLOUD_INIT_SETTINGS, GO_ACCOUNT};
use osm_api::pool;

use crate::chain;
use crate::cluster::{self, Needs, Readers};
use crate::snapshot::{self, ClusterPool, Service, Snapshot};
use crate::{output, pool_nodes, wait};

/// Interval of reads with --watch, as of the program `watch`.
const INTERVAL: Duration = Duration::from_secs(2);

/// Names of the columns.
const COLUMNS: [&str; 11] = [
    "NAMESPACE",
    "POOL",
    "READY",
    "PROFILE",
    "VERSION",
    "REVISION",
    "RENDERED",
    "PUBLISHED",
    "EXPIRES",
    "NODES",
    "WAITS FOR",
];

/// Clears a terminal, and moves the cursor to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Show the pools and services of a cluster, or explain what a pool waits for
///
/// Without POOL, the command lists all pools with what each of them waits for, and the services. NODES is the number
/// of Nodes that booted with the newest content, of all.
///
/// With POOL, it checks the MachineDeployment, its profile, the settings, the config and the Secrets, in this
/// order. It stops at the first problem, and prints its reason, message, and next step. Then it lists the Nodes.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # All pools
  osmctl status

  # What one pool waits for, and which Nodes run its newest content
  osmctl status kube-system/workers

  # In a pipeline, after helm upgrade or an edit
  osmctl status --wait --timeout 10m

  # The machines have another cluster than the installation
  osmctl status --context seed -n cluster-x7k2 --worker-kubeconfig user-cluster.kubeconfig

Exit codes: 0 success, 1 POOL has a problem, 2 the cluster cannot be read.")]
pub struct Status {
    /// Pool: NAME or NAMESPACE/NAME of a MachineDeployment [default: all]
    pool: Option<String>,
    /// Print again every two seconds, until Ctrl-C
    #[arg(short, long)]
    watch: bool,
    /// Wait until the last edit has reached the Secrets, and the services run their newest version
    ///
    /// Exit code 0 means that this has held for five seconds; 1 that an edit is refused, or that the time is
    /// over. Use the osmctl of the services' version.
    #[arg(long, conflicts_with = "watch")]
    wait: bool,
    /// Time limit of --wait, such as 90s or 10m
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = cluster::timeout, requires = "wait")]
    timeout: Duration,
    #[command(flatten)]
    cluster: cluster::Flags,
}

impl Status {
    /// Reads the cluster and prints.
    pub fn run(self) -> Result<ExitCode> {
        let needs = Needs {
            nodes: !self.wait,
            services: self.pool.is_none() || self.wait,
            ..Needs::STATUS
        };
        if self.wait {
            return cluster::run(wait::wait(
                &self.cluster,
                needs,
                self.pool.as_deref(),
                self.timeout,
            ));
        }
        if self.watch {
            return cluster::run(self.watch(needs));
        }
        let snapshot = cluster::read(&self.cluster, needs)?;
        snapshot.warn();
        let (text, code) = self.shown(&snapshot)?;
        output::print(&text)?;
        Ok(code)
    }

    /// Reads and prints again and again, until a signal ends the program, or its output is closed.
    async fn watch(&self, needs: Needs) -> Result<ExitCode> {
        let readers = Readers::connect(&self.cluster).await?;
        let clear = if output::is_terminal() { CLEAR } else { "" };
        loop {
            // A cluster that cannot be read now may be back in two seconds.
            let text = match readers.read(&self.cluster, needs).await {
                Ok(snapshot) => {
                    let unread = snapshot.unread.iter();
                    let notes: String = unread
                        .map(|unread| format!("warning: {}\n", output::one_line(&unread.message)))
                        .collect();
                    format!("{}{}", notes, self.shown(&snapshot)?.0)
                }
                Err(error) => format!("osmctl: {error:#}\n"),
            };
            let now = Timestamp::now().round(Unit::Second)?;
            if !output::raw(&format!("{clear}{now}\n{}\n", output::clean(&text)))? {
                return Ok(ExitCode::SUCCESS);
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    fn shown(&self, snapshot: &Snapshot) -> Result<(String, ExitCode)> {
        installation(snapshot)?;
        let (pools, now) = (snapshot.pools(), Timestamp::now());
        let Some(name) = &self.pool else {
            return Ok((table(snapshot, &pools, now), ExitCode::SUCCESS));
        };
        let pool = snapshot::find(&pools, name)?;
        let links = chain::chain(snapshot, pool, now);
        let code = match chain::first_problem(&links) {
            Some(_) => ExitCode::FAILURE,
            None => ExitCode::SUCCESS,
        };
        let nodes = snapshot.nodes_of(pool);
        let nodes = nodes.map(|nodes| format!("\n{}", pool_nodes::text(pool, &nodes, now)));
        let text = chain::text(&pool.to_string(), &links);
        Ok((text + &nodes.unwrap_or_default(), code))
    }
}

/// # Errors
/// A namespace without anything of OSM.
pub fn installation(snapshot: &Snapshot) -> Result<()> {
    if snapshot.lacks_installation() {
        bail!(
            "OSM is not installed in namespace {}: it has no profiles, no configs, and no ConfigMap {}; select the namespace with -n",
            snapshot.namespace,
            snapshot.settings_config_map
        );
    }
    Ok(())
}

/// The pools, and the services.
pub fn table(snapshot: &Snapshot, pools: &[ClusterPool<'_>], now: Timestamp) -> String {
    let mut text = match pools {
        [] => format!(
            "No MachineDeployments, and no OperatingSystemConfigs in namespace {}. If the installation has another namespace, set -n.\n",
            snapshot.namespace
        ),
        pools => {
            let lines = pools.iter().map(|pool| line(snapshot, pool, now));
            let lines: Vec<_> = std::iter::once(COLUMNS.map(str::to_owned)).chain(lines).collect();
            output::table(&lines)
        }
    };
    if !snapshot.services.is_empty() {
        let head = ["SERVICE", "READY", "IMAGE"].map(str::to_owned);
        let lines = snapshot.services.iter().map(service_line);
        let lines: Vec<_> = std::iter::once(head).chain(lines).collect();
        text.push_str(&format!("\n{}", output::table(&lines)));
    }
    if snapshot.has_go_account {
        text.push_str(&format!(
            "\nServiceAccount {CLOUD_INIT_SETTINGS}/{GO_ACCOUNT} of the upstream OSM still exists; `osmctl migrate check` reports whether \
             machines need its token.\n"
        ));
    }
    text
}

/// The cells of a pool, with a hyphen for what does not exist.
fn line(snapshot: &Snapshot, pool: &ClusterPool<'_>, now: Timestamp) -> [String; 11] {
    let status = pool.config.and_then(|config| config.status.as_ref());
    let condition = |type_| condition::find(&status?.conditions, type_);
    let reason = |type_| condition(type_).map(|found| found.reason.clone());
    let rendered = pool.config.and_then(|config| config.stored());
    let profile = rendered.and_then(|rendered| rendered.profile.as_ref());
    // The one that the pool asks for, or else the one that it was rendered from.
    let requested = pool.machine_deployment.and_then(|md| snapshot.profile_name(md));
    let name = requested.map(|(_, name)| name);
    let links = chain::chain(snapshot, pool, now);
    let waits_for = chain::first_problem(&links);
    [
        Some(pool.namespace.clone()).filter(|namespace| !namespace.is_empty()),
        Some(pool.name.clone()),
        condition(READY).map(|ready| ready.status.clone()),
        name.or_else(|| profile.map(|profile| profile.name.clone())),
        profile.map(|profile| profile.version.clone()),
        pool.machine_deployment
            .and_then(pool::revision)
            .map(str::to_owned),
        reason(RENDERED),
        reason(PUBLISHED),
        status.and_then(|status| Some(status.published.as_ref()?.credential_expiration_time.clone())),
        snapshot
            .nodes_of(pool)
            .map(|nodes| pool_nodes::cell(pool, &nodes)),
        waits_for.map(|(link, problem)| format!("{}: {}", link.name, problem.reason)),
    ]
    .map(|cell| output::one_line(cell.as_deref().unwrap_or("-")))
}

fn service_line(service: &Service) -> [String; 3] {
    [
        service.name.clone(),
        format!("{}/{}", service.ready, service.wanted),
        output::one_line(&service.image),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::fixtures;

    #[test]
    fn the_table_has_what_each_pool_waits_for_and_the_services() {
        let mut snapshot = fixtures::snapshot();
        let new = fixtures::machine_deployment("team", "new");
        snapshot.machine_deployments.push(new);
        snapshot.services.push(Service {
            name: "osm-osc-controller".to_owned(),
            ready: 1,
            wanted: 2,
            image: "registry.example/osc-controller:0.1.0".to_owned(),
            is_rolled_out: false,
        });
        let pools = snapshot.pools();
        let now = "2026-02-01T00:00:00Z".parse().unwrap();
        let text = table(&snapshot, &pools, now);
        let words = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        let words: Vec<String> = words.collect();
        let well = "kube-system workers True osp-tiny v1.0.0 3 Rendered Published 2026-03-01T00:00:00Z 0/0 -";
        assert_eq!(words[1], well);
        assert_eq!(
            words[2],
            "team new - osp-tiny - 3 - - - 0/0 config: ConfigNotFound"
        );
        assert_eq!(
            words[5],
            "osm-osc-controller 1/2 registry.example/osc-controller:0.1.0"
        );
        assert!(table(&snapshot, &[], now).contains("No MachineDeployments"));
    }
}
