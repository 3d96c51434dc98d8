//! The rotation protocol as a model: osc-controller and secret-syncer as they are, on an API server in memory, in time that passes
//! as it is needed. What goes wrong and what people do is chosen by proptest; what must hold at every instant is judged by
//! `osm_testkit::invariants`, which knows nothing of the services. `docs/rotation.md` describes what is checked here.
//!
//! The cases are the same each time, so that a change is judged by what it changes; `PROPTEST_CASES=10000 cargo test --test model` looks
//! at so many others. A case that fails is shrunk, shown, and kept beside this file.

// The lints' exceptions for tests don't reach helpers of tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod case;
mod scenes;
mod weather;
mod world;

use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, RngAlgorithm, TestRng, TestRunner};

/// So many cases take less than a minute without optimisation.
const CASES: u32 = 30;

#[test]
fn whatever_goes_wrong_nothing_is_lost_and_everything_converges() {
    let kept = FileFailurePersistence::Direct(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/kept.txt"));
    let given: Option<u32> = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let config = Config {
        cases: given.unwrap_or(CASES),
        failure_persistence: Some(Box::new(kept)),
        max_shrink_time: 120_000,
        max_shrink_iters: 5_000,
        ..Config::default()
    };
    let (started, steps) = (std::time::Instant::now(), std::cell::Cell::new(0));
    let mut runner = match given {
        Some(_) => TestRunner::new(config),
        None => TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)),
    };
    let outcome = runner.run(&case::any(), |case| {
        steps.set(steps.get() + world::live_through(&case).map_err(TestCaseError::fail)?);
        Ok(())
    });
    let seconds = started.elapsed().as_secs_f64();
    println!("{} requests, {:.0} a second", steps.get(), f64::from(steps.get()) / seconds);
    if let Err(error) = outcome {
        panic!("{error}");
    }
}
