//! `cargo xtask gotemplate`: compares osm-gotemplate with Go's `text/template`, and records what Go renders.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use osm_gotemplate_judge::case;
use osm_gotemplate_judge::fuzz::{self, Report};
use tokio::process::Command;

/// A run that has found as many differences ends.
const MOST_DIFFERENCES: usize = 20;

/// Compare Go templates with Go's own implementation: record cases, try random ones
#[derive(clap::Args)]
pub struct Gotemplate {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Render the inputs of e2e/gotemplate-judge with Go, and write its cases
    Record {
        /// Write nothing; fail if the cases are not what Go gives
        #[arg(long)]
        check: bool,
    },
    /// Compare random templates, until the time is over or 20 of them differ
    Fuzz {
        /// Seconds to compare
        #[arg(long, default_value_t = 60, value_name = "N")]
        seconds: u64,
        /// Seed of the generator; a random one if not set
        #[arg(long, value_name = "NUMBER")]
        seed: Option<u64>,
    },
}

impl Gotemplate {
    /// Runs the command.
    ///
    /// # Errors
    /// A Go program that can't be built or fails, and templates that differ.
    pub async fn run(&self) -> Result<()> {
        match self.command {
            Task::Record { check: false } => record(&case::directory()).await,
            Task::Record { check: true } => check().await,
            Task::Fuzz { seconds, seed } => {
                let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(seconds));
                println!("seed {seed}");
                tokio::task::spawn_blocking(move || compare(seconds, seed)).await?
            }
        }
    }
}

/// The Go program, built if it is not cached.
async fn program() -> Result<Command> {
    let program = tokio::task::spawn_blocking(osm_judges::gotemplate_program).await??;
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).kill_on_drop(true);
    Ok(command)
}

async fn record(to: &Path) -> Result<()> {
    let mut command = program().await?;
    command.args(["record", "-inputs"]).arg(case::inputs());
    command.arg("-to").arg(to);
    let status = command.status().await?;
    ensure!(status.success(), "the Go program failed ({status})");
    Ok(())
}

async fn check() -> Result<()> {
    let made = tempfile::tempdir()?;
    record(made.path()).await?;
    let (made, recorded) = (contents(made.path())?, contents(&case::directory())?);
    let names: BTreeSet<&String> = made.keys().chain(recorded.keys()).collect();
    let differing = names
        .into_iter()
        .filter(|name| made.get(*name) != recorded.get(*name));
    let differing: Vec<&str> = differing.map(String::as_str).collect();
    ensure!(
        differing.is_empty(),
        "{} are not what Go gives; run `cargo xtask gotemplate record`, and read the diff",
        differing.join(", ")
    );
    Ok(())
}

/// The files of a directory: names and contents.
fn contents(directory: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    entries
        .map(|entry| {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            Ok((name, fs::read(entry.path())?))
        })
        .collect()
}

fn compare(seconds: u64, seed: u64) -> Result<()> {
    let program = osm_judges::gotemplate_program()?;
    let time = Duration::from_secs(seconds);
    let report = fuzz::fuzz(&program, seed, time, MOST_DIFFERENCES, |difference| {
        println!("{difference}\n");
    })?;
    let Report {
        cases,
        rendered,
        meant,
        differences,
    } = report;
    println!("{cases} cases, of which Go renders {rendered}; {meant} differ as they are meant to");
    ensure!(
        differences.is_empty(),
        "{} cases differ; seed {seed}",
        differences.len()
    );
    Ok(())
}
