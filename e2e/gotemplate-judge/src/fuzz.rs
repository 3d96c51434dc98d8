//! Compares cases that the Go program generates.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

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

/// Most times that the Go program is started again. Some templates overflow its stack, e.g. one that merges a map into itself.
const MOST_RESTARTS: u64 = 100;

/// Compares random cases of a seed until the time is over, or there are `most` differences. `found` gets each difference.
///
/// # Errors
/// The program can't be run, ends again and again, or writes something else than cases.
pub fn fuzz(
    program: &Path,
    seed: u64,
    time: Duration,
    most: usize,
    mut found: impl FnMut(&Difference),
) -> Result<Report> {
    let started = Instant::now();
    let mut report = Report::default();
    for restart in 0..MOST_RESTARTS {
        let mut generator = Generator::start(program, seed.wrapping_add(restart))?;
        while let Some(case) = generator.next()? {
            report.add(&case, &mut found);
            if started.elapsed() >= time || report.differences.len() >= most {
                return Ok(report);
            }
        }
    }
    bail!("the Go program has ended {MOST_RESTARTS} times")
}

impl Report {
    fn add(&mut self, case: &Case, found: &mut impl FnMut(&Difference)) {
        self.cases += 1;
        self.rendered += usize::from(case.output.is_some());
        match compare(case) {
            Verdict::Equal => {}
            Verdict::Meant(_) => self.meant += 1,
            Verdict::Different(difference) => {
                found(&difference);
                self.differences.push(difference);
            }
        }
    }
}

/// The Go program, which writes cases until it is dropped.
struct Generator {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Generator {
    fn start(program: &Path, seed: u64) -> Result<Self> {
        let mut child = Command::new(program)
            .args(["generate", "-count", "0", "-seed", &seed.to_string(), "-inputs"])
            .arg(inputs())
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| program.display().to_string())?;
        let output = BufReader::new(child.stdout.take().context("standard output of Go")?);
        Ok(Self { child, output })
    }

    /// The next case; none if the program has ended, perhaps in the middle of a line.
    fn next(&mut self) -> Result<Option<Case>> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if !line.ends_with('\n') {
            return Ok(None);
        }
        serde_json::from_str(&line).with_context(|| line)
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        // It has ended already, or is to end now.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
