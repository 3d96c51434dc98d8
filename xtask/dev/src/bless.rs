//! `cargo xtask bless`: rewrites committed files that are generated.

use std::fs;

use anyhow::{Context, Result, bail, ensure};
use osm_api::profile::OperatingSystemProfileSpec;
use osm_render::blessed_version;
use osm_user_data::yaml;

use crate::{build, generated};

/// Rewrite generated files: crds/, the content hashes in the versions of profiles/, and the documents that
/// the default profiles render to, crates/osm-render/tests/golden
#[derive(clap::Args)]
pub struct Bless {
    /// Record what a pool costs instead: e2e/tests/cost.toml
    #[arg(long)]
    cost: bool,
    /// Record what Go gives for the cases in e2e/gotemplate-judge instead
    #[arg(long, conflicts_with = "cost")]
    go_templates: bool,
}

impl Bless {
    /// Rewrites the files, and prints the name of each file that changed.
    ///
    /// # Errors
    /// A profile that can't be read or rendered, or a file that can't be written.
    pub async fn run(&self) -> Result<()> {
        if self.cost {
            return write_by_test("osm-tests", "cost", "").await;
        }
        if self.go_templates {
            return write_by_test("osm-gotemplate-judge", "it", "go_gives").await;
        }
        let mut profiles = Vec::new();
        for entry in fs::read_dir(crate::root().join("profiles"))? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "yaml") {
                continue;
            }
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let blessed = with_version(&text).with_context(|| path.display().to_string())?;
            profiles.push((path, blessed));
        }
        generated::write(&generated::stale([crate::crds::files()?, profiles].concat()))?;
        // Only a program that is built after the profiles were written holds them as they are now.
        write_by_test("osm-render", "it", "golden::").await
    }
}

/// Runs tests that write files instead of comparing them: those of a program of a package whose names contain
/// `filter`.
async fn write_by_test(package: &str, program: &str, filter: &str) -> Result<()> {
    let status = build::cargo()
        .args([
            "test",
            "-q",
            "-p",
            package,
            "--test",
            program,
            "--",
            "--include-ignored",
            "--nocapture",
            filter,
        ])
        .env("OSM_BLESS", "1")
        .status()
        .await?;
    ensure!(
        status.success(),
        "the test {program} of {package} can't write its files"
    );
    Ok(())
}

/// `text`, a profile's manifest, with the version that its content asks for; everything else stays as it is.
fn with_version(text: &str) -> Result<String> {
    let spec = spec(text)?;
    let version = blessed_version(&spec);
    let mut found = 0;
    let lines: Vec<String> = text
        .lines()
        .map(|line| {
            let of_spec = line
                .strip_prefix("  version:")
                .is_some_and(|value| value.trim() == spec.version);
            found += usize::from(of_spec);
            if of_spec {
                format!("  version: {version}")
            } else {
                line.to_owned()
            }
        })
        .collect();
    if found != 1 {
        bail!("spec.version must be on a line of its own, indented by two spaces, unquoted");
    }
    Ok(format!("{}\n", lines.join("\n")))
}

fn spec(text: &str) -> Result<OperatingSystemProfileSpec> {
    let documents = yaml::read(text).map_err(anyhow::Error::msg)?;
    let profile = documents
        .into_iter()
        .next()
        .context("the file holds no document")?;
    let profile: osm_api::OperatingSystemProfile = serde_json::from_value(profile)?;
    Ok(profile.spec)
}
