//! Which images of distributors have booted. A run of `cargo xtask e2e node --results` writes a file for each image. `e2e/booted.json` has the
//! newest result of each, and the newest one in which it booted. A release compares with the latter.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use osm_lab::machines::vm::download::Cause;
use serde::{Deserialize, Serialize};

use crate::e2e::images::{self, Entry, Table};
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
    /// Why there was no verified image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_fetched: Option<NotFetched>,
    /// `KVM` or `emulation`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machines: Option<String>,
    /// The scenarios that ran.
    #[serde(default)]
    pub scenarios: Vec<ScenarioResult>,
}

/// Why an image was not downloaded, or not verified.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NotFetched {
    /// Whether the server, the image or something else is the cause.
    pub cause: Cause,
    /// For people.
    pub reason: String,
}

impl NotFetched {
    /// The first line of the reason. The others are advice.
    fn summary(&self) -> &str {
        self.reason.lines().next().unwrap_or_default()
    }
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

/// What is known of an image.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Measured {
    /// Its newest result.
    last_result: BootResult,
    /// The newest result in which it booted. A later failure does not replace it.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_booted: Option<BootResult>,
}

/// What is known of each image, by name.
pub type Booted = BTreeMap<String, Measured>;

impl Measured {
    /// The cell of a table.
    fn cell(&self) -> String {
        let last = self.last_result.cell();
        match &self.last_booted {
            Some(booted) if *booted != self.last_result => {
                format!("{last}; booted on {}", booted.cell())
            }
            _ => last,
        }
    }
}

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
    for (name, measured) in &booted {
        for result in [Some(&measured.last_result), measured.last_booted.as_ref()]
            .into_iter()
            .flatten()
        {
            ensure!(
                *name == result.image,
                "{}: {name} has the result of {}",
                path.display(),
                result.image
            );
        }
        ensure!(
            measured
                .last_booted
                .as_ref()
                .is_none_or(|result| result.verdict() == Verdict::Booted),
            "{}: lastBooted of {name} is a result in which it did not boot; remove lastBooted, or restore it from the history of the file",
            path.display()
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

/// Reads the names of the images that a run had to measure, from a JSON array.
///
/// # Errors
/// A text that is none, or an image that the table does not have.
pub fn expected(json: &str, table: &Table) -> Result<Vec<String>> {
    let names: Vec<String> = serde_json::from_str(json).with_context(|| {
        format!("--expect: {json} is no JSON array of names; `cargo xtask e2e images --matrix` prints one")
    })?;
    for name in &names {
        images::find(table, name).context("--expect")?;
    }
    Ok(names)
}

/// Takes over what a run has measured. What it has not measured stays as it was.
pub fn merge(booted: &mut Booted, results: &[BootResult]) {
    for result in results {
        let last_booted = match result.verdict() {
            Verdict::Booted => Some(result.clone()),
            Verdict::Failed => booted.remove(&result.image).and_then(|before| before.last_booted),
            Verdict::NotMeasured => continue,
        };
        let measured = Measured {
            last_result: result.clone(),
            last_booted,
        };
        booted.insert(result.image.clone(), measured);
    }
}

/// What a release must not have, a sentence each:
///
/// - An image that booted before, and did not boot in this run. Only a server that does not provide the image is an excuse.
/// - An image that was expected and booted before, and has no result. Its job failed or was ended before.
/// - An image whose signature or checksum is wrong, whether it booted before or not.
pub fn faults(booted: &Booted, results: &[BootResult], expected: &[String]) -> Vec<String> {
    let booted_before = |image: &String| booted.get(image)?.last_booted.as_ref();
    let of_result = |result: &BootResult| {
        let image = &result.image;
        let before = booted_before(image);
        match (&result.not_fetched, before) {
            (Some(failure), _) if failure.cause == Cause::Unverified => {
                Some(format!("{image} was not verified: {}", failure.summary()))
            }
            (Some(failure), _) if failure.cause == Cause::Unreachable => None,
            (Some(failure), Some(before)) => Some(format!(
                "{image} booted on {}, and was not downloaded now: {}",
                before.date,
                failure.summary()
            )),
            (None, Some(before)) if result.verdict() != Verdict::Booted => Some(format!(
                "{image} booted on {}, and does not boot now; the logs of its run give the reason",
                before.date
            )),
            _ => None,
        }
    };
    let of_missing = |image: &String| {
        let before = booted_before(image)?;
        Some(format!(
            "{image} booted on {}, and has no result now; the log of its job gives the reason",
            before.date
        ))
    };
    let mut faults: Vec<String> = results.iter().filter_map(of_result).collect();
    faults.extend(missing(results, expected).filter_map(of_missing));
    faults
}

/// Images that were expected, and have no result.
fn missing<'e>(results: &[BootResult], expected: &'e [String]) -> impl Iterator<Item = &'e String> {
    expected
        .iter()
        .filter(|image| results.iter().all(|result| result.image != **image))
}

