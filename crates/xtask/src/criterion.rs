//! The files that criterion writes for each benchmark.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

/// `benchmark.json`.
#[derive(Deserialize)]
struct Benchmark {
    full_id: String,
}

/// `estimates.json`.
#[derive(Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Deserialize)]
struct Estimate {
    /// Nanoseconds.
    point_estimate: f64,
}

/// Where `cargo bench` lets criterion write.
pub fn directory() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR");
    let target = target.map_or_else(|| crate::root().join("target"), PathBuf::from);
    target.join("criterion")
}

/// Whether a folder has the results of a benchmark.
pub fn is_benchmark(folder: &Path) -> bool {
    name_file(folder).is_file() && estimates(folder).is_file()
}

fn name_file(benchmark: &Path) -> PathBuf {
    benchmark.join("new/benchmark.json")
}

/// Name of a benchmark, such as `warm/osp-ubuntu/aws/plain`.
///
/// # Errors
/// A missing or unreadable file.
pub fn name(benchmark: &Path) -> Result<String> {
    parse(&name_file(benchmark)).map(|Benchmark { full_id }| full_id)
}

/// The file with the estimates of a benchmark.
pub fn estimates(benchmark: &Path) -> PathBuf {
    benchmark.join("new/estimates.json")
}

/// Median of a benchmark, in nanoseconds.
///
/// # Errors
/// A missing or unreadable file.
pub fn median(benchmark: &Path) -> Result<f64> {
    parse(&estimates(benchmark)).map(|Estimates { median }| median.point_estimate)
}

fn parse<T: for<'de> Deserialize<'de>>(file: &Path) -> Result<T> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    serde_json::from_str(&text).with_context(|| file.display().to_string())
}
