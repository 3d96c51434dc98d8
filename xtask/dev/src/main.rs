//! Developer commands: `cargo xtask <command>`. Each command has a module.

mod bench;
mod bless;
mod build;
mod chart;
mod cloud_init_schema;
mod compatibility;
mod crds;
mod elsewhere;
mod generated;
mod gotemplate;
mod image;
mod kubelet_fields;
mod lint;
mod manifest;
mod metrics;
mod prose;
mod reasons;
mod reference;
mod revision;
mod rights;
mod test;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Commands for developers of Operating System Manager
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the services with an API server in memory, and show what they publish for a MachineDeployment
    #[command(disable_help_flag = true)]
    Demo(elsewhere::Arguments),
    /// Run end-to-end tests with real machines
    #[command(disable_help_flag = true)]
    E2e(elsewhere::Arguments),
    Test(test::Test),
    Lint(lint::Lint),
    Crds(crds::Crds),
    Rights(rights::Rights),
    Reasons(reasons::Reasons),
    Compatibility(compatibility::Compatibility),
    Reference(reference::Reference),
    Metrics(metrics::Metrics),
    CloudInitSchema(cloud_init_schema::CloudInitSchema),
    KubeletFields(kubelet_fields::KubeletFields),
    Bless(bless::Bless),
    Bench(bench::Bench),
    Gotemplate(gotemplate::Gotemplate),
    Image(image::Image),
    Chart(chart::Chart),
    Manifest(manifest::Manifest),
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Demo(arguments) => arguments.run("osm-demo"),
        Command::E2e(arguments) => arguments.run("osm-tests"),
        Command::Test(test) => test.run().await,
        Command::Lint(lint) => lint.run().await,
        Command::Crds(crds) => crds.run(),
        Command::Rights(rights) => rights.run(),
        Command::Reasons(reasons) => reasons.run(),
        Command::Compatibility(compatibility) => compatibility.run(),
        Command::Reference(reference) => reference.run(),
        Command::Metrics(metrics) => metrics.run(),
        Command::CloudInitSchema(schema) => schema.run().await,
        Command::KubeletFields(fields) => fields.run().await,
        Command::Bless(bless) => bless.run().await,
        Command::Bench(bench) => bench.run().await,
        Command::Gotemplate(gotemplate) => gotemplate.run().await,
        Command::Image(image) => image.run().await,
        Command::Chart(chart) => chart.run(),
        Command::Manifest(manifest) => manifest.run().await,
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
