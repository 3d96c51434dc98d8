//! `osmctl completions`: what shells read about osmctl.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Command};
use clap_complete::Shell;

use crate::output;

/// Print a completion script for a shell
#[derive(Args)]
#[command(after_help = "\
Examples:
  # In this bash
  source <(osmctl completions bash)

  # In every zsh
  osmctl completions zsh >\"${fpath[1]}/_osmctl\"")]
pub struct Completions {
    /// Shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    /// Prints.
    pub fn run(self, mut command: Command) -> Result<ExitCode> {
        let name = command.get_name().to_owned();
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, name, &mut script);
        output::print(&String::from_utf8_lossy(&script))?;
        Ok(ExitCode::SUCCESS)
    }
}
