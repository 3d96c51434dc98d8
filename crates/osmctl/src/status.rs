//! `osmctl status`: the pools and services of a cluster, and what each pool waits for.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use jiff::{Timestamp, Unit};
use serde_json::{Value, json};

use crate::chain;
use crate::cluster::{self, Needs, Readers};
use crate::output::{self, Color, Format};
use crate::row::{COLUMNS, Row};
use crate::snapshot::{self, Service, Snapshot};

/// Between two reads with --watch.
const INTERVAL: Duration = Duration::from_secs(2);

/// Clears a terminal, and moves the cursor to its first line.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Show the pools and services of a cluster, or explain what a pool waits for
///
/// Without POOL, the command lists all pools with what each of them waits for, and the services.
///
/// With POOL, it checks the MachineDeployment, its profile, the settings, the config and the Secrets, in this order.
/// It prints the first of them that is not well, with its reason and message, and the next step.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # All pools
  osmctl status

  # What one pool waits for
  osmctl status kube-system/workers

  # The machines have another cluster than the installation
  osmctl status --context seed -n cluster-x7k2 --worker-kubeconfig user-cluster.kubeconfig

  # The services have another cluster than the profiles and the machines
  osmctl status --context user --home-context seed --home-namespace cluster-x7k2

Exit codes: 0 success, 1 POOL is not well, 2 the cluster cannot be read.")]
pub struct Status {
    /// Pool: NAME or NAMESPACE/NAME of a MachineDeployment [default: all]
    pool: Option<String>,
    /// Print again every two seconds, until Ctrl-C
    #[arg(short, long, conflicts_with = "output")]
    watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// When to use color
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    color: Color,
    #[command(flatten)]
    cluster: cluster::Flags,
}

impl Status {
    /// Reads the cluster and prints.
    pub fn run(self) -> Result<ExitCode> {
        let needs = Needs {
            profiles: true,
            settings: true,
            events: true,
            services: self.pool.is_none(),
            ..Needs::default()
        };
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
        let clear = match std::io::stdout().is_terminal() {
            true => CLEAR,
            false => "",
        };
        loop {
            // A cluster that cannot be read now may be back in two seconds.
            let text = match readers.read(&self.cluster, needs).await {
                Ok(snapshot) => {
                    let unread = snapshot.unread.iter();
                    let notes: String = unread
                        .map(|unread| format!("warning: {}\n", unread.message))
                        .collect();
                    format!("{}{}", output::visible(&notes), self.shown(&snapshot)?.0)
                }
                Err(error) => format!("osmctl: {error:#}\n"),
            };
            let now = Timestamp::now().round(Unit::Second)?;
            if !output::is_read(&format!("{clear}{now}\n{text}\n"))? {
                return Ok(ExitCode::SUCCESS);
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    fn shown(&self, snapshot: &Snapshot) -> Result<(String, ExitCode)> {
        let (pools, now) = (snapshot.pools(), Timestamp::now());
        let row = |pool| Row::of(snapshot, pool, now);
        let color = self.color.is_on();
        let Some(name) = &self.pool else {
            let rows: Vec<Row<'_>> = pools.iter().map(row).collect();
            let text = match self.output {
                Format::Text => table(&rows, snapshot, color),
                Format::Json => json(&rows, snapshot),
            };
            return Ok((text, ExitCode::SUCCESS));
        };
        let row = row(snapshot::find(&pools, name)?);
        let text = match self.output {
            Format::Text => chain::text(&row.name(), &row.links, color),
            Format::Json => output::json(&row.json_with_chain(snapshot)),
        };
        let code = match row.waits() {
            true => ExitCode::FAILURE,
            false => ExitCode::SUCCESS,
        };
        Ok((text, code))
    }
}

fn table(rows: &[Row<'_>], snapshot: &Snapshot, with_color: bool) -> String {
    let mut text = match rows {
        [] => format!(
            "No MachineDeployments, and no OperatingSystemConfigs in namespace {}. If the installation has another namespace, set -n.\n",
            snapshot.namespace
        ),
        rows => {
            let lines = rows.iter().map(|row| row.line(with_color));
            let lines: Vec<_> = std::iter::once(COLUMNS.map(str::to_owned)).chain(lines).collect();
            output::table(&lines)
        }
    };
    if !snapshot.services.is_empty() {
        let head = ["SERVICE", "READY", "IMAGE"].map(str::to_owned);
        let lines = snapshot
            .services
            .iter()
            .map(|service| service_line(service, with_color));
        let lines: Vec<_> = std::iter::once(head).chain(lines).collect();
        text.push_str(&format!("\n{}", output::table(&lines)));
    }
    text
}

fn service_line(service: &Service, with_color: bool) -> [String; 3] {
    let color = match service.ready >= service.wanted {
        true => output::GREEN,
        false => output::RED,
    };
    let ready = format!("{}/{}", service.ready, service.wanted);
    [
        service.name.clone(),
        output::paint(color, &ready, with_color),
        output::visible(&output::one_line(&service.image)),
    ]
}

fn json(rows: &[Row<'_>], snapshot: &Snapshot) -> String {
    let service = |service: &Service| json!({"name": service.name, "ready": service.ready, "wanted": service.wanted, "image": service.image});
    output::json(&json!({
        "pools": rows.iter().map(Row::json).collect::<Vec<Value>>(),
        "services": snapshot.services.iter().map(service).collect::<Vec<Value>>(),
        "unread": snapshot.unread_json(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{ClusterPool, fixtures};

    fn rows<'a>(snapshot: &Snapshot, pools: &'a [ClusterPool<'a>]) -> Vec<Row<'a>> {
        let now = "2026-02-01T00:00:00Z".parse().unwrap();
        pools.iter().map(|pool| Row::of(snapshot, pool, now)).collect()
    }

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
        });
        let pools = snapshot.pools();
        let rows = rows(&snapshot, &pools);
        let text = table(&rows, &snapshot, false);
        let words = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        let words: Vec<String> = words.collect();
        let well = "kube-system workers True osp-tiny v1.0.0 3 Rendered Published 2026-03-01T00:00:00Z -";
        assert_eq!(words[1], well);
        assert_eq!(words[2], "team new - osp-tiny - 3 - - - config: no-config");
        assert_eq!(
            words[5],
            "osm-osc-controller 1/2 registry.example/osc-controller:0.1.0"
        );
        assert!(table(&[], &snapshot, false).contains("No MachineDeployments"));
    }
}
