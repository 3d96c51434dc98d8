//! `osmctl compatibility`: what works with what, and how that is tested.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use osm_render::compatibility::{Table, compatibility};

use crate::output;

/// List the operating systems, clouds and versions that work together
///
/// The tables are those of this version of OSM, as on docs/compatibility.md.
#[derive(Args)]
#[command(after_help = "\
Example:
  osmctl compatibility")]
pub struct Compatibility {}

impl Compatibility {
    /// Prints.
    pub fn run(self) -> Result<ExitCode> {
        let tables: Vec<String> = compatibility().tables().iter().map(text).collect();
        output::print(&tables.join("\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn text(table: &Table) -> String {
    let head = table.head.iter().map(|name| name.to_uppercase()).collect();
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(table.rows.iter().cloned()).collect();
    format!("{}\n{}\n\n{}", table.title, table.note, output::table(&lines))
}
