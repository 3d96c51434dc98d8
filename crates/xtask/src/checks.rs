//! `cargo xtask test` and `cargo xtask lint`: what must hold before a change goes in.

use std::fmt;
use std::io::IsTerminal;
use std::process::{ExitStatus, Stdio};

use anyhow::{Context, Result, bail, ensure};
use osm_testkit::control_plane::assets::{self, Component};
use osm_testkit::{cargo_tool, helm, packages};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe::Receiver;
use tokio::process::Command;

use crate::build::{self, cargo};
use crate::progress::Progress;

/// Run every test that needs no real machine, with everything installed and built that they need
#[derive(clap::Args)]
pub struct Test {
    /// Arguments for `cargo test`, instead of --workspace: -p osm-api, --test chain, -- some_test
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<String>,
}

impl Test {
    /// Runs the tests; the last line is `N passed, N failed`, on standard output where all is well.
    ///
    /// # Errors
    /// A test that fails, or something that can't be installed or built.
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
        progress.step("helm and kubeconform");
        helm::program(|line| progress.step(line)).await?;
        helm::kubeconform(|line| progress.step(line)).await?;
        progress.step("building the workspace");
        let binaries = build::workspace().await?;
        progress.step("running tests");
        let mut command = cargo();
        command.args(["test", "--no-fail-fast"]).env("RUST_BACKTRACE", "0").env("OSM_BIN_DIR", binaries);
        if std::io::stdout().is_terminal() {
            command.env("CARGO_TERM_COLOR", "always");
        }
        if self.args.is_empty() {
            command.arg("--workspace");
        }
        // One pipe for both, so that what cargo says and what its tests say stays in order.
        let (reader, writer) = std::io::pipe()?;
        command.args(&self.args).stdout(writer.try_clone()?).stderr(writer);
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

/// Sum of the results that the test programs print.
#[derive(Debug, Default, PartialEq, Eq)]
struct Summary {
    passed: u64,
    failed: u64,
    failures: Vec<String>,
}

impl Summary {
    /// Adds a line such as `test result: ok. 3 passed; 0 failed; 0 ignored; …` or `test some::test ... FAILED`; passes over any
    /// other.
    fn add(&mut self, line: &str) {
        if let Some(test) = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED")) {
            self.failures.push(test.to_owned());
        }
        let counts = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "));
        for count in counts.map(|(_, counts)| counts.split("; ")).into_iter().flatten() {
            match count.split_once(' ') {
                Some((number, "passed")) => self.passed += number.parse().unwrap_or(0),
                Some((number, "failed")) => self.failed += number.parse().unwrap_or(0),
                _ => {}
            }
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// Check format, lints, documentation, and the dependencies' licenses and sources
#[derive(clap::Args)]
pub struct Lint {}

impl Lint {
    /// Runs all checks, then fails if one did.
    ///
    /// # Errors
    /// Names the checks that failed.
    #[allow(clippy::unused_self)]
    pub async fn run(&self) -> Result<()> {
        let checks: [(&str, &[&str]); 3] = [
            ("format", &["fmt", "--all", "--check"]),
            ("clippy", &["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]),
            ("documentation", &["doc", "--workspace", "--no-deps", "--document-private-items"]),
        ];
        let progress = Progress::start();
        let mut failed = Vec::new();
        for (name, arguments) in checks {
            progress.step(name);
            let status = cargo().args(arguments).env("RUSTDOCFLAGS", "--deny warnings").status().await?;
            if !status.success() {
                failed.push(name);
            }
        }
        progress.step("dependencies");
        if !dependencies(progress).await?.success() {
            failed.push("dependencies");
        }
        if !failed.is_empty() {
            bail!("failed: {}", failed.join(", "));
        }
        progress.step("all is well");
        Ok(())
    }
}

/// The same as the workflow on GitHub has.
const CARGO_DENY: &str = "0.20.2";

/// Runs cargo-deny, but for advisories, whose database is not everywhere to be reached.
async fn dependencies(progress: Progress) -> Result<ExitStatus> {
    let cargo_deny = cargo_tool::ensure("cargo-deny", CARGO_DENY, |line| progress.step(line)).await?;
    let mut command = Command::new(cargo_deny);
    command.args(["check", "licenses", "bans", "sources"]).current_dir(crate::root()).stdin(Stdio::null());
    command.kill_on_drop(true).status().await.context("cargo-deny can't be run")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_crate_has_the_workspaces_lints_which_forbid_unsafe() {
        let of_workspace: toml::Table =
            fs::read_to_string(crate::root().join("Cargo.toml")).unwrap().parse().unwrap();
        assert_eq!(of_workspace["workspace"]["lints"]["rust"]["unsafe_code"].as_str(), Some("forbid"));
        let crates: Vec<_> = fs::read_dir(crate::root().join("crates")).unwrap().collect();
        assert!(crates.len() > 8, "{crates:?}");
        for directory in crates {
            let manifest = directory.unwrap().path().join("Cargo.toml");
            let table: toml::Table = fs::read_to_string(&manifest).unwrap().parse().unwrap();
            let inherited = table.get("lints").and_then(|lints| lints.get("workspace"));
            assert_eq!(inherited.and_then(toml::Value::as_bool), Some(true), "{}", manifest.display());
        }
    }

    #[test]
    fn the_workflow_has_the_same_cargo_deny() {
        let workflow = fs::read_to_string(crate::root().join(".github/workflows/ci.yaml")).unwrap();
        assert!(workflow.contains(&format!("cargo-deny --version ={CARGO_DENY}")), "{CARGO_DENY}");
    }

    #[test]
    fn results_of_all_test_programs_are_added() {
        let mut total = Summary::default();
        for line in [
            "running 3 tests",
            "test a ... ok",
            "test module::b ... FAILED",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s",
        ] {
            total.add(line);
        }
        assert_eq!(total.to_string(), "13 passed, 2 failed");
        assert_eq!(total.failures, ["module::b"]);
    }
}
