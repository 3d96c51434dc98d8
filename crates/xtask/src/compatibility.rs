//! `cargo xtask compatibility`: generates the tables in docs/compatibility.md from those in crates/osm-render, and from what has booted.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use osm_render::compatibility::{Table, compatibility};

use crate::booted::{self, Booted};
use crate::e2e::images;
use crate::generated::{self, File};

const PAGE: &str = "docs/compatibility.md";
const BEGIN: &str =
    "<!-- tables: generated from crates/osm-render/src/compatibility.rs by `cargo xtask compatibility` -->";
const END: &str = "<!-- end of tables -->";
const BEGIN_IMAGES: &str =
    "<!-- images: generated from e2e/images.toml and e2e/booted.json by `cargo xtask compatibility` -->";
const END_IMAGES: &str = "<!-- end of images -->";

/// Generate the tables in docs/compatibility.md: operating systems, clouds, kubelets, Kubernetes, machine-controller and images
#[derive(clap::Args, Debug)]
pub struct Compatibility {
    /// Write nothing; fail if the file is out of date
    #[arg(long)]
    check: bool,
    /// First take over what a run has measured: the files NAME.json of `cargo xtask e2e node --results`
    ///
    /// The command prints the results as a table in Markdown. It fails if an image does not boot that has booted before, unless its server
    /// does not provide the image. It also fails if the signature or the checksum of an image is wrong.
    #[arg(long, value_name = "FOLDER", conflicts_with = "check")]
    results: Option<PathBuf>,
    /// Images that the run had to measure, as a JSON array of names: the output of `cargo xtask e2e images --matrix`
    ///
    /// The command fails if one of them has no result, and has booted before.
    #[arg(long, value_name = "NAMES", requires = "results")]
    expect: Option<String>,
}

impl Compatibility {
    /// Writes or checks the page.
    ///
    /// # Errors
    /// A file that differs (with `--check`), or can't be written. Results that can't be read. An image that has stopped booting, or is not
    /// verified.
    pub fn run(&self) -> Result<()> {
        let file = crate::root().join(booted::FILE);
        let mut measured = booted::read(&file)?;
        let mut faults = Vec::new();
        if let Some(folder) = &self.results {
            let table = images::table()?;
            let expected = self.expect.as_deref();
            let expected = expected
                .map(|names| booted::expected(names, &table))
                .transpose()?;
            let expected = expected.unwrap_or_default();
            let results = booted::results(folder, &table)?;
            faults = booted::faults(&measured, &results, &expected);
            booted::merge(&mut measured, &results);
            println!("{}", booted::summary(&results, &expected));
            generated::settle(
                &generated::stale([(file, booted::text(&measured)?)]),
                false,
                "e2e/booted.json is up to date",
                "",
            )?;
        }
        let bad = "out of date (run `cargo xtask compatibility`)";
        generated::settle(
            &stale(&measured)?,
            self.check,
            "docs/compatibility.md is up to date",
            bad,
        )?;
        ensure!(
            faults.is_empty(),
            "official images have problems:\n  {}",
            faults.join("\n  ")
        );
        Ok(())
    }
}

/// The page with its new text, if it is out of date.
fn stale(measured: &Booted) -> Result<Vec<File>> {
    let path = crate::root().join(PAGE);
    let text = fs::read_to_string(&path).context(PAGE)?;
    let page = updated(&text, measured).context(PAGE)?;
    Ok(generated::stale([(path, page)]))
}

/// The page with all sections that are generated.
fn updated(page: &str, measured: &Booted) -> Result<String> {
    let mut tables = String::new();
    for table in compatibility().tables() {
        write(&mut tables, &table)?;
    }
    let page = generated::between(page, BEGIN, END, &format!("{tables}\n"))?;
    let images = booted::table(&images::table()?, measured);
    generated::between(&page, BEGIN_IMAGES, END_IMAGES, &format!("\n{images}\n"))
}

