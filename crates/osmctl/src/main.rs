//! `osmctl`: what the controllers do, at the command line and offline. One module for each subcommand.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod input;
mod mirror_settings;
mod nodes;
mod output;
mod profiles;
mod render;
mod urls;

/// Shows what Operating System Manager makes of profiles and MachineDeployments. Needs no cluster.
#[derive(Parser)]
#[command(name = "osmctl", version, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 done, 1 the input can't be used, 2 the command line is wrong.")]
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
