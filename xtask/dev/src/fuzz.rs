//! `cargo xtask fuzz`: runs the fuzz targets of osm-fuzz, guided by coverage.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use osm_fuzz::{DICTIONARY, TARGETS, Target};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::build::cargo;
use osm_testkit::progress::Progress;

/// The longest time for one input. It is generous, because builds are not optimised and machines are busy.
const INPUT_TIMEOUT: Duration = Duration::from_secs(30);

/// Memory limit of a fuzz target, in MiB.
const MAX_MEMORY: u32 = 2048;

/// Fuzz all parsers of external input: they must not panic, hang or leak secrets
#[derive(clap::Args)]
pub struct Fuzz {
    /// Seconds per target
    #[arg(long, default_value_t = 60, value_name = "N")]
    seconds: u32,
    /// Seed of the fuzzer, to repeat a run [default: a random seed]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u32>,
    /// Build with optimization, which is much faster and also checks the bound of time in docs/limits.md
    #[arg(long)]
    optimized: bool,
    /// Names of the targets to run [default: all]
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
}

impl Fuzz {
    /// Builds the targets with the stable compiler and runs them one after the other. Each run continues with the corpus of the run before.
    ///
    /// # Errors
    /// An unknown target, a build that fails, or inputs that violate a property, with the names of their files.
    pub async fn run(&self) -> Result<()> {
        let unknown = self
            .targets
            .iter()
            .find(|name| !TARGETS.iter().any(|target| target.name == **name));
        if let Some(name) = unknown {
            let known: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            bail!("unknown target {name}; the targets are {}", known.join(", "));
        }
        let progress = Progress::start();
        progress.step("building fuzz targets");
        let programs = build(self.optimized).await?;
        let mut failed = Vec::new();
        for target in TARGETS {
            if self.targets.is_empty() || self.targets.iter().any(|name| *name == target.name) {
                progress.step(target.name);
                if let Err(error) = self.fuzz(&target, &programs).await {
                    progress.warn(&format!("{}: {error:#}", target.name));
                    failed.push(target.name);
                }
            }
        }
        ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
        progress.step("all targets passed");
        Ok(())
    }

    async fn fuzz(&self, target: &Target, programs: &Path) -> Result<()> {
        let work = programs
            .parent()
            .context("the target directory")?
            .join("fuzz")
            .join(target.name);
        let (seeds, corpus, found) = (work.join("seeds"), work.join("corpus"), work.join("found"));
        if seeds.exists() {
            fs::remove_dir_all(&seeds)?; // they may be of an older commit
        }
        for folder in [&seeds, &corpus, &found] {
            fs::create_dir_all(folder)?;
        }
        for (n, seed) in (target.seeds)().iter().enumerate() {
            fs::write(seeds.join(n.to_string()), seed)?;
        }
        let dictionary = work.join("dictionary");
        fs::write(&dictionary, DICTIONARY)?;
        let mut artifacts: OsString = found.clone().into();
        artifacts.push("/");
        let option = |name: &str, value: &std::ffi::OsStr| {
            let mut option = OsString::from(name);
            option.push(value);
            option
        };
        let mut child = Command::new(programs.join(format!("fuzz-{}", target.name)))
            .arg(option("-dict=", dictionary.as_os_str()))
            .arg(option("-artifact_prefix=", &artifacts))
            .arg(format!("-max_total_time={}", self.seconds))
            .arg(format!("-timeout={}", INPUT_TIMEOUT.as_secs()))
            .arg(format!("-rss_limit_mb={MAX_MEMORY}"))
            .args(self.seed.map(|seed| format!("-seed={seed}")))
            .args(["-print_final_stats=1", "-verbosity=0"])
            .args([&corpus, &seeds])
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("the fuzzer can't be run")?;
        let mut lines = BufReader::new(child.stderr.take().context("standard error")?).split(b'\n');
        // The last lines explain why the fuzzer stopped. Caught panics precede them.
        let mut last: Vec<String> = Vec::new();
        let mut runs = String::new();
        while let Some(line) = lines.next_segment().await? {
            let line = String::from_utf8_lossy(&line).into_owned();
            if let Some((_, number)) = line.split_once("number_of_executed_units:") {
                number.trim().clone_into(&mut runs);
            }
            last.push(line);
            if last.len() > 60 {
                last.remove(0);
            }
        }
        let status = child.wait().await?;
        ensure!(
            status.success(),
            "{}\n{}",
            last.join("\n"),
            repeat(programs, target, &found)
        );
        let kept = fs::read_dir(&corpus)?.count();
        println!("{}: {runs} inputs, {kept} in the corpus", target.name);
        Ok(())
    }
}

fn repeat(programs: &Path, target: &Target, found: &Path) -> String {
    let program = programs.join(format!("fuzz-{}", target.name));
    format!(
        "the inputs are in {}; to repeat a failure, run {} with one of them",
        found.display(),
        program.display()
    )
}

/// Builds the programs and returns their directory.
async fn build(optimized: bool) -> Result<PathBuf> {
    let mut command = cargo();
    command
        // With the features of the whole workspace, so that dependencies are not compiled again.
        .args([
            "build",
            "--workspace",
            "--features=osm-fuzz/libfuzzer",
            "--message-format=json-render-diagnostics",
        ])
        .args(optimized.then_some("--profile=fuzz"))
        .args(TARGETS.iter().map(|target| format!("--bin=fuzz-{}", target.name)))
        .env(
            "RUSTC_WORKSPACE_WRAPPER",
            crate::root().join("e2e/fuzz/rustc-with-coverage.sh"),
        )
        .stdout(Stdio::piped());
    let output = command
        .spawn()
        .context("cargo can't be run")?
        .wait_with_output()
        .await?;
    ensure!(
        output.status.success(),
        "cargo build failed; the fuzz targets need a C++ compiler"
    );
    let messages = String::from_utf8(output.stdout).context("cargo's messages")?;
    let program = messages.lines().find_map(|message| {
        let message: Value = serde_json::from_str(message).ok()?;
        let is_binary = message.pointer("/target/kind/0")? == "bin";
        message
            .get("executable")?
            .as_str()
            .filter(|_| is_binary)
            .map(PathBuf::from)
    });
    let program = program.context("cargo built no fuzz target")?;
    Ok(program
        .parent()
        .context("the directory of the fuzz targets")?
        .to_owned())
}
