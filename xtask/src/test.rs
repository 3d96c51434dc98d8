//! Runs `cargo xtask test`: every test that needs no machine, and the sum of their results.

use std::fmt;
use std::io::{BufRead, BufReader, IsTerminal, Result};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::Instant;

use crate::cargo;

const USAGE: &str = "Run all tests that need no machine; first build them, and install what they need

Usage: cargo xtask test [ARGS]...

Arguments:
  [ARGS]...  Arguments for `cargo test`, such as `-p osm-api`, `--test chain` or `-- some_test` [default: --workspace]";

/// Runs the tests. The last line on standard output is the sum: `N passed, N failed`, and `, N skipped` where
/// tests are ignored.
///
/// # Errors
/// A program that can't be run.
pub fn run(arguments: &[String]) -> Result<bool> {
    if matches!(arguments, [only] if only == "--help" || only == "-h") {
        println!("{USAGE}");
        return Ok(true);
    }
    let mut steps = Steps(String::new());
    let passed = all(arguments, &mut steps);
    eprint!("{}", steps.0);
    let (summary, status) = match passed? {
        Ok(tests) => tests,
        Err(step) => {
            eprintln!("xtask: {step} failed");
            return Ok(false);
        }
    };
    for test in &summary.failures {
        println!("failed: {test}");
    }
    if !status.success() {
        eprintln!("xtask: cargo test failed: {summary}");
        return Ok(false);
    }
    println!("{summary}");
    Ok(true)
}

/// Returns the results of the tests, or the step before them that failed.
fn all(
    arguments: &[String],
    steps: &mut Steps,
) -> Result<std::result::Result<(Summary, ExitStatus), &'static str>> {
    // Everything at once: a build of the services alone would select other features of their dependencies,
    // and compile them twice.
    let mut build = cargo();
    build.args(["build", "--workspace", "--bins", "--tests"]);
    if !steps.take("build", || build.status())?.success() {
        return Ok(Err("build"));
    }
    let binaries = binaries()?;
    let mut programs = Command::new(binaries.join("test-programs"));
    if !steps.take("programs of tests", || programs.status())?.success() {
        return Ok(Err("programs of tests"));
    }
    let mut test = cargo();
    test.args(["test", "--no-fail-fast"])
        .env("RUST_BACKTRACE", "0")
        .env("OSM_BIN_DIR", binaries);
    // Tests of the whole system mostly wait for its services.
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let threads = 2 * std::thread::available_parallelism()?.get();
        test.env("RUST_TEST_THREADS", threads.to_string());
    }
    if arguments.is_empty() {
        test.arg("--workspace");
    }
    test.args(arguments);
    steps.take("tests", || summarized(test)).map(Ok)
}

/// The folder of this program, into which cargo also builds all others.
fn binaries() -> Result<PathBuf> {
    let mut folder = std::env::current_exe()?;
    folder.pop();
    Ok(folder)
}

/// Runs tests, prints what they print, and adds their results.
fn summarized(mut test: Command) -> Result<(Summary, ExitStatus)> {
    if std::io::stdout().is_terminal() {
        test.env("CARGO_TERM_COLOR", "always");
    }
    // One pipe for both streams keeps the output of cargo and of the tests in order.
    let (reader, writer) = std::io::pipe()?;
    let mut child = test.stdout(writer.try_clone()?).stderr(writer).spawn()?;
    drop(test); // its ends of the pipe are closed
    let mut summary = Summary::default();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        summary.add(&line);
    }
    Ok((summary, child.wait()?))
}

/// What each step took, as lines for people.
struct Steps(String);

impl Steps {
    fn take<T>(&mut self, name: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        eprintln!("== {name}");
        let started = Instant::now();
        let result = step();
        let line = format!("== {name}: {} s\n", started.elapsed().as_secs());
        self.0.push_str(&line);
        result
    }
}

/// The sum of the results that test programs print.
#[derive(Debug, Default, PartialEq, Eq)]
struct Summary {
    passed: u64,
    failed: u64,
    /// Tests that are marked `#[ignore]`.
    skipped: u64,
    failures: Vec<String>,
}

impl Summary {
    /// Adds a line such as `test result: ok. 3 passed; 0 failed; 0 ignored; …` or `test some::test ...
    /// FAILED`. Ignores other lines.
    fn add(&mut self, line: &str) {
        if let Some(test) = line
            .strip_prefix("test ")
            .and_then(|rest| rest.strip_suffix(" ... FAILED"))
        {
            self.failures.push(test.to_owned());
        }
        let counts = line
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "));
        for count in counts.map(|(_, counts)| counts.split("; ")).into_iter().flatten() {
            match count.split_once(' ') {
                Some((number, "passed")) => self.passed += number.parse().unwrap_or(0),
                Some((number, "failed")) => self.failed += number.parse().unwrap_or(0),
                Some((number, "ignored")) => self.skipped += number.parse().unwrap_or(0),
                _ => {}
            }
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_test_programs_are_added() {
        let mut total = Summary::default();
        total.add(
            "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        );
        assert_eq!(total.to_string(), "0 passed, 0 failed");
        for line in [
            "running 3 tests",
            "test a ... ok",
            "test module::b ... FAILED",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s",
        ] {
            total.add(line);
        }
        assert_eq!(total.to_string(), "13 passed, 2 failed, 1 skipped");
        assert_eq!(total.failures, ["module::b"]);
    }
}
