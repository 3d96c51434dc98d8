//! Which images of distributors have booted. A run of `cargo xtask e2e node --results` writes a file for each image, and `e2e/booted.json` has
//! the newest measurement of each.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::e2e::images::{Entry, Table};
use crate::revision;

/// The file with the newest measurements, in the repository.
pub const FILE: &str = "e2e/booted.json";

/// The scenario that an image must pass: the machine joins and runs a pod.
const JOIN: &str = "join";

/// What a run showed of one image.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct BootResult {
    /// Its name in e2e/images.toml.
    pub image: String,
    /// Its checksum. None if it was not downloaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// When that was, in UTC.
    pub date: Date,
    /// The commit of this repository.
    pub commit: String,
    /// Why it was not downloaded, or not verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_fetched: Option<String>,
    /// How its machines were made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machines: Option<String>,
    /// The scenarios that ran.
    #[serde(default)]
    pub scenarios: Vec<ScenarioResult>,
}

/// How a scenario ended.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ScenarioResult {
    /// Its name.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
    /// How long it took.
    pub seconds: f64,
    /// From power-on until the node was Ready for the first time. None if it never was.
    pub seconds_to_ready: Option<f64>,
}

/// What a result shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// All scenarios passed, and the machine joined.
    Booted,
    /// A scenario failed.
    Failed,
    /// Nothing: there was no image, or no scenario ran to its end.
    NotMeasured,
}

/// The newest measurement of each image, by name.
pub type Booted = BTreeMap<String, BootResult>;

impl BootResult {
    /// Of today, without scenarios.
    pub fn new(image: &str, commit: &str) -> Self {
        Self {
            image: image.to_owned(),
            sha256: None,
            date: Timestamp::now().to_zoned(TimeZone::UTC).date(),
            commit: commit.to_owned(),
            not_fetched: None,
            machines: None,
            scenarios: Vec::new(),
        }
    }

    /// Writes it into `folder`, called after the image.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(format!("{}.json", self.image));
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        fs::write(&path, serde_json::to_string_pretty(self)? + "\n")
            .with_context(|| path.display().to_string())
    }

    fn verdict(&self) -> Verdict {
        let joined = self
            .scenarios
            .iter()
            .any(|scenario| scenario.name == JOIN && scenario.passed);
        if self.sha256.is_none() || self.scenarios.is_empty() {
            Verdict::NotMeasured
        } else if self.scenarios.iter().any(|scenario| !scenario.passed) {
            Verdict::Failed
        } else if joined {
            Verdict::Booted
        } else {
            Verdict::NotMeasured
        }
    }

    /// The cell of a table.
    fn cell(&self) -> String {
        let (date, commit) = (self.date, revision::short(&self.commit));
        match self.verdict() {
            Verdict::Booted => {
                let joined = self.scenarios.iter().find(|scenario| scenario.name == JOIN);
                let ready = joined.and_then(|scenario| scenario.seconds_to_ready);
                let ready = ready.map_or_else(String::new, |seconds| format!(", Ready after {seconds:.0} s"));
                format!("{date}{ready}, commit {commit}")
            }
            Verdict::Failed => format!("failed on {date}, commit {commit}"),
            Verdict::NotMeasured => NOT_MEASURED.to_owned(),
        }
    }
}

const NOT_MEASURED: &str = "not measured";

/// Reads the measurements of the repository.
///
/// # Errors
/// A file that can't be read, or a name that does not fit.
pub fn read(path: &Path) -> Result<Booted> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let booted: Booted = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    for (name, result) in &booted {
        ensure!(
            *name == result.image,
            "{}: {name} has the result of {}",
            path.display(),
            result.image
        );
    }
    Ok(booted)
}

/// The text of the file that [`read`] reads.
///
/// # Errors
/// When it can't be written as JSON.
pub fn text(booted: &Booted) -> Result<String> {
    Ok(serde_json::to_string_pretty(booted)? + "\n")
}

