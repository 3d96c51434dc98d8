//! `osmctl migrate`: moves a cluster from the Go implementation to OSM, and back.
//!
//! ```text
//! kinds, rights    what a migration touches, and the permissions for it
//! restorable       object → what it is restored from
//! find             lists of a cluster → the objects of the Go implementation
//! go_flags         its flags → settings and values of the chart; pure
//! compare          what OSM would render → what would differ, and what would be refused; pure
//! comparison       the same for people and programs
//! check            all of these → whether the cluster can be migrated
//! plan             what was found → steps; pure
//! journal          the steps and their states, in the cluster
//! steps            does steps, and undoes them
//! text             what is printed
//! commands         the subcommands
//! ```

mod check;
mod commands;
mod compare;
mod comparison;
mod find;
mod go_flags;
mod journal;
mod kinds;
mod plan;
mod restorable;
mod rights;
mod steps;
mod text;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use self::commands::{Apply, Check, Finish, Rollback};
use crate::cluster;

/// Migrate a cluster from the Go implementation to OSM
///
/// `check` reads the cluster, and prints what the Go implementation has installed, what becomes of it, and the plan.
/// `apply` deletes the webhook configurations of the Go implementation, and stops its Deployments. Then you install the chart.
/// `finish` verifies that OSM has published every pool, and deletes what is left. `rollback` restores what was changed.
///
/// Each step is written into the Secret osm-migration before it begins, so that an interrupted command can be run again.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # What would happen
  osmctl migrate check

  # Stop the Go implementation, then install the chart with the command that is printed
  osmctl migrate apply

  # Delete what is left once OSM has published every pool
  osmctl migrate finish

Exit codes: 0 success, 1 the cluster cannot be migrated, or a step has failed.")]
pub struct Migrate {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Check(Check),
    Apply(Apply),
    Finish(Finish),
    Rollback(Rollback),
}

impl Migrate {
    /// Runs the subcommand.
    pub fn run(self) -> Result<ExitCode> {
        match self.command {
            Command::Check(check) => cluster::run(Box::pin(check.run())),
            Command::Apply(apply) => cluster::run(Box::pin(apply.run())),
            Command::Finish(finish) => cluster::run(Box::pin(finish.run())),
            Command::Rollback(rollback) => cluster::run(Box::pin(rollback.run())),
        }
    }
}
