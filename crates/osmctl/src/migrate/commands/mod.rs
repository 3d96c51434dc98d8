//! The subcommands: what each reads, in which phase of a migration it may run, what it asks, and what it prints.

mod apply;
mod check;
mod finish;
mod rollback;

use std::io::{BufRead, IsTerminal};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use jiff::SignedDuration;

pub use self::apply::Apply;
pub use self::check::Check;
pub use self::finish::Finish;
pub use self::rollback::Rollback;
use super::check::Permitted;
use super::steps::Steps;
use super::text;
use crate::cluster::{self, Editor};
use crate::progress::Progress;

/// How steps are done.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Steps")]
struct Doing {
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// How long a step may take
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = cluster::timeout)]
    timeout: Duration,
    /// How long API servers may take to notice changed webhook configurations
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = cluster::timeout)]
    settle: Duration,
}

impl Doing {
    fn steps<'a>(&self, editor: &'a Editor<'a>, namespace: &'a str) -> Steps<'a> {
        Steps {
            editor,
            namespace,
            timeout: self.timeout,
            settle: SignedDuration::try_from(self.settle).unwrap_or(SignedDuration::MAX),
        }
    }
}

/// The one cluster that the flags select.
async fn connect<'a>(flags: &cluster::Flags, progress: &'a Progress) -> Result<Editor<'a>> {
    if flags.has_worker_cluster() {
        bail!(
            "`osmctl migrate` supports one cluster; two clusters need the manual steps of docs/migration.md"
        );
    }
    if flags.has_home_cluster() {
        bail!("`osmctl migrate` supports no home cluster; docs/kkp.md describes what KKP restores");
    }
    Editor::connect(flags, progress).await
}

/// The same for a command that changes the cluster: it prints which one that is, and needs every permission of a migration.
async fn connect_to_change<'a>(
    flags: &cluster::Flags,
    progress: &'a Progress,
) -> Result<(Editor<'a>, Permitted)> {
    let editor = connect(flags, progress).await?;
    editor.print(&text::target(&editor, flags.namespace()))?;
    let permitted = Permitted::ask(&editor, flags.namespace())
        .await?
        .require(|_| true)?;
    Ok((editor, permitted))
}

/// Asks whether to go on.
fn confirm(doing: &Doing, question: &str) -> Result<()> {
    if doing.yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        bail!("nothing was changed; confirm with --yes, because standard input is not a terminal");
    }
    eprint!("\n{question} Type yes: ");
    let mut answer = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut answer)
        .context("cannot read the answer")?;
    match answer.trim() {
        "yes" => Ok(()),
        _ => bail!("nothing was changed"),
    }
}
