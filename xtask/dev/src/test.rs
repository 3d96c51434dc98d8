//! `cargo xtask test`: every test that needs no machine, and the sum of their results.

use std::fmt;
use std::io::IsTerminal;

use anyhow::{Context, Result, ensure};
use osm_judges::packages;
use osm_testkit::control_plane::assets::{self, Component};
use osm_testkit::helm;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe::Receiver;

use crate::build::{self, cargo};
use osm_testkit::progress::Progress;

/// Run all tests that need no machine; first install and build what they need
#[derive(clap::Args)]
pub struct Test {
    /// Arguments for `cargo test`, such as `-p osm-api`, `--test chain` or `-- some_test` [default: --workspace]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<String>,
}

impl Test {
    /// Runs the tests. The last line on standard output is the sum: `N passed, N failed`, and `, N skipped` where tests are
    /// ignored.
    ///
    /// # Errors
    /// A test that fails, or a program that can't be installed or built.
    pub async fn run(&self) -> Result<()> {
        let progress = Progress::start();
        progress.step("Debian packages that tests need");
        tokio::task::spawn_blocking(|| packages::ensure(packages::FOR_TESTS)).await??;
        progress.step("etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl");
        let components = [
            Component::Etcd,
            Component::KubeApiserver,
            Component::KubeControllerManager,
            Component::KubeScheduler,
            Component::Kubectl,
        ];
        assets::ensure(&components, |line| progress.step(line)).await?;
        progress.step("helm");
        helm::program(|line| progress.step(line)).await?;
        helm::program_4(|line| progress.step(line)).await?;
        progress.step("building the workspace");
        let binaries = build::workspace().await?;
        progress.step("running tests");
        let mut command = cargo();
        command
            .args(["test", "--no-fail-fast"])
            .env("RUST_BACKTRACE", "0")
            .env("OSM_BIN_DIR", binaries);
        if std::io::stdout().is_terminal() {
            command.env("CARGO_TERM_COLOR", "always");
        }
        if self.args.is_empty() {
            command.arg("--workspace");
        }
        // One pipe for both streams keeps the output of cargo and of the tests in order.
        let (reader, writer) = std::io::pipe()?;
        command
            .args(&self.args)
            .stdout(writer.try_clone()?)
            .stderr(writer);
        let mut child = command.spawn().context("cargo can't be run")?;
        drop(command); // its ends of the pipe are closed
        let mut lines = BufReader::new(Receiver::from_owned_fd(reader.into())?).split(b'\n');
        let mut summary = Summary::default();
        while let Some(line) = lines.next_segment().await? {
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            summary.add(&line);
        }
        let status = child.wait().await?;
        progress.step("done");
        for test in &summary.failures {
            println!("failed: {test}");
        }
        ensure!(status.success(), "cargo test failed: {summary}");
        println!("{summary}");
        Ok(())
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
    /// Adds a line such as `test result: ok. 3 passed; 0 failed; 0 ignored; …` or `test some::test ... FAILED`. Ignores other lines.
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
