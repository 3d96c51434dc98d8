//! `cargo xtask lint`: what holds before a change is merged, besides tests. Each check of our own is a file of this folder.

mod circles;
pub mod links;
mod modules;
mod named_paths;
mod named_tests;
mod portable;
mod prose;
mod unnamed_files;
mod workflows;

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use anyhow::{Context, Result, bail, ensure};
use osm_judges::cargo_tool;
use serde::Deserialize;
use tokio::process::Command;

use self::circles::Circle;
use self::modules::Modules;
use crate::build::cargo;
use crate::progress::Progress;

/// Check prose, format, lints, documentation, the structure of modules, and the dependencies' licenses and sources
#[derive(clap::Args)]
pub struct Lint {
    /// Only print which modules of product crates use each other in a circle, as a Markdown table with the paths behind it
    #[arg(long)]
    circles: bool,
}

/// The crates whose modules must form no circle.
const PRODUCT: [&str; 9] = [
    "osm-api",
    "osm-render",
    "osm-runtime",
    "osm-validate",
    "osp-controller",
    "osc-controller",
    "secret-syncer",
    "csr-approver",
    "osmctl",
];

/// `.github/workflows/ci.yaml` names the same version.
const CARGO_DENY: &str = "0.20.2";

impl Lint {
    /// Runs all checks, then fails if one of them failed.
    ///
    /// # Errors
    /// Names the checks that failed.
    pub async fn run(&self) -> Result<()> {
        let packages = packages().await?;
        if self.circles {
            return print_circles(&packages);
        }
        let progress = Progress::start();
        let mut failed = Vec::new();
        let own: [(&str, Result<()>); 7] = [
            ("circles of modules", no_circles(&packages)),
            ("files that no mod names", no_unnamed_files(&packages)),
            ("paths in documents", named_paths::check(&crate::root())),
            ("links in documents", links::check(&crate::root())),
            ("tests in the threat model", named_tests::check(&crate::root())),
            ("actions of workflows", workflows::check(&crate::root())),
            ("what only Linux has", portable::check(&packages)),
        ];
        for (name, outcome) in own {
            progress.step(name);
            if let Err(error) = outcome {
                progress.warn(&format!("{error:#}"));
                failed.push(name);
            }
        }
        progress.step("words and sentences");
        if let Err(error) = prose::vale(progress).await {
            progress.warn(&format!("{error:#}"));
            failed.push("words and sentences");
        }
        progress.step("Markdown");
        if let Err(error) = prose::markdownlint(progress).await {
            progress.warn(&format!("{error:#}"));
            failed.push("Markdown");
        }
        let of_cargo: [(&str, &[&str]); 3] = [
            ("format", &["fmt", "--all", "--check"]),
            (
                "clippy",
                &[
                    "clippy",
                    "--workspace",
                    "--all-targets",
                    "--",
                    "--deny",
                    "warnings",
                ],
            ),
            (
                "documentation",
                &["doc", "--workspace", "--no-deps", "--document-private-items"],
            ),
        ];
        for (name, arguments) in of_cargo {
            progress.step(name);
            let status = cargo()
                .args(arguments)
                .env("RUSTDOCFLAGS", "--deny warnings")
                .status()
                .await?;
            if !status.success() {
                failed.push(name);
            }
        }
        progress.step("dependencies");
        if !dependencies(progress).await?.success() {
            failed.push("dependencies");
        }
        if !failed.is_empty() {
            bail!("failed: {}", failed.join(", "));
        }
        progress.step("all checks passed");
        Ok(())
    }
}

/// Runs cargo-deny, except for advisories, whose database can't be reached from everywhere.
async fn dependencies(progress: Progress) -> Result<ExitStatus> {
    let cargo_deny = cargo_tool::ensure("cargo-deny", CARGO_DENY, |line| progress.step(line)).await?;
    let mut command = Command::new(cargo_deny);
    command
        .args(["check", "licenses", "bans", "sources"])
        .current_dir(crate::root())
        .stdin(Stdio::null());
    command
        .kill_on_drop(true)
        .status()
        .await
        .context("cargo-deny can't be run")
}

