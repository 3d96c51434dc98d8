//! `cargo xtask e2e`: Operating System Manager with real machines.

mod air_gap;
mod environment;
mod helm;
mod machine_args;
mod node;
mod pool;

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use tokio::process::Command;

/// Run end-to-end tests with real machines
#[derive(Parser)]
#[command(name = "e2e", bin_name = "cargo xtask e2e", arg_required_else_help = true)]
struct E2e {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Helm(node::Helm),
    Node(node::Node),
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match E2e::parse().what {
        What::Helm(helm) => helm.run().await,
        What::Node(node) => node.run().await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("e2e: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The root directory of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs cargo in the root of the repository. It prints its progress to standard error.
async fn cargo(arguments: &[&str]) -> Result<()> {
    let status = Command::from(osm_judges::cargo_tool::cargo())
        .current_dir(root())
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await
        .context("cargo can't be run")?;
    ensure!(status.success(), "cargo {} failed", arguments.join(" "));
    Ok(())
}
