//! `osmctl migrate`: what a migration from the upstream OSM to OSM would do, and a script that does it. Only
//! the script writes to the cluster.
//!
//! ```text
//! pods             what the pods of a Deployment run and mount; pure
//! found            the Deployments and webhook configurations of the upstream OSM
//! go_flags         its flags → settings and values of the chart; pure
//! compare          what OSM would render → what would differ, and what would be refused; pure
//! tokens           non-expiring tokens → whether they may be deleted
//! check            all of these → whether the cluster can be migrated
//! text             what `check` prints
//! script           what was found → the shell script
//! ```

mod check;
mod compare;
mod found;
mod go_flags;
mod pods;
mod script;
mod text;
mod tokens;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use osm_api::names::CLOUD_INIT_SETTINGS;
use serde_json::{Map, Value};

use self::check::{Checked, Source};
use crate::cluster::{self, Object, Reader, Readers, Target};
use crate::output;

/// Migrate a cluster from the upstream OSM to OSM
///
/// `check` reads the cluster. It prints what the upstream OSM has installed, what OSM would render
/// differently or refuse, and the values of the chart. `script` prints a shell script with the commands of
/// kubectl and helm in the safe order, and the way back.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # What would happen
  osmctl migrate check

  # The same for a user cluster of KKP
  osmctl migrate check --context seed -n cluster-x7k2 --worker-context user

  # The commands, to read and to run
  osmctl migrate script >osm-migrate.sh
  sh osm-migrate.sh stop

Exit codes: 0 success, 1 the cluster cannot be migrated, or cannot be read.")]
pub struct Migrate {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(Check),
    Script(Script),
}

/// Check whether a cluster can be migrated, and print what would change
///
/// The command only reads. Configs of the upstream OSM contain credentials. The output does not: whatever
/// looks like a credential is replaced.
#[derive(Args)]
pub struct Check {
    /// Print the lines that differ
    #[arg(long)]
    diff: bool,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    cluster: cluster::Flags,
}

/// Print a shell script that migrates the cluster, and its way back
///
/// The command only reads. If the cluster cannot be migrated, it prints the reasons, and no script.
#[derive(Args)]
pub struct Script {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    cluster: cluster::Flags,
}

impl Migrate {
    /// Runs the subcommand.
    pub fn run(self) -> Result<ExitCode> {
        match self.command {
            Command::Check(check) => cluster::run(Box::pin(check.run())),
            Command::Script(script) => cluster::run(Box::pin(script.run())),
        }
    }
}

impl Check {
    async fn run(self) -> Result<ExitCode> {
        let (target, checked) = read(&self.cluster, &self.source).await?;
        let namespace = self.cluster.namespace();
        output::print(&text::report(&checked, &target, namespace, self.diff))?;
        Ok(if checked.problems.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

impl Script {
    async fn run(self) -> Result<ExitCode> {
        if self.cluster.has_worker_cluster() {
            bail!(
                "a script migrates one cluster; for a fleet, docs/fleet.md and docs/kkp.md have the commands, and `osmctl migrate check` the values"
            );
        }
        let (target, checked) = read(&self.cluster, &self.source).await?;
        if !checked.problems.is_empty() {
            bail!(
                text::list("the cluster cannot be migrated:\n", &checked.problems)
                    .trim_end()
                    .to_owned()
            );
        }
        let (namespace, settings) = (self.cluster.namespace(), self.cluster.settings_config_map());
        output::document(&script::script(&checked, &target, namespace, settings))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The settings that follow from the flags of a Deployment of the upstream OSM, which works in the cluster of
/// `reader`, or else what a person has to decide about them.
///
/// # Errors
/// A request that fails.
pub async fn settings_of(
    reader: &Reader,
    deployment: &Deployment,
) -> Result<Result<Map<String, Value>, Vec<String>>> {
    let deployment = Object::new::<Deployment>(serde_json::to_value(deployment)?);
    let words = found::controller_container(&deployment)
        .map(pods::command_line)
        .unwrap_or_default();
    let mut mapped = check::flags(reader, &words, &Source::default()).await?;
    for name in &mapped.secrets {
        if reader.get::<Secret>(CLOUD_INIT_SETTINGS, name).await?.is_none() {
            mapped.problems.push(format!("Secret {CLOUD_INIT_SETTINGS}/{name} with the password of the proxy does not exist in the cluster"));
        }
    }
    if !mapped.commands.is_empty() {
        mapped.problems.push(
            "its Secret with credentials of registries has a form that `osmctl migrate check` converts"
                .to_owned(),
        );
    }
    Ok(match mapped.settings {
        Value::Object(settings) if mapped.problems.is_empty() => Ok(settings),
        _ => Err(mapped.problems),
    })
}

/// Reads and checks the clusters that the flags select.
async fn read(flags: &cluster::Flags, source: &Source) -> Result<(Target, Checked)> {
    let readers = Readers::connect(flags).await?;
    let target = readers.target.clone();
    Ok((target, check::read(readers, flags, source).await?))
}

/// Most names that a message lists; it counts the rest, so that it stays readable.
const MAX_NAMED: usize = 5;

/// Some of many names.
fn listed(names: &[String]) -> String {
    let first: Vec<&str> = names.iter().take(MAX_NAMED).map(String::as_str).collect();
    match names.len().saturating_sub(MAX_NAMED) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}