/// A package of the workspace, as `cargo metadata` describes it.
#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    targets: Vec<Target>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// `dev` or `build`, or nothing.
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
    src_path: PathBuf,
}

async fn packages() -> Result<Vec<Package>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    let mut command = cargo();
    command
        .args(["metadata", "--no-deps", "--format-version=1"])
        .stderr(Stdio::inherit());
    let output = command.output().await.context("cargo can't be run")?;
    ensure!(output.status.success(), "cargo metadata failed");
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("cargo's metadata")?;
    Ok(metadata.packages)
}

/// The circles in the library and the program of each product crate, with the crate's name.
fn all_circles(packages: &[Package]) -> Result<Vec<(String, Circle)>> {
    let mut all = Vec::new();
    for package in packages
        .iter()
        .filter(|package| PRODUCT.contains(&package.name.as_str()))
    {
        let is_product = |target: &&Target| target.kind.iter().any(|kind| kind == "lib" || kind == "bin");
        for target in package.targets.iter().filter(is_product) {
            let circles = circles::of(&Modules::read(&target.src_path)?);
            all.extend(circles.into_iter().map(|circle| (package.name.clone(), circle)));
        }
    }
    Ok(all)
}

fn print_circles(packages: &[Package]) -> Result<()> {
    let all = all_circles(packages)?;
    print!("{}", circles::table(&all));
    for (name, circle) in &all {
        println!(
            "\n{name}: {}\n{}",
            circle.modules.join(", "),
            circles::arrows(circle).trim_end()
        );
    }
    Ok(())
}

fn no_circles(packages: &[Package]) -> Result<()> {
    let all = all_circles(packages)?;
    let bad: String = all
        .iter()
        .map(|(name, circle)| {
            format!(
                "{name}: {}\n{}",
                circle.modules.join(", "),
                circles::arrows(circle)
            )
        })
        .collect();
    ensure!(
        bad.is_empty(),
        "modules use each other in a circle:\n{}",
        bad.trim_end()
    );
    Ok(())
}

fn no_unnamed_files(packages: &[Package]) -> Result<()> {
    let mut unnamed = Vec::new();
    for package in packages {
        let mut named = std::collections::BTreeSet::new();
        for target in &package.targets {
            let modules = Modules::read(&target.src_path).with_context(|| target.name.clone())?;
            named.extend(modules.files().iter().cloned());
        }
        let folder = package
            .manifest_path
            .parent()
            .context("the folder of a package")?;
        unnamed.extend(unnamed_files::find(folder, &named)?);
    }
    let names: Vec<_> = unnamed.iter().map(|path| path.display().to_string()).collect();
    ensure!(
        names.is_empty(),
        "no `mod` names these files; delete or declare them: {}",
        names.join(", ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn every_crate_has_the_workspaces_lints_which_forbid_unsafe() {
        let of_workspace: toml::Table = fs::read_to_string(crate::root().join("Cargo.toml"))
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(
            of_workspace["workspace"]["lints"]["rust"]["unsafe_code"].as_str(),
            Some("forbid")
        );
        let crates = fs::read_dir(crate::root().join("crates"))
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let crates: Vec<_> = crates
            .chain(["demo", "tests", "xtask"].map(|name| crate::root().join(name)))
            .collect();
        assert!(crates.len() > 8, "{crates:?}");
        for directory in crates {
            let manifest = directory.join("Cargo.toml");
            let table: toml::Table = fs::read_to_string(&manifest).unwrap().parse().unwrap();
            let inherited = table.get("lints").and_then(|lints| lints.get("workspace"));
            assert_eq!(
                inherited.and_then(toml::Value::as_bool),
                Some(true),
                "{}",
                manifest.display()
            );
        }
    }

    #[test]
    fn the_workflow_has_the_same_cargo_deny() {
        let workflow = fs::read_to_string(crate::root().join(".github/workflows/ci.yaml")).unwrap();
        assert!(
            workflow.contains(&format!("cargo-deny --version ={CARGO_DENY}")),
            "{CARGO_DENY}"
        );
    }

    #[test]
    fn every_path_in_the_documents_for_contributors_exists() {
        named_paths::check(&crate::root()).unwrap();
    }
}
