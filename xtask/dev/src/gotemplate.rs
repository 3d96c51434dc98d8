//! `cargo xtask gotemplate`: records what Go's `text/template` renders. Tests compare osm-gotemplate with that.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use osm_gotemplate_judge::case;
use tokio::process::Command;

/// Render the inputs of e2e/gotemplate-judge, and random templates, with Go's own implementation, and write its cases
#[derive(clap::Args)]
pub struct Gotemplate {
    /// Write nothing; fail if the cases are not what Go gives
    #[arg(long)]
    check: bool,
}

impl Gotemplate {
    /// Runs the command.
    ///
    /// # Errors
    /// A Go program that can't be built or fails, and cases that differ.
    pub async fn run(&self) -> Result<()> {
        match self.check {
            false => record(&case::directory()).await,
            true => check().await,
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
        "{} are not what Go gives; run `cargo xtask gotemplate`, and read the diff",
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
