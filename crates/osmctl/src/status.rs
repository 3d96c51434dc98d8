//! `osmctl status`: the pools of a cluster, and what each waits for.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::output::{Color, Format};
use crate::row::{self, COLUMNS, Row};
use crate::snapshot::Snapshot;
use crate::{cluster, live, output, snapshot};

/// List the pools of a cluster, and what each waits for
///
/// With POOL, the command prints everything about one pool.
/// With --watch, it keeps the table up to date until Ctrl-C: the pools, the time left of their credentials, and the latest Events.
/// If standard output is no terminal, it prints a line for each pool that changes.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # All pools
  osmctl status

  # One pool
  osmctl status kube-system/workers

  # A table that stays up to date
  osmctl status --watch

  # The machines have another cluster than the installation
  osmctl status --context seed -n cluster-x7k2 --worker-kubeconfig user-cluster.kubeconfig

  # The services have another cluster than the profiles and the machines
  osmctl status --context user --home-context seed --home-namespace cluster-x7k2")]
pub struct Status {
    /// Pool: NAME or NAMESPACE/NAME of a MachineDeployment [default: all]
    pool: Option<String>,
    /// Keep the table up to date until Ctrl-C
    #[arg(short, long, conflicts_with = "output")]
    watch: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// When to colour
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    color: Color,
    #[command(flatten)]
    cluster: cluster::Flags,
}

impl Status {
    /// Reads the cluster and prints.
    pub fn run(self) -> Result<ExitCode> {
        if self.watch {
            return live::run(self.pool.as_deref(), self.color, &self.cluster);
        }
        let snapshot = cluster::read(&self.cluster, cluster::Needs::of_chains())?;
        let pools = snapshot.pools();
        let now = Timestamp::now();
        let row = |pool| Row::of(&snapshot, pool, now);
        snapshot.warn();
        let color = self.color.is_on();
        let text = match (&self.pool, self.output) {
            (Some(name), Format::Text) => row(snapshot::find(&pools, name)?).details(color),
            (Some(name), Format::Json) => output::json(&row(snapshot::find(&pools, name)?).json()),
            (None, Format::Text) => table(&pools.iter().map(row).collect::<Vec<_>>(), &snapshot, color),
            (None, Format::Json) => {
                let pools: Vec<Value> = pools.iter().map(|pool| row(pool).json()).collect();
                output::json(&json!({"pools": pools, "unread": snapshot.unread_json()}))
            }
        };
        output::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn table(rows: &[Row<'_>], snapshot: &Snapshot, with_color: bool) -> String {
    if rows.is_empty() {
        return row::nothing(snapshot);
    }
    let lines = rows.iter().map(|row| row.line(with_color, str::to_owned));
    let lines: Vec<_> = std::iter::once(COLUMNS.map(str::to_owned)).chain(lines).collect();
    output::table(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{ClusterPool, fixtures};

    fn at() -> Timestamp {
        "2026-02-01T00:00:00Z".parse().unwrap()
    }

    fn rows<'a>(snapshot: &Snapshot, pools: &'a [ClusterPool<'a>]) -> Vec<Row<'a>> {
        pools.iter().map(|pool| Row::of(snapshot, pool, at())).collect()
    }

    #[test]
    fn the_table_has_what_each_pool_waits_for() {
        let mut snapshot = fixtures::snapshot();
        snapshot
            .machine_deployments
            .push(fixtures::machine_deployment("team", "new"));
        let pools = snapshot.pools();
        let text = table(&rows(&snapshot, &pools), &snapshot, false);
        let words =
            |line: usize| -> Vec<&str> { text.lines().nth(line).unwrap().split_whitespace().collect() };
        assert_eq!(
            words(1),
            [
                "kube-system",
                "workers",
                "True",
                "osp-tiny",
                "v1.0.0",
                "3",
                "Rendered",
                "Published",
                "2026-03-01T00:00:00Z",
                "-"
            ]
        );
        assert_eq!(
            words(2),
            [
                "team",
                "new",
                "-",
                "osp-tiny",
                "-",
                "3",
                "-",
                "-",
                "-",
                "config:",
                "no-config"
            ]
        );
        assert!(table(&[], &snapshot, false).contains("No MachineDeployments"));
    }

    #[test]
    fn details_and_json_have_the_conditions() {
        let snapshot = fixtures::snapshot();
        let pools = snapshot.pools();
        let rows = rows(&snapshot, &pools);
        let text = rows[0].details(false);
        for part in [
            "Profile:              osm/osp-tiny v1.0.0\n",
            "True since 2026-01-01T00:00:00Z: Rendered: rendered from profile",
            "expire at 2026-03-01T00:00:00Z",
            "kube-system/workers is well.",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let json = rows[0].json();
        assert_eq!(
            (&json["waitsFor"], &json["rendered"]["reason"]),
            (&Value::Null, &json!("Rendered"))
        );
    }
}
