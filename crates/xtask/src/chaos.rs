//! `cargo xtask chaos`: rotations under injected faults.

use anyhow::{Result, bail};
use clap::Args;
use osm_sim::chaos::{self, Options};
use rand::Rng;

use osm_testkit::progress::Progress;

/// Rotate pools on a real API server while requests fail and services are killed, and check all invariants
///
/// A proxy refuses requests, delays them, answers them with errors or drops their answers, and cuts watches. Meanwhile the command edits
/// profiles and credentials, deletes and recreates pools, and deletes Secrets and Roles. An independent observer checks the invariants of
/// docs/rotation.md all the time. At the end, everything must converge, and the services must become idle.
#[derive(Args)]
pub struct Chaos {
    /// Seed of all random choices; timing still varies [default: a random seed, which is printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Total number of rotations
    #[arg(long, value_name = "N", default_value_t = 1000)]
    rounds: u32,
    /// Number of pools that rotate concurrently
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=200))]
    pools: u32,
    /// Faults per thousand requests
    #[arg(long, value_name = "N", default_value_t = 80, value_parser = clap::value_parser!(u32).range(0..=500))]
    faults: u32,
}

impl Chaos {
    /// Runs the rotations and prints the faults.
    ///
    /// # Errors
    /// An invariant that was violated, or a rotation that is not published.
    pub async fn run(self) -> Result<()> {
        let progress = Progress::start();
        let seed = self
            .seed
            .unwrap_or_else(|| rand::rng().random_range(0..1_000_000));
        let Self {
            rounds,
            pools,
            faults,
            ..
        } = self;
        let again =
            format!("cargo xtask chaos --seed {seed} --rounds {rounds} --pools {pools} --faults {faults}");
        progress.step(&again);
        let options = Options {
            seed,
            rotations: rounds,
            pools,
            faults,
        };
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
                println!("all invariants held");
                Ok(())
            }
            broken => bail!("{broken} invariants were violated; to repeat this run: {again}"),
        }
    }
}
