//! Criterion's medians of the last `cargo bench`, from the files that criterion writes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;

use crate::criterion;

/// Results that are older than the newest by more than this are of an earlier run.
const MAX_RUN: Duration = Duration::from_secs(3600);

/// One benchmark: its median.
struct Median {
    /// Such as `warm/osp-ubuntu/aws/plain`.
    name: String,
    nanoseconds: f64,
    measured: SystemTime,
}

/// The last run as a Markdown table, and when it ended. What precedes the first `/` of a benchmark's name is its column.
///
/// # Errors
/// Missing or unreadable results.
pub fn table(folder: &Path) -> Result<(String, Timestamp)> {
    let mut medians = Vec::new();
    collect(folder, &mut medians)?;
    let newest = medians.iter().map(|median| median.measured).max();
    let newest = newest.with_context(|| format!("no results in {}: run `cargo bench`", folder.display()))?;
    let mut columns = BTreeSet::new();
    let mut rows = BTreeMap::<&str, BTreeMap<&str, f64>>::new();
    for median in &medians {
        if newest
            .duration_since(median.measured)
            .is_ok_and(|age| age <= MAX_RUN)
        {
            let (column, row) = median.name.split_once('/').unwrap_or(("median", &median.name));
            columns.insert(column);
            rows.entry(row).or_default().insert(column, median.nanoseconds);
        }
    }
    ensure!(!rows.is_empty(), "no results in {}", folder.display());
    let mut table = String::from("| Milliseconds |");
    columns
        .iter()
        .for_each(|column| table.push_str(&format!(" {column} |")));
    table.push_str(&format!("\n|---|{}\n", "---|".repeat(columns.len())));
    for (row, values) in rows {
        table.push_str(&format!("| {row} |"));
        for column in &columns {
            let value = values
                .get(column)
                .map_or("–".to_owned(), |nanoseconds| millis(*nanoseconds));
            table.push_str(&format!(" {value} |"));
        }
        table.push('\n');
    }
    Ok((table, Timestamp::try_from(newest)?))
}

/// Milliseconds with one or two decimals.
fn millis(nanoseconds: f64) -> String {
    let millis = nanoseconds / 1e6;
    let decimals = if millis < 1.0 { 2 } else { 1 };
    format!("{millis:.decimals$}")
}

fn collect(folder: &Path, medians: &mut Vec<Median>) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    if criterion::is_benchmark(folder) {
        medians.push(Median {
            name: criterion::name(folder)?,
            nanoseconds: criterion::median(folder)?,
            measured: fs::metadata(criterion::estimates(folder))?.modified()?,
        });
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        collect(&entry?.path(), medians)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(folder: &Path, name: &str, nanoseconds: f64, age: Duration) {
        let folder = folder.join(name.replace('/', "_")).join("new");
        fs::create_dir_all(&folder).unwrap();
        fs::write(
            folder.join("benchmark.json"),
            format!(r#"{{"full_id":"{name}","title":"x"}}"#),
        )
        .unwrap();
        let estimates =
            format!(r#"{{"mean":{{"point_estimate":1.0}},"median":{{"point_estimate":{nanoseconds}}}}}"#);
        let file = folder.join("estimates.json");
        fs::write(&file, estimates).unwrap();
        fs::File::options()
            .write(true)
            .open(file)
            .unwrap()
            .set_modified(SystemTime::now() - age)
            .unwrap();
    }

    #[test]
    fn the_table_has_a_column_for_each_kind_and_only_the_last_run() {
        let folder = tempfile::tempdir().unwrap();
        result(
            folder.path(),
            "warm/ubuntu/aws",
            80_400.0,
            Duration::from_secs(60),
        );
        result(folder.path(), "cold/ubuntu/aws", 2_140_000.0, Duration::ZERO);
        result(
            folder.path(),
            "cold/flatcar/aws",
            12_000_000.0,
            Duration::from_secs(3),
        );
        result(
            folder.path(),
            "new/ubuntu/aws",
            5.0,
            Duration::from_secs(2 * 86_400),
        );
        let (table, _) = table(folder.path()).unwrap();
        assert_eq!(
            table,
            "| Milliseconds | cold | warm |\n|---|---|---|\n| flatcar/aws | 12.0 | – |\n| ubuntu/aws | 2.1 | 0.08 |\n"
        );
    }

    #[test]
    fn without_results_the_error_says_what_to_run() {
        let folder = tempfile::tempdir().unwrap();
        let error = table(&folder.path().join("criterion")).unwrap_err().to_string();
        assert!(error.ends_with("run `cargo bench`"), "{error}");
    }
}
