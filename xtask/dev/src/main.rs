//! Developer commands: `cargo xtask <command>`. Each command has a module.

mod bless;
mod build;
mod chart;
mod crds;
mod fleet;
mod generated;
mod image;
mod kubelet_fields;
mod lint;
mod manifest;
mod metrics;
mod prose;
mod revision;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::generated::Generate;

/// What programs of their own do, which compile nothing that the other commands need.
const ELSEWHERE: &str = "Programs of their own, each with --help:
  test               Run all tests that need no machine; first build them, and install what they need
  demo               Run the services with an API server in memory, and show what they publish for a MachineDeployment
  e2e                Run end-to-end tests with real machines";

/// Commands for developers of Operating System Manager
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    arg_required_else_help = true,
    after_help = ELSEWHERE
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Lint(lint::Lint),
    /// Generate the CustomResourceDefinitions in crds/ from the types in crates/osm-api
    Crds(Generate),
    /// Write docs/metrics.md: every metric of every service, with its labels and their values
    Metrics(Generate),
    /// Generate osm-render's lists of kubelet configuration fields and feature gates, for each minor version
    /// of Kubernetes
    KubeletFields(Generate),
    Bless(bless::Bless),
    Fleet(fleet::Fleet),
    Image(image::Image),
    /// Generate parts of charts/operating-system-manager: permissions, schema of the values, and their table
    Chart(Generate),
    /// Render the files in deploy: one installs the services without Helm, and one has the alerts
    Manifest(Generate),
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Lint(lint) => lint.run().await,
        Command::Crds(generate) => generate.run("crds", crds::files()),
        Command::Metrics(generate) => generate.run("metrics", metrics::files()),
        Command::KubeletFields(generate) => generate.run(
            "kubelet-fields",
            tokio::task::block_in_place(kubelet_fields::files),
        ),
        Command::Bless(bless) => bless.run().await,
        Command::Fleet(fleet) => fleet.run().await,
        Command::Image(image) => image.run().await,
        Command::Chart(generate) => generate.run("chart", chart::files()),
        Command::Manifest(generate) => generate.run("manifest", manifest::files().await),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The root directory of the repository.
fn root() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest
        .ancestors()
        .nth(2)
        .map_or(manifest.clone(), PathBuf::from)
}
