//! `osmctl compatibility`: what works with what, and how that is tested.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use osm_render::compatibility::{Table, compatibility};

use crate::output::{self, Format};

/// List the operating systems, clouds and versions that work together
///
/// The tables are those of this version of OSM. They include how each combination is tested.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # All tables
  osmctl compatibility

  # The clouds of the default profile for Ubuntu
  osmctl compatibility -o json | jq '.operatingSystems[] | select(.profile == \"osp-ubuntu\").clouds'")]
pub struct Compatibility {
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

impl Compatibility {
    /// Prints.
    pub fn run(self) -> Result<ExitCode> {
        let found = compatibility();
        let text = match self.output {
            Format::Text => found.tables().iter().map(text).collect::<Vec<_>>().join("\n"),
            Format::Json => output::json(&serde_json::to_value(found)?),
        };
        output::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn text(table: &Table) -> String {
    let head = table.head.iter().map(|name| name.to_uppercase()).collect();
    let lines: Vec<Vec<String>> = std::iter::once(head).chain(table.rows.iter().cloned()).collect();
    format!("{}\n{}\n\n{}", table.title, table.note, output::table(&lines))
}