/// What a run showed, as a table in Markdown.
pub fn summary(results: &[BootResult], expected: &[String]) -> String {
    let mut text = "| Image | Result | SHA-256 |\n|---|---|---|\n".to_owned();
    for result in results {
        let cell = match (&result.not_fetched, result.verdict()) {
            (Some(failure), _) => {
                let what = match failure.cause {
                    Cause::Unverified => "not verified",
                    Cause::Unreachable | Cause::Other => "not downloaded",
                };
                format!("{what}: {}", failure.summary().replace('|', "\\|"))
            }
            (None, Verdict::Booted) => format!("booted: {}", result.cell()),
            (None, Verdict::Failed) => result.cell(),
            (None, Verdict::NotMeasured) => "not measured: no scenario ran to its end".to_owned(),
        };
        let sha256 = result.sha256.as_deref().unwrap_or("–");
        let _ = writeln!(text, "| {} | {cell} | {sha256} |", result.image);
    }
    for image in missing(results, expected) {
        let _ = writeln!(
            text,
            "| {image} | no result: its job ended before it wrote one | – |"
        );
    }
    text
}

/// The table of the page: every image, and when it booted.
pub fn table(images: &Table, booted: &Booted) -> String {
    let mut text = "| Image | operatingSystem | Checksum | Booted |\n|---|---|---|---|\n".to_owned();
    for (name, entry) in images {
        let cell = booted
            .get(name)
            .map_or_else(|| NOT_MEASURED.to_owned(), Measured::cell);
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
            machines: Some("KVM".to_owned()),
            scenarios: vec![ScenarioResult {
                name: JOIN.to_owned(),
                passed,
                seconds: 60.0,
                seconds_to_ready: passed.then_some(41.4),
            }],
            ..BootResult::new(image, COMMIT)
        }
    }

    fn not_fetched(image: &str, cause: Cause) -> BootResult {
        BootResult {
            not_fetched: Some(NotFetched {
                cause,
                reason: "https://a/a can't be downloaded: 404\ntry again".to_owned(),
            }),
            ..BootResult::new(image, COMMIT)
        }
    }

    /// A result without a scenario that ran to its end.
    fn without_scenario(image: &str) -> BootResult {
        BootResult {
            scenarios: Vec::new(),
            ..result(image, true)
        }
    }

    fn names(images: &[&str]) -> Vec<String> {
        images.iter().map(|image| (*image).to_owned()).collect()
    }

    #[test]
    fn the_page_has_what_was_measured_and_names_what_was_not() {
        let mut booted = Booted::new();
        merge(
            &mut booted,
            &[
                result("a", true),
                result("b", false),
                not_fetched("c", Cause::Unreachable),
            ],
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
        // It booted, but whether it joins was not tried.
        let mut other_scenario = result("a", true);
        other_scenario.scenarios[0].name = "mirror".to_owned();
        let nothing = [
            not_fetched("a", Cause::Unreachable),
            not_fetched("a", Cause::Unverified),
            without_scenario("a"),
            other_scenario,
        ];
        for result in nothing {
            merge(&mut booted, &[result]);
            assert_eq!(booted, before);
        }
        merge(&mut booted, &[result("a", false)]);
        assert!(booted["a"].cell().starts_with("failed on"));
    }

    #[test]
    fn failures_do_not_hide_that_an_image_has_booted() {
        let mut booted = Booted::new();
        merge(&mut booted, &[result("a", true)]);
        for day in [26, 27] {
            let mut failed = result("a", false);
            failed.date = jiff::civil::date(2026, 11, day);
            merge(&mut booted, &[failed]);
        }
        assert_eq!(
            booted["a"].cell(),
            "failed on 2026-11-27, commit 0123456789ab; booted on 2026-11-25, Ready after 41 s, commit 0123456789ab"
        );
        // As a committed file is read by the next release.
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("booted.json");
        fs::write(&file, text(&booted).unwrap()).unwrap();
        let mut booted = read(&file).unwrap();
        let faults = faults(&booted, &[result("a", false)], &[]);
        assert_eq!(
            faults,
            ["a booted on 2026-11-25, and does not boot now; the logs of its run give the reason"]
        );

        merge(&mut booted, &[result("a", true)]);
        assert!(!booted["a"].cell().contains("failed"));
    }

    #[test]
    fn an_image_that_booted_before_must_boot_again_unless_its_server_does_not_provide_it() {
        let mut booted = Booted::new();
        merge(&mut booted, &[result("a", true), result("b", false)]);
        for (bad, fault) in [
            (result("a", false), "does not boot now"),
            (without_scenario("a"), "does not boot now"),
            (not_fetched("a", Cause::Other), "was not downloaded now"),
        ] {
            let faults = faults(&booted, &[bad], &[]);
            assert!(
                matches!(&*faults, [one] if one.starts_with("a booted on 2026-11-25") && one.contains(fault)),
                "{faults:?}"
            );
        }
        for fine in [
            result("a", true),
            not_fetched("a", Cause::Unreachable),
            result("b", false),
            not_fetched("b", Cause::Other),
            result("c", false),
        ] {
            assert!(faults(&booted, &[fine], &[]).is_empty());
        }
    }

    #[test]
    fn an_image_that_booted_before_must_have_a_result_if_it_is_expected() {
        let mut booted = Booted::new();
        merge(&mut booted, &[result("a", true), result("b", false)]);
        let others = [result("c", true)];
        assert_eq!(
            faults(&booted, &others, &names(&["a", "b", "c"])),
            ["a booted on 2026-11-25, and has no result now; the log of its job gives the reason"]
        );
        assert!(faults(&booted, &others, &names(&["b", "c"])).is_empty());
    }

    #[test]
    fn an_image_that_is_not_verified_is_a_fault_even_if_it_never_booted() {
        let mut booted = Booted::new();
        merge(&mut booted, &[result("a", true)]);
        for image in ["a", "c"] {
            let faults = faults(&booted, &[not_fetched(image, Cause::Unverified)], &[]);
            let start = format!("{image} was not verified: https://a/a");
            assert!(matches!(&*faults, [one] if one.starts_with(&start)), "{faults:?}");
        }
    }

    #[test]
    fn expected_images_are_a_json_array_of_names_in_the_table() {
        assert_eq!(expected(r#"["a","c"]"#, &images()).unwrap(), ["a", "c"]);
        let error = format!("{:#}", expected("a,c", &images()).unwrap_err());
        assert!(error.contains("cargo xtask e2e images --matrix"), "{error}");
        let error = format!("{:#}", expected(r#"["d"]"#, &images()).unwrap_err());
        assert!(
            error.contains("--expect") && error.contains("no image d"),
            "{error}"
        );
    }

    #[test]
    fn a_summary_counts_nothing_as_booted_that_was_not_downloaded() {
        let results = [
            result("a", true),
            not_fetched("b", Cause::Unverified),
            not_fetched("c", Cause::Unreachable),
            result("d", false),
        ];
        let text = summary(&results, &names(&["a", "e"]));
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert!(lines[0].starts_with("| a | booted: 2026-11-25"), "{text}");
        assert!(lines[1].starts_with("| b | not verified: https://a/a"), "{text}");
        assert_eq!(
            lines[2],
            "| c | not downloaded: https://a/a can't be downloaded: 404 | – |"
        );
        assert!(lines[3].starts_with("| d | failed on 2026-11-25"), "{text}");
        assert_eq!(
            lines[4..],
            ["| e | no result: its job ended before it wrote one | – |"]
        );
    }

    #[test]
    fn files_of_a_run_are_read_as_they_were_written() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("results");
        let written = [not_fetched("b", Cause::Unverified), result("a", true)];
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
        let failed = text(&booted)
            .unwrap()
            .replace("\"passed\": true", "\"passed\": false");
        fs::write(&file, failed).unwrap();
        let error = read(&file).unwrap_err().to_string();
        assert!(error.contains("lastBooted of a"), "{error}");

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
