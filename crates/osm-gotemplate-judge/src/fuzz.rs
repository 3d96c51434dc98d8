//! Compares cases that the Go program generates.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::case::{Case, inputs};
use crate::compare::{Difference, Verdict, compare};

/// What a run has found.
#[derive(Debug, Default)]
pub struct Report {
    /// Cases that were compared.
    pub cases: usize,
    /// Of them, those that Go renders.
    pub rendered: usize,
    /// Those that differ as they are meant to.
    pub meant: usize,
    /// What else differs.
    pub differences: Vec<Difference>,
}

/// Compares random cases of a seed until the time is over, or there are `most` differences. `found` gets each difference.
///
/// # Errors
/// The program can't be run, or writes something else than cases.
pub fn fuzz(
    program: &Path,
    seed: u64,
    time: Duration,
    most: usize,
    mut found: impl FnMut(&Difference),
) -> Result<Report> {
    let mut child = Command::new(program)
        .args(["generate", "-count", "0", "-seed", &seed.to_string(), "-inputs"])
        .arg(inputs())
        .stdout(Stdio::piped())
        .stdin(Stdio::null())
        .spawn()
        .with_context(|| program.display().to_string())?;
    let mut lines = BufReader::new(child.stdout.take().context("standard output of Go")?).lines();
    let started = Instant::now();
    let mut report = Report::default();
    let mut read = || -> Result<()> {
        while started.elapsed() < time && report.differences.len() < most {
            let line = lines.next().context("the Go program has ended")??;
            let case: Case = serde_json::from_str(&line).with_context(|| line.clone())?;
            report.cases += 1;
            report.rendered += usize::from(case.output.is_some());
            match compare(&case) {
                Verdict::Equal => {}
                Verdict::Meant(_) => report.meant += 1,
                Verdict::Different(difference) => {
                    found(&difference);
                    report.differences.push(difference);
                }
            }
        }
        Ok(())
    };
    let outcome = read();
    child.kill().context("the Go program can't be stopped")?;
    child.wait()?;
    outcome.map(|()| report)
}