fn write(page: &mut String, table: &Table) -> Result<()> {
    let row = |cells: &[String]| format!("| {} |", cells.join(" | "));
    let head: Vec<String> = table.head.iter().map(|name| (*name).to_owned()).collect();
    let rule = "|---".repeat(table.head.len());
    write!(
        page,
        "\n## {}\n\n{}\n\n{}\n{rule}|\n",
        table.title,
        table.note,
        row(&head)
    )?;
    for cells in &table.rows {
        writeln!(page, "{}", row(cells))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use osm_judges::KUBELET_MINORS;
    use osm_render::compatibility::MANAGEMENT_CLUSTER_MINOR;

    use super::*;

    fn read(path: &str) -> String {
        fs::read_to_string(crate::root().join(path)).unwrap()
    }

    #[test]
    fn the_committed_tables_are_those_of_the_code() {
        let measured = booted::read(&crate::root().join(booted::FILE)).unwrap();
        assert!(
            stale(&measured).unwrap().is_empty(),
            "run `cargo xtask compatibility`"
        );
    }

    #[test]
    fn what_was_measured_changes_only_the_section_of_images() {
        let before = read(PAGE);
        let mut booted = Booted::new();
        let measured: booted::BootResult = serde_json::from_str(
            r#"{"image": "ubuntu-24.04", "sha256": "00", "date": "2031-02-03", "commit": "0123456789abcdef", "scenarios":
                [{"name": "join", "passed": true, "seconds": 50.5, "secondsToReady": 40.6}]}"#,
        )
        .unwrap();
        booted::merge(&mut booted, &[measured]);
        let after = updated(&before, &booted).unwrap();
        let row = "| ubuntu-24.04 | ubuntu | from a signed list | 2031-02-03, Ready after 41 s, commit 0123456789ab |";
        assert!(after.lines().any(|line| line == row), "{after}");
        assert!(after.contains("| rhel-10 | rhel | by hand, as the image itself | not measured |"));
        let without_images = |page: &str| generated::between(page, BEGIN_IMAGES, END_IMAGES, "").unwrap();
        assert_eq!(without_images(&after), without_images(&before));
    }

    #[test]
    fn expected_images_are_compared_with_results() {
        #[derive(clap::Parser, Debug)]
        struct Command {
            #[command(flatten)]
            compatibility: Compatibility,
        }
        let parsed = |arguments: &[&str]| Command::try_parse_from([&["compatibility"], arguments].concat());
        let names = r#"["rocky-9"]"#;
        let command = parsed(&["--results", "results", "--expect", names]).unwrap();
        assert_eq!(command.compatibility.expect.as_deref(), Some(names));
        let error = parsed(&["--expect", names]).unwrap_err().to_string();
        assert!(error.contains("--results"), "{error}");
    }

    #[test]
    fn there_is_a_judge_for_each_kubelet() {
        let minors: Vec<String> = compatibility()
            .kubelets
            .into_iter()
            .map(|row| row.minor)
            .collect();
        assert_eq!(minors, KUBELET_MINORS);
    }

    #[test]
    fn the_chart_refuses_the_same_versions_of_kubernetes() {
        let chart = read("charts/operating-system-manager/Chart.yaml");
        assert!(chart.contains(&format!("kubeVersion: \">=1.{MANAGEMENT_CLUSTER_MINOR}.0-0\"")));
        let checks = read("charts/operating-system-manager/templates/checks.yaml");
        let oldest = KUBELET_MINORS[0];
        assert!(checks.contains(&format!("semverCompare \"<{oldest}.0-0\"")));
    }

    /// The rows of a Markdown table after a heading, without its head.
    fn rows<'t>(page: &'t str, heading: &str) -> Vec<Vec<&'t str>> {
        let (_, section) = page.split_once(&format!("\n## {heading}\n")).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let lines = section
            .lines()
            .filter(|line| line.starts_with('|') && !line.starts_with("|---"));
        let cells = |line: &'t str| line.trim_matches('|').split(" | ").map(str::trim).collect();
        lines
            .map(cells)
            .filter(|row: &Vec<&str>| row[1] != "OSM")
            .collect()
    }

    #[test]
    fn no_row_about_the_go_implementation_is_open() {
        let page = read(PAGE);
        let rows = rows(&page, "The Go implementation");
        assert!(rows.len() > 50, "{}", rows.len());
        for row in rows {
            let [behavior, verdict, detail] = row[..] else {
                panic!("{row:?}");
            };
            match verdict {
                "works" => {}
                "differs" => assert!(detail.contains(' '), "{behavior}: give the reason"),
                _ => panic!("{behavior}: {verdict}"),
            }
        }
    }
}
