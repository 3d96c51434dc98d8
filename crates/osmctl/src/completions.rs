//! `osmctl completions` and `osmctl man`: what shells and `man` read about osmctl.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
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
        output::raw(&String::from_utf8_lossy(&script))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Write man pages
#[derive(Args)]
#[command(after_help = "\
Example:
  osmctl man ~/.local/share/man/man1")]
pub struct Man {
    /// Folder for the pages
    folder: PathBuf,
}

impl Man {
    /// Writes a page for osmctl, and one for each subcommand.
    pub fn run(self, command: Command) -> Result<ExitCode> {
        let failed = || format!("cannot write to {}; check the path", self.folder.display());
        fs::create_dir_all(&self.folder).with_context(failed)?;
        clap_mangen::generate_to(command, &self.folder).with_context(failed)?;
        Ok(ExitCode::SUCCESS)
    }
}
