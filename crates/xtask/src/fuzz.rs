//! `cargo xtask fuzz`: the targets of osm-fuzz for a while, with coverage as the guide.

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
use crate::progress::Progress;

/// Longest that one input may take. Builds are not optimised, and machines are busy.
const HANG: Duration = Duration::from_secs(30);

/// Most memory, in MiB.
const MEMORY: u32 = 2048;

/// Give random input to everything that reads what others write, and see that it neither panics nor hangs nor tells secrets
#[derive(clap::Args)]
pub struct Fuzz {
    /// Seconds for each target
    #[arg(long, default_value_t = 60, value_name = "N")]
    seconds: u32,
    /// Where to begin, for the same run again; by default another for each run
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u32>,
    /// Only these targets
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
}

impl Fuzz {
    /// Builds the targets on the stable compiler, and runs one after the other. What a run has found out is the next one's start.
    ///
    /// # Errors
    /// A target that isn't there, a build that fails, or inputs for which a property doesn't hold: names the files.
    pub async fn run(&self) -> Result<()> {
        let unknown = self.targets.iter().find(|name| !TARGETS.iter().any(|target| target.name == **name));
        if let Some(name) = unknown {
            let known: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            bail!("no target {name}: there are {}", known.join(", "));
        }
        let progress = Progress::start();
        progress.step("building fuzz targets");
        let programs = build().await?;
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
        progress.step("all is well");
        Ok(())
    }

    async fn fuzz(&self, target: &Target, programs: &Path) -> Result<()> {
        let work = programs.parent().context("the target directory")?.join("fuzz").join(target.name);
        let (seeds, corpus, found) = (work.join("seeds"), work.join("corpus"), work.join("found"));
        if seeds.exists() {
            fs::remove_dir_all(&seeds)?; // those of an older state
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
            .arg(format!("-timeout={}", HANG.as_secs()))
            .arg(format!("-rss_limit_mb={MEMORY}"))
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
        // What it says last is enough to say why it stopped; panics that were caught come before.
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
        ensure!(status.success(), "{}\n{}", last.join("\n"), repeat(programs, target, &found));
        let kept = fs::read_dir(&corpus)?.count();
        println!("{}: {runs} inputs, {kept} that take ways of their own", target.name);
        Ok(())
    }
}

fn repeat(programs: &Path, target: &Target, found: &Path) -> String {
    let program = programs.join(format!("fuzz-{}", target.name));
    format!("inputs are in {}; run {} with one of them", found.display(), program.display())
}

/// Builds the programs, and gives their folder.
async fn build() -> Result<PathBuf> {
    let mut command = cargo();
    command
        // With the features that dependencies have in the whole workspace, lest they be compiled again.
        .args([
            "build",
            "--workspace",
            "--features=osm-fuzz/libfuzzer",
            "--message-format=json-render-diagnostics",
        ])
        .args(TARGETS.iter().map(|target| format!("--bin=fuzz-{}", target.name)))
        .env("RUSTC_WORKSPACE_WRAPPER", crate::root().join("crates/osm-fuzz/rustc-with-coverage.sh"))
        .stdout(Stdio::piped());
    let output = command.spawn().context("cargo can't be run")?.wait_with_output().await?;
    ensure!(output.status.success(), "the fuzz targets can't be built (they need a C++ compiler)");
    let messages = String::from_utf8(output.stdout).context("cargo's messages")?;
    let program = messages.lines().find_map(|message| {
        let message: Value = serde_json::from_str(message).ok()?;
        let is_binary = message.pointer("/target/kind/0")? == "bin";
        message.get("executable")?.as_str().filter(|_| is_binary).map(PathBuf::from)
    });
    let program = program.context("cargo built no fuzz target")?;
    Ok(program.parent().context("the folder of the fuzz targets")?.to_owned())
}
