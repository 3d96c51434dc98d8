//! `cargo xtask chaos`: rotations while everything fails that can.

use anyhow::{Result, bail};
use clap::Args;
use osm_testkit::chaos::{self, Options};
use rand::Rng;

use crate::progress::Progress;

/// Rotates pools on a real API server, while a proxy makes requests fail and services are killed, and watches that nothing is
/// lost.
///
/// Requests are refused, delayed, answered with errors, or done and their answers lost; watches are cut. Profiles and
/// credentials are edited, pools deleted and made again, Secrets and Roles deleted. An observer of its own checks all the while
/// what docs/rotation.md promises; at the end everything has to converge and to be quiet.
#[derive(Args)]
pub struct Chaos {
    /// Of everything that is left to chance, but for time. Default: a new one, which is printed.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Rotations in all.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    rounds: u32,
    /// Pools that rotate side by side.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=200))]
    pools: u32,
    /// Requests out of a thousand that something happens to.
    #[arg(long, value_name = "N", default_value_t = 80, value_parser = clap::value_parser!(u32).range(0..=500))]
    faults: u32,
}

impl Chaos {
    /// Runs it.
    ///
    /// # Errors
    /// A promise that was broken, a rotation that is not published.
    pub async fn run(self) -> Result<()> {
        let progress = Progress::start();
        let seed = self.seed.unwrap_or_else(|| rand::rng().random_range(0..1_000_000));
        let Self { rounds, pools, faults, .. } = self;
        let again =
            format!("cargo xtask chaos --seed {seed} --rounds {rounds} --pools {pools} --faults {faults}");
        progress.step(&again);
        let options = Options { seed, rotations: rounds, pools, faults };
        let report = chaos::run(options, |text| progress.step(text)).await?;
        progress.step(&format!(
            "{} rotations, {} services killed, {} requests, {} changes observed",
            report.rotations, report.kills, report.requests, report.changes
        ));
        for (fault, count) in &report.faults {
            println!("{count:>8} {fault}");
        }
        for violation in &report.violations {
            progress.warn(&violation.to_string());
        }
        match report.violations.len() {
            0 => {
                println!("every promise was kept");
                Ok(())
            }
            broken => bail!("{broken} promises were broken; again: {again}"),
        }
    }
}
