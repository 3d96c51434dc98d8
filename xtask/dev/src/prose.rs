//! Prose: Vale with the styles in `.vale/styles`, and markdownlint with the rules in
//! `.markdownlint-cli2.jsonc`.
//!
//! Modules under `e2e/` pin the versions of both. Vale is built from its Go module. markdownlint comes from
//! the npm registry. The cache outside the tree keeps both.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use anyhow::{Context, Result, ensure};
use osm_judges::go_module::{Flags, GoModule, cache_root, cached_directory};
use osm_judges::packages;
use tokio::process::Command;

use osm_testkit::progress::Progress;

/// The same documents as the `globs` in `.markdownlint-cli2.jsonc`.
const DOCUMENTS: [&str; 6] = [
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "docs",
    "charts",
];

const MARKDOWNLINT: &str = "markdownlint-cli2";

/// Checks words, and the length of sentences and table cells.
///
/// # Errors
/// When Vale finds an error, or can't be built.
pub async fn vale(progress: Progress) -> Result<()> {
    // Vale parses source code with tree-sitter, which is C.
    let flags = Flags {
        ldflags: "-s -w".to_owned(),
        cgo: true,
        ..Flags::default()
    };
    let module = GoModule::new(&crate::root().join("e2e/vale"), "vale", flags)?;
    let program = module
        .build("vale", "github.com/vale-cli/vale/v3/cmd/vale", |line| {
            progress.step(line)
        })
        .await?;
    let mut command = Command::new(program);
    command.args(["--output=line", "--glob=*.md"]).args(DOCUMENTS);
    ensure!(
        run(command).await?.success(),
        "docs/contributing/style.md describes the rules of Vale"
    );
    Ok(())
}

/// Checks the syntax of Markdown, and that relative links lead to a file and a heading.
///
/// # Errors
/// When markdownlint finds an error, or can't be installed.
pub async fn markdownlint(progress: Progress) -> Result<()> {
    let modules = installed(progress)
        .await
        .with_context(|| format!("npm package {MARKDOWNLINT}"))?;
    let mut command = Command::new(modules.join(".bin").join(MARKDOWNLINT));
    // The rule that follows links is a package of its own.
    command.env("NODE_PATH", modules);
    ensure!(
        run(command).await?.success(),
        "see the rules in .markdownlint-cli2.jsonc"
    );
    Ok(())
}

async fn run(mut command: Command) -> Result<ExitStatus> {
    Ok(command
        .current_dir(crate::root())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await?)
}

/// The folder of exactly the packages that the lock file names.
async fn installed(progress: Progress) -> Result<PathBuf> {
    let source = crate::root().join("e2e/markdownlint");
    let files = ["package.json", "package-lock.json"].map(|name| (name, source.join(name)));
    let mut content = Vec::new();
    for (_, path) in &files {
        content.extend(fs::read(path).with_context(|| path.display().to_string())?);
    }
    let digest = osm_api::digest::sha256_hex(&content);
    let target = cache_root()?
        .join(MARKDOWNLINT)
        .join(digest.get(..16).unwrap_or_default());
    let install = async |directory: &std::path::Path| {
        ensure_npm().await?;
        progress.step(&format!("{MARKDOWNLINT}: installing with npm"));
        for (name, path) in &files {
            fs::copy(path, directory.join(name))?;
        }
        let output = Command::new("npm")
            .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
            .current_dir(directory)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .context("npm can't be run")?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "npm ci failed ({}):\n{}",
            output.status,
            stderr.trim_end()
        );
        Ok(())
    };
    cached_directory(&target, MARKDOWNLINT, |line| progress.step(line), install).await?;
    Ok(target.join("node_modules"))
}

/// Installs the Debian package if no `npm` is in PATH.
async fn ensure_npm() -> Result<()> {
    let found = Command::new("npm")
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .await;
    if found.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        tokio::task::spawn_blocking(|| packages::ensure(&["npm"])).await??;
    }
    Ok(())
}
