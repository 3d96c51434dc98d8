//! `cargo xtask site`: the documentation as a site, by mdBook. The start page is the README.
//!
//! Links to what is no page of the site, such as source code, lead to the repository.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use osm_judges::cargo_tool;
use tokio::process::Command;

use crate::lint::links;
use crate::progress::Progress;

/// Build the documentation in docs/ as a site, in target/site/book
#[derive(clap::Args)]
pub struct Site {}

/// `.github/workflows/site.yaml` has the program of the same version in its cache.
const MDBOOK: &str = "0.5.2";

/// Where links lead that leave the site.
const REPOSITORY: &str = "https://github.com/kubermatic/operating-system-manager/blob/main";

const START: &str = "README.md";

const IMAGES: &str = "images";

impl Site {
    /// Builds the site.
    ///
    /// # Errors
    /// A page that can't be read or written, or what mdBook prints.
    pub async fn run(&self) -> Result<()> {
        let progress = Progress::start();
        let folder = crate::root().join("target/site");
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        write(&crate::root(), &folder)?;
        let mdbook = cargo_tool::ensure("mdbook", MDBOOK, |line| progress.step(line)).await?;
        let mut command = Command::new(mdbook);
        command
            .arg("build")
            .arg(&folder)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let status = command.status().await.context("mdbook can't be run")?;
        ensure!(status.success(), "mdbook failed");
        progress.step(&format!("written: {}", folder.join("book/index.html").display()));
        Ok(())
    }
}

/// Writes what mdBook reads.
fn write(root: &Path, folder: &Path) -> Result<()> {
    let pages = pages(root)?;
    for (path, text) in &pages {
        let to = folder.join(path);
        fs::create_dir_all(to.parent().unwrap_or(folder))?;
        fs::write(&to, text)?;
    }
    fs::copy(root.join("docs/book.toml"), folder.join("book.toml")).context("docs/book.toml")?;
    fs::create_dir_all(folder.join(IMAGES))?;
    for entry in fs::read_dir(root.join("docs").join(IMAGES))? {
        let entry = entry?;
        fs::copy(entry.path(), folder.join(IMAGES).join(entry.file_name()))?;
    }
    Ok(())
}

/// The pages with their links, by their paths in the site.
fn pages(root: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut pages = BTreeMap::new();
    for path in links::documents(root)? {
        let Some(place) = place(&path) else { continue };
        let text = fs::read_to_string(root.join(&path)).with_context(|| path.display().to_string())?;
        pages.insert(place, linked(&path, &text));
    }
    Ok(pages)
}

/// Where a file of the repository is in the site.
fn place(path: &Path) -> Option<PathBuf> {
    if path == Path::new(START) {
        return Some(path.to_owned());
    }
    path.strip_prefix("docs").ok().map(Path::to_owned)
}

/// The text of a document with the links that it has in the site.
fn linked(document: &Path, text: &str) -> String {
    let depth = place(document).map_or(0, |place| place.components().count() - 1);
    let mut written = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        written.push_str(before);
        written.push_str("](");
        rest = after;
        let Some(end) = after.find(')') else { continue };
        let (target, more) = after.split_at(end);
        if target.is_empty() || target.contains("://") || target.starts_with(['#', '`']) {
            continue;
        }
        let (file, anchor) = target.find('#').map_or((target, ""), |at| target.split_at(at));
        let path = links::resolve(document, file);
        let to = match place(&path) {
            Some(place) => format!("{}{}", "../".repeat(depth), place.display()),
            None => format!("{REPOSITORY}/{}", path.display()),
        };
        written.push_str(&to);
        written.push_str(anchor);
        rest = more;
    }
    written.push_str(rest);
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_in_the_site_or_lead_to_the_repository() {
        for (document, link, expected) in [
            ("docs/a.md", "b.md#x", "b.md#x"),
            ("docs/runbooks/a.md", "../b.md", "../b.md"),
            ("docs/runbooks/a.md", "b.md", "../runbooks/b.md"),
            ("README.md", "docs/b.md#x", "b.md#x"),
            ("docs/a.md", "../README.md", "README.md"),
            ("docs/runbooks/a.md", "../../README.md", "../README.md"),
            ("docs/a.md", "#x", "#x"),
            ("docs/a.md", "https://x/y.md", "https://x/y.md"),
        ] {
            let text = format!("before [text]({link}) after");
            assert_eq!(
                linked(Path::new(document), &text),
                format!("before [text]({expected}) after")
            );
        }
        let out = linked(
            Path::new("docs/a.md"),
            "[code](../crates/x.rs) and [log](../CHANGELOG.md)",
        );
        assert_eq!(
            out,
            format!("[code]({REPOSITORY}/crates/x.rs) and [log]({REPOSITORY}/CHANGELOG.md)")
        );
    }

    #[test]
    fn no_page_of_the_site_has_a_broken_link() {
        let root = crate::root();
        let pages = pages(&root).unwrap();
        assert!(pages.len() > 40, "{}", pages.len());
        let image = |path: &Path| path.starts_with(IMAGES) && root.join("docs").join(path).is_file();
        assert_eq!(links::broken(&pages, image), Vec::<String>::new());
    }

    #[test]
    fn the_workflow_has_the_same_mdbook() {
        let workflow = fs::read_to_string(crate::root().join(".github/workflows/site.yaml")).unwrap();
        assert!(workflow.contains(&format!("key: mdbook-{MDBOOK}")), "{MDBOOK}");
    }
}
