//! Links in the documents: the file and the heading that each one names exist. `docs/SUMMARY.md` lists every page once.
//!
//! Links to other sites are not followed. Code is passed over.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The documents, besides everything in `docs`.
const DOCUMENTS: [&str; 6] = [
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "charts/operating-system-manager/README.md",
];

/// The contents of the site.
pub const SUMMARY: &str = "docs/SUMMARY.md";

/// Checks the documents of the repository.
///
/// # Errors
/// Names each link that leads nowhere, and each page that the summary lists not exactly once; a document that can't be read.
pub fn check(root: &Path) -> Result<()> {
    let mut texts = BTreeMap::new();
    for path in documents(root)? {
        let text = fs::read_to_string(root.join(&path)).with_context(|| path.display().to_string())?;
        texts.insert(path, text);
    }
    let mut wrong = broken(&texts, |path| root.join(path).exists());
    wrong.extend(unlisted(&texts));
    ensure!(wrong.is_empty(), "links in documents:\n  {}", wrong.join("\n  "));
    Ok(())
}

/// Paths of the documents, relative to the root.
///
/// # Errors
/// A folder that can't be read.
pub fn documents(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = DOCUMENTS.map(PathBuf::from).into();
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// `document: target`, for each link that leads nowhere.
pub fn broken(texts: &BTreeMap<PathBuf, String>, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let anchors: BTreeMap<&PathBuf, BTreeSet<String>> =
        texts.iter().map(|(path, text)| (path, anchors(text))).collect();
    let mut broken = Vec::new();
    for (document, text) in texts {
        for target in targets(text) {
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = match file {
                "" => document.clone(),
                _ => resolve(document, file),
            };
            let has_anchor = || match anchors.get(&path) {
                Some(anchors) => anchors.contains(anchor),
                // A line of source code.
                None => true,
            };
            if !(texts.contains_key(&path) || exists(&path)) || !(anchor.is_empty() || has_anchor()) {
                broken.push(format!("{}: {target}", document.display()));
            }
        }
    }
    broken
}

/// Pages that the summary lists not exactly once.
fn unlisted(texts: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let summary = PathBuf::from(SUMMARY);
    let listed: Vec<PathBuf> = texts
        .get(&summary)
        .map(|text| targets(text))
        .unwrap_or_default()
        .iter()
        .map(|target| resolve(&summary, target))
        .collect();
    let pages = texts
        .keys()
        .filter(|path| path.starts_with("docs") && **path != summary);
    pages
        .filter_map(|page| {
            let times = listed.iter().filter(|path| *path == page).count();
            (times != 1).then(|| format!("{SUMMARY}: lists {} {times} times", page.display()))
        })
        .collect()
}

/// The path that a link means, relative to the root.
pub fn resolve(document: &Path, target: &str) -> PathBuf {
    let mut path = document.parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => _ = path.pop(),
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

/// Targets of links that stay in the repository.
fn targets(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        let line = without_code(line);
        let links = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        let own = links
            .map(|(target, _)| target)
            .filter(|target| !target.contains("://") && !target.starts_with("mailto:"));
        found.extend(own.map(str::to_owned));
    }
    found
}

/// Names of the headings, as GitHub and mdBook derive them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in prose(text) {
        let hashes = line.chars().take_while(|c| *c == '#').count();
        let Some(heading) = line.get(hashes..).and_then(|rest| rest.strip_prefix(' ')) else {
            continue;
        };
        if hashes == 0 {
            continue;
        }
        let name = anchor(heading.trim());
        let numbered = (1..).map(|number| format!("{name}-{number}"));
        let free = std::iter::once(name.clone())
            .chain(numbered)
            .find(|name| !found.contains(name));
        found.extend(free);
    }
    found
}

fn anchor(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c })
        .collect::<String>()
        .to_lowercase()
}

/// Lines outside of fenced blocks.
pub fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// A line without its spans of code: between runs of the same number of backticks.
fn without_code(line: &str) -> String {
    let (mut kept, mut rest) = (String::new(), line);
    while let Some(start) = rest.find('`') {
        let (before, from) = rest.split_at(start);
        kept.push_str(before);
        let run = from.len() - from.trim_start_matches('`').len();
        let (ticks, inner) = from.split_at(run);
        let end = inner.match_indices(ticks).map(|(at, _)| at).find(|at| {
            let after = inner.get(at + run..).unwrap_or_default();
            let before = inner.get(..*at).unwrap_or_default();
            !after.starts_with('`') && !before.ends_with('`')
        });
        rest = match end {
            Some(at) => inner.get(at + run..).unwrap_or_default(),
            None => inner,
        };
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(pages: &[(&str, &str)]) -> Vec<String> {
        let texts: BTreeMap<PathBuf, String> = pages
            .iter()
            .map(|(path, text)| (PathBuf::from(path), (*text).to_owned()))
            .collect();
        let mut wrong = broken(&texts, |path| path == Path::new("crates/a.rs"));
        wrong.extend(unlisted(&texts));
        wrong
    }

    const LIST: (&str, &str) = (SUMMARY, "- [a](a.md)\n- [b](b/c.md)\n");

    #[test]
    fn links_to_files_and_headings_that_exist_pass() {
        let a = "# What `x` is … now\n[b](b/c.md#two-1) [code](../crates/a.rs#L3) [other](https://x/y.md) [self](#what-x-is--now)\n\
            `[no](link.md)` ``a ` [no](link.md)`` [`name`](b/c.md)\n```\n[no](link.md)\n# no heading\n```\n";
        let c = "## Two\n## Two\n[up](../a.md#what-x-is--now)\n";
        assert_eq!(
            wrong(&[LIST, ("docs/a.md", a), ("docs/b/c.md", c)]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn links_that_lead_nowhere_and_pages_that_are_not_listed_are_named() {
        let a = "[gone](gone.md) [heading](b/c.md#gone) [code](../crates/b.rs)\n```\n# gone\n```\n";
        let found = wrong(&[
            LIST,
            ("docs/a.md", a),
            ("docs/b/c.md", "# c\n"),
            ("docs/d.md", "# d\n"),
        ]);
        assert_eq!(
            found,
            [
                "docs/a.md: gone.md",
                "docs/a.md: b/c.md#gone",
                "docs/a.md: ../crates/b.rs",
                "docs/SUMMARY.md: lists docs/d.md 0 times"
            ]
        );
    }

    #[test]
    fn the_documents_of_the_repository_have_no_broken_links() {
        check(&crate::root()).unwrap();
    }
}
