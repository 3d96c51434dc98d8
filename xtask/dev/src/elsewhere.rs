//! Commands whose programs are packages of their own, so that they don't compile what other commands need.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;

use anyhow::{Context as _, Result};

/// Arguments that are passed on as they are.
#[derive(clap::Args)]
pub struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Arguments {
    /// Becomes the program of this package.
    ///
    /// # Errors
    /// Cargo can't be run.
    pub fn run(&self, package: &str) -> Result<()> {
        let mut cargo = osm_judges::cargo_tool::cargo();
        cargo
            .args(["run", "--package", package, "--"])
            .args(&self.arguments);
        Err(cargo.exec()).context("cargo can't be run")
    }
}
