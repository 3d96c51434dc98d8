//! `osmctl` runs the code of the controllers offline. Each subcommand has its module.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bases;
mod input;
mod mirror_settings;
mod nodes;
mod output;
mod profiles;
mod render;
mod urls;

/// Show what Operating System Manager generates from profiles and MachineDeployments, without a cluster
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
    Urls(urls::Urls),
    MirrorSettings(mirror_settings::MirrorSettings),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Render(render) => render.run(),
        Command::Urls(urls) => urls.run(),
        Command::MirrorSettings(settings) => settings.run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("osmctl: {error:#}");
            ExitCode::FAILURE
        }
    }
}
