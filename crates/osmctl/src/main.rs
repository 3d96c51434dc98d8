//! `osmctl` runs the code of the controllers offline, and reads clusters. Only `kubeconfigs` and `fleet` write to
//! one.
//! Each subcommand has its module.
//!
//! ```text
//! problem ← yaml_tree, source, origin ← metadata ← input ← profiles ← pools ← tree ← difference   shared; each uses only what is before it
//! input ← snapshot ← cluster                                                           what a cluster holds; only `cluster` does I/O
//! snapshot ← chain                                                                     what a pool waits for
//! output                                                                               tables and texts
//! render, lint, diff, status, …                                                        the subcommands
//! ```

use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};

mod bases;
mod chain;
mod cluster;
mod compatibility;
mod completions;
mod credentials;
mod diff;
mod difference;
mod fleet;
mod input;
mod kubeconfigs;
mod lint;
mod metadata;
mod migrate;
mod mirror_settings;
mod new;
mod nodes;
mod origin;
mod output;
mod pool_nodes;
mod pools;
mod problem;
mod profiles;
mod render;
mod schema;
mod show;
mod snapshot;
mod source;
mod status;
mod support_bundle;
mod test;
mod tree;
mod urls;
mod wait;
mod yaml_tree;

use crate::problem::Problems;

/// Show what Operating System Manager generates from profiles and MachineDeployments, and what a cluster
/// waits for
#[derive(Parser)]
#[command(name = "osmctl", version, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 success, 1 invalid input, 2 usage error.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Render(render::Render),
    Lint(lint::Lint),
    Diff(diff::Diff),
    Test(test::Test),
    New(new::New),
    Schema(schema::Schema),
    Compatibility(compatibility::Compatibility),
    Urls(urls::Urls),
    MirrorSettings(mirror_settings::MirrorSettings),
    Status(status::Status),
    Show(show::Show),
    SupportBundle(support_bundle::SupportBundle),
    Migrate(migrate::Migrate),
    Kubeconfigs(kubeconfigs::Kubeconfigs),
    Fleet(fleet::Fleet),
    Completions(completions::Completions),
    Man(completions::Man),
}

impl Command {
    fn run(self) -> Result<ExitCode> {
        match self {
            Self::Render(render) => render.run(),
            Self::Lint(lint) => lint.run(),
            Self::Diff(diff) => diff.run(),
            Self::Test(test) => test.run(),
            Self::New(new) => new.run(),
            Self::Schema(schema) => schema.run(),
            Self::Compatibility(compatibility) => compatibility.run(),
            Self::Urls(urls) => urls.run(),
            Self::MirrorSettings(settings) => settings.run(),
            Self::Status(status) => status.run(),
            Self::Show(show) => show.run(),
            Self::SupportBundle(bundle) => bundle.run(),
            Self::Migrate(migrate) => migrate.run(),
            Self::Kubeconfigs(kubeconfigs) => kubeconfigs.run(),
            Self::Fleet(fleet) => fleet.run(),
            Self::Completions(completions) => completions.run(Cli::command()),
            Self::Man(man) => man.run(Cli::command()),
        }
    }
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    // Like `kubectl diff`: 1 means that something differs, and more means that the command failed.
    let failure = match command {
        Command::Diff(_) | Command::Status(_) => ExitCode::from(diff::ERROR),
        _ => ExitCode::FAILURE,
    };
    command.run().unwrap_or_else(|error| {
        match error.downcast_ref::<Problems>() {
            Some(problems) if error.chain().count() == 1 => output::note(&problems.to_string()),
            _ => output::note(&format!("osmctl: {error:#}")),
        }
        failure
    })
}
