//! The rotation protocol as a model. osc-controller and secret-syncer run as they are, on an API server in
//! memory, in simulated time. proptest chooses the faults and what users do. `osm_sim::invariants`, which
//! knows nothing of the services, checks what must hold at every instant. `docs/rotation.md` describes these
//! invariants.
//!
//! The cases are the same in each run, so that only a change of the code changes the result.
//! `PROPTEST_CASES=10000 cargo test -p osm-sim model` runs that many other cases. proptest shrinks a case
//! that fails, prints it, and keeps it beside this file.

mod case;
mod fault_schedule;
mod scenes;
pub mod world;

use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, RngAlgorithm, TestRng, TestRunner};

/// So many cases take less than a minute without optimisation.
const CASES: u32 = 30;
/// They share the cases, each of which runs in one thread.
const THREADS: u8 = 2;

#[test]
fn nothing_is_lost_and_everything_converges_whatever_goes_wrong() {
    let given: Option<u32> = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok());
    let started = std::time::Instant::now();
    let requests: u32 = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || run_cases(thread, given)))
            .collect();
        runs.into_iter()
            .map(|run| {
                run.join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
            .sum()
    });
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{requests} requests, {:.0} a second",
        f64::from(requests) / seconds
    );
}

/// Runs this thread's part of the cases: the given number of random ones, or the same as in each run. Returns
/// the number of requests.
fn run_cases(thread: u8, given: Option<u32>) -> u32 {
    let kept =
        FileFailurePersistence::Direct(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/model/kept.txt"));
    let config = Config {
        cases: given.unwrap_or(CASES).div_ceil(THREADS.into()),
        failure_persistence: Some(Box::new(kept)),
        max_shrink_time: 120_000,
        max_shrink_iters: 5_000,
        ..Config::default()
    };
    let mut runner = match given {
        Some(_) => TestRunner::new(config),
        None => TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[thread; 32])),
    };
    let requests = std::cell::Cell::new(0);
    let outcome = runner.run(&case::any(), |case| {
        requests.set(requests.get() + world::live_through(&case).map_err(TestCaseError::fail)?);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    requests.get()
}
