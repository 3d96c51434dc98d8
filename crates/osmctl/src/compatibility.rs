//! `osmctl compatibility`: what works with what, and how that is tested.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::output;

/// List the operating systems, clouds and versions that work together
///
/// The tables are those of this version of OSM, as on docs/compatibility.md.
#[derive(Args)]
#[command(after_help = "\
Example:
  osmctl compatibility")]
pub struct Compatibility {}

/// The page that has the tables.
const PAGE: &str = include_str!("../../../docs/compatibility.md");

impl Compatibility {
    /// Prints.
    pub fn run(self) -> Result<ExitCode> {
        let (_, tables) = PAGE.split_once("<!-- tables -->").unwrap_or_default();
        let (tables, _) = tables.split_once("<!-- end of tables -->").unwrap_or_default();
        output::print(&format!("{}\n", tables.trim()))?;
        Ok(ExitCode::SUCCESS)
    }
}