/// Reads the files of a run.
///
/// # Errors
/// A folder without results, a file that is none, or an image that the table does not have.
pub fn results(folder: &Path, table: &Table) -> Result<Vec<BootResult>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let about = || path.display().to_string();
        let text = fs::read_to_string(&path).with_context(about)?;
        let result: BootResult = serde_json::from_str(&text).with_context(about)?;
        ensure!(
            table.contains_key(&result.image),
            "{}: e2e/images.toml has no image {}",
            path.display(),
            result.image
        );
        found.push(result);
    }
    ensure!(
        !found.is_empty(),
        "{} has no file NAME.json of `cargo xtask e2e node --results`",
        folder.display()
    );
    found.sort_by(|a, b| a.image.cmp(&b.image));
    Ok(found)
}

/// Takes over what a run has measured. What it has not measured stays as it was.
pub fn merge(booted: &mut Booted, results: &[BootResult]) {
    for result in results {
        if result.verdict() != Verdict::NotMeasured {
            booted.insert(result.image.clone(), result.clone());
        }
    }
}

/// Images that booted before, and did not boot in this run although they were downloaded.
pub fn regressions(booted: &Booted, results: &[BootResult]) -> Vec<String> {
    let booted_before = |result: &&BootResult| {
        booted
            .get(&result.image)
            .is_some_and(|before| before.verdict() == Verdict::Booted)
    };
    results
        .iter()
        .filter(booted_before)
        .filter(|result| result.not_fetched.is_none() && result.verdict() != Verdict::Booted)
        .map(|result| result.image.clone())
        .collect()
}

/// What a run showed, as a table in Markdown.
pub fn summary(results: &[BootResult]) -> String {
    let mut text = "| Image | Result | SHA-256 |\n|---|---|---|\n".to_owned();
    for result in results {
        let cell = match (&result.not_fetched, result.verdict()) {
            (Some(reason), _) => {
                let reason = reason.lines().next().unwrap_or_default().replace('|', "\\|");
                format!("not downloaded: {reason}")
            }
            (None, Verdict::Booted) => format!("booted: {}", result.cell()),
            (None, Verdict::Failed) => result.cell(),
            (None, Verdict::NotMeasured) => "not measured: no scenario ran to its end".to_owned(),
        };
        let sha256 = result.sha256.as_deref().unwrap_or("–");
        let _ = writeln!(text, "| {} | {cell} | {sha256} |", result.image);
    }
    text
}

/// The table of the page: every image, and when it booted.
pub fn table(images: &Table, booted: &Booted) -> String {
    let mut text = "| Image | operatingSystem | Checksum | Booted |\n|---|---|---|---|\n".to_owned();
    for (name, entry) in images {
        let cell = booted
            .get(name)
            .map_or_else(|| NOT_MEASURED.to_owned(), BootResult::cell);
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {cell} |",
            entry.operating_system,
            checksum(entry)
        );
    }
    text
}

