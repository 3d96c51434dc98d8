//! `osmctl migrate check`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::super::check::{self, Permitted, Source};
use super::super::journal::{Kept, Phase};
use super::super::{plan, rights, text};
use super::connect;
use crate::cluster;
use crate::output::{Color, Format};
use crate::progress::Progress;

/// Check whether a cluster can be migrated, and print the plan
///
/// The command only reads.
#[derive(Args)]
pub struct Check {
    /// Print the lines that differ
    #[arg(long)]
    diff: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// When to colour
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    color: Color,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    cluster: cluster::Flags,
}

impl Check {
    /// Reads and prints.
    ///
    /// # Errors
    /// A cluster that can't be read.
    pub async fn run(self) -> Result<ExitCode> {
        let progress = Progress::new();
        let editor = connect(&self.cluster, &progress).await?;
        let namespace = self.cluster.namespace();
        let permitted = Permitted::ask(&editor, namespace)
            .await?
            .require(rights::is_reading)?;
        if let Some(kept) = Kept::read(&editor, namespace).await? {
            let (next, code) = kept.journal.phase.next();
            editor.print(&match self.output {
                Format::Text => {
                    let target = text::target(&editor, namespace);
                    format!("{target}{}\n{next}\n", text::plan(&kept.journal.steps))
                }
                Format::Json => text::begun(&kept.journal, &editor, namespace),
            })?;
            return Ok(code);
        }
        let checked = check::read(&editor, &self.cluster, &self.source, permitted).await?;
        let steps = plan::stop(&checked.found);
        editor.print(&match self.output {
            Format::Text => {
                let mut text = text::target(&editor, namespace);
                text.push_str(&text::report(&checked, &steps, self.diff, self.color.is_on()));
                if checked.problems.is_empty() {
                    text.push_str("\nThe cluster can be migrated. Next step: osmctl migrate apply\n");
                }
                text
            }
            Format::Json => {
                let context = editor.context.as_deref();
                text::json(&checked, &steps, self.diff, &editor.server, context, namespace)
            }
        })?;
        Ok(checked.exit_code())
    }
}

impl Phase {
    /// What to do next in this phase, and whether `check` succeeds.
    fn next(self) -> (&'static str, ExitCode) {
        match self {
            Self::Stopping => (
                "This migration has begun. Next step: osmctl migrate apply",
                ExitCode::SUCCESS,
            ),
            Self::Stopped => (
                "The Go implementation is stopped. Next step: install the chart, and then run osmctl migrate finish",
                ExitCode::SUCCESS,
            ),
            Self::CleaningUp => (
                "This migration has begun. Next step: osmctl migrate finish",
                ExitCode::SUCCESS,
            ),
            Self::Finished => (
                "The cluster is already migrated; there is nothing to do.",
                ExitCode::FAILURE,
            ),
            Self::RollingBack => (
                "This migration is being rolled back. Next step: osmctl migrate rollback",
                ExitCode::FAILURE,
            ),
        }
    }
}