fn checksum(entry: &Entry) -> &'static str {
    match (&entry.url, &entry.key) {
        (Some(_), Some(_)) => "from a signed list",
        (Some(_), None) => "by hand, because the list has no known signature",
        (None, _) => "by hand, as the image itself",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    fn images() -> Table {
        toml::from_str(
            "[a]\noperating-system = 'ubuntu'\nprovisioning = 'cloud-init'\nurl = 'https://a/a'\nchecksums = 'https://a/SUMS'\n\
             key = { url = 'https://a/key', fingerprint = '0123456789ABCDEF0123456789ABCDEF01234567' }\n\
             [b]\noperating-system = 'centos'\nprovisioning = 'cloud-init'\nurl = 'https://a/b'\nchecksums = 'https://a/SUMS'\n\
             [c]\noperating-system = 'rhel'\nprovisioning = 'cloud-init'\n",
        )
        .unwrap()
    }

    fn result(image: &str, passed: bool) -> BootResult {
        BootResult {
            sha256: Some("0".repeat(64)),
            date: jiff::civil::date(2026, 11, 25),
            machines: Some("virtual machines with KVM".to_owned()),
            scenarios: vec![ScenarioResult {
                name: JOIN.to_owned(),
                passed,
                seconds: 60.0,
                seconds_to_ready: passed.then_some(41.4),
            }],
            ..BootResult::new(image, COMMIT)
        }
    }

    fn not_fetched(image: &str) -> BootResult {
        BootResult {
            not_fetched: Some("https://a/a can't be downloaded: 404\ntry again".to_owned()),
            ..BootResult::new(image, COMMIT)
        }
    }

    #[test]
    fn the_page_has_what_was_measured_and_names_what_was_not() {
        let mut booted = Booted::new();
        merge(
            &mut booted,
            &[result("a", true), result("b", false), not_fetched("c")],
        );
        assert_eq!(
            table(&images(), &booted),
            "| Image | operatingSystem | Checksum | Booted |\n|---|---|---|---|\n\
             | a | ubuntu | from a signed list | 2026-11-25, Ready after 41 s, commit 0123456789ab |\n\
             | b | centos | by hand, because the list has no known signature | failed on 2026-11-25, commit 0123456789ab |\n\
             | c | rhel | by hand, as the image itself | not measured |\n"
        );
    }

    #[test]
    fn only_a_measurement_replaces_an_older_one() {
        let mut booted = Booted::new();
        merge(&mut booted, &[result("a", true)]);
        let before = booted.clone();
        let mut no_scenario = result("a", true);
        no_scenario.scenarios.clear();
        // It booted, but whether it joins was not tried.
        let mut other_scenario = result("a", true);
        other_scenario.scenarios[0].name = "mirror".to_owned();
        let nothing = [not_fetched("a"), no_scenario, other_scenario];
        for result in nothing {
            merge(&mut booted, &[result]);
            assert_eq!(booted, before);
        }
        merge(&mut booted, &[result("a", false)]);
        assert!(booted["a"].cell().starts_with("failed on"));
    }

    #[test]
    fn an_image_that_booted_before_must_boot_again_if_it_is_there() {
        let mut booted = Booted::new();
        merge(&mut booted, &[result("a", true), result("b", false)]);
        let mut no_scenario = result("a", true);
        no_scenario.scenarios.clear();
        assert_eq!(regressions(&booted, &[result("a", false)]), ["a"]);
        assert_eq!(regressions(&booted, &[no_scenario]), ["a"]);
        for fine in [
            result("a", true),
            not_fetched("a"),
            result("b", false),
            result("c", false),
        ] {
            assert!(regressions(&booted, &[fine]).is_empty());
        }
    }

    #[test]
    fn a_summary_counts_nothing_as_booted_that_was_not_downloaded() {
        let text = summary(&[result("a", true), result("b", false), not_fetched("c")]);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert!(lines[0].starts_with("| a | booted: 2026-11-25"), "{text}");
        assert!(lines[1].starts_with("| b | failed on 2026-11-25"), "{text}");
        assert_eq!(
            lines[2],
            "| c | not downloaded: https://a/a can't be downloaded: 404 | – |"
        );
    }

    #[test]
    fn files_of_a_run_are_read_as_they_were_written() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("results");
        let written = [not_fetched("b"), result("a", true)];
        for result in &written {
            result.write(&folder).unwrap();
        }
        fs::write(folder.join("console.log"), "").unwrap();
        let [b, a] = written;
        assert_eq!(results(&folder, &images()).unwrap(), [a.clone(), b]);

        let mut booted = Booted::new();
        merge(&mut booted, &[a]);
        let file = scratch.path().join("booted.json");
        fs::write(&file, text(&booted).unwrap()).unwrap();
        assert_eq!(read(&file).unwrap(), booted);
        fs::write(&file, text(&booted).unwrap().replacen("\"a\"", "\"b\"", 1)).unwrap();
        assert!(
            read(&file)
                .unwrap_err()
                .to_string()
                .contains("b has the result of a")
        );

        result("unknown", true).write(&folder).unwrap();
        let error = results(&folder, &images()).unwrap_err().to_string();
        assert!(error.contains("no image unknown"), "{error}");
        let error = results(scratch.path(), &images()).unwrap_err();
        assert!(format!("{error:#}").contains("booted.json"), "{error:#}");
        let empty = tempfile::tempdir().unwrap();
        let error = results(empty.path(), &images()).unwrap_err().to_string();
        assert!(error.contains("--results"), "{error}");
    }
}
