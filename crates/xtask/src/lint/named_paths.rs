//! Paths that the documents for contributors name: each exists.
//!
//! A word is a path if it is a link's target, if it begins with a file or folder of the repository's root, or if it holds a `/`
//! and ends as a file does. `{a,b}` stands for each of its parts, `*` and `<name>` for any name. A path is relative to the
//! document, to the root, or to `crates/`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The documents, besides every page in `docs/contributing`.
const DOCUMENTS: [&str; 2] = ["CONTRIBUTING.md", "docs/architecture.md"];

const EXTENSIONS: [&str; 10] = ["rs", "md", "yaml", "toml", "py", "go", "sh", "json", "txt", "hbs"];

/// What commands write is not there before they have run.
const WRITTEN: [&str; 1] = ["target"];

/// Checks the documents of the repository.
///
/// # Errors
/// Names each path that does not exist, with its document; a document that can't be read.
pub fn check(root: &Path) -> Result<()> {
    let mut documents: Vec<PathBuf> = DOCUMENTS.iter().map(|name| root.join(name)).collect();
    let recipes = root.join("docs/contributing");
    if recipes.is_dir() {
        for entry in fs::read_dir(recipes)? {
            documents
                .extend(Some(entry?.path()).filter(|path| path.extension().is_some_and(|end| end == "md")));
        }
    }
    let mut missing = Vec::new();
    for document in documents {
        let text = fs::read_to_string(&document).with_context(|| document.display().to_string())?;
        let name = document
            .strip_prefix(root)
            .unwrap_or(&document)
            .display()
            .to_string();
        missing.extend(
            not_there(root, &document, &text)
                .into_iter()
                .map(|path| format!("{name}: {path}")),
        );
    }
    ensure!(
        missing.is_empty(),
        "documents name paths that do not exist:\n  {}",
        missing.join("\n  ")
    );
    Ok(())
}

/// The paths in `text` that do not exist.
fn not_there(root: &Path, document: &Path, text: &str) -> BTreeSet<String> {
    let beside = document.parent().unwrap_or(root);
    let places = [beside.to_owned(), root.to_owned(), root.join("crates")];
    let mut missing = BTreeSet::new();
    for link in links(text) {
        if !exists(beside, link) {
            missing.insert(link.to_owned());
        }
    }
    for word in words(text) {
        for path in alternatives(word).into_iter().filter(|path| is_path(root, path)) {
            if !places.iter().any(|place| exists(place, &path)) {
                missing.insert(path);
            }
        }
    }
    missing
}

/// Targets of Markdown links in the repository, without anchors.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text
        .split("](")
        .skip(1)
        .filter_map(|rest| Some(rest.split_once(')')?.0));
    let own = targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"));
    own.map(|target| target.split_once('#').map_or(target, |(file, _)| file))
        .filter(|file| !file.is_empty())
}

/// Words without the punctuation around them.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| c.is_whitespace() || "()[]`\"'|;".contains(c));
    let words = words.map(|word| word.trim_end_matches([':', ',', '.']));
    // A path may end with the number of a line.
    let words = words.map(|word| match word.rsplit_once(':') {
        Some((path, line)) if line.bytes().all(|byte| byte.is_ascii_digit()) => path,
        _ => word,
    });
    words.filter(|word| !word.is_empty())
}

fn is_path(root: &Path, word: &str) -> bool {
    if word.contains("://") || word.contains("::") || word.starts_with(['~', '/', '$', '-']) {
        return false;
    }
    let first = word.split('/').next().unwrap_or_default();
    if first == "." || first == ".." || WRITTEN.contains(&first) {
        return false; // links are checked as such
    }
    let is_file = word
        .rsplit_once('.')
        .is_some_and(|(_, end)| EXTENSIONS.contains(&end));
    (word.contains('/') && (is_file || root.join(first).exists())) || (is_file && root.join(first).is_file())
}

/// `a/{b,c}.md` as `a/b.md` and `a/c.md`.
fn alternatives(word: &str) -> Vec<String> {
    let Some((before, rest)) = word.split_once('{') else {
        return vec![word.to_owned()];
    };
    let Some((inner, after)) = rest.split_once('}') else {
        return vec![word.to_owned()];
    };
    inner
        .split(',')
        .flat_map(|part| alternatives(&format!("{before}{}{after}", part.trim())))
        .collect()
}

/// Whether something below `folder` has this path, where `*` and `<name>` stand for anything in one name.
fn exists(folder: &Path, path: &str) -> bool {
    let (first, rest) = path
        .split_once('/')
        .map_or((path, None), |(first, rest)| (first, Some(rest)));
    let further = |found: PathBuf| match rest.filter(|rest| !rest.is_empty()) {
        Some(rest) => exists(&found, rest),
        None => found.exists(),
    };
    let Some((before, after)) = around_placeholder(first) else {
        return further(folder.join(first));
    };
    let Ok(entries) = fs::read_dir(folder) else {
        return false;
    };
    entries.filter_map(Result::ok).any(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.len() >= before.len() + after.len()
            && name.starts_with(before)
            && name.ends_with(after)
            && further(entry.path())
    })
}

/// What is before the first placeholder of a name and after its last.
fn around_placeholder(name: &str) -> Option<(&str, &str)> {
    let start = name.find(['*', '<', '…'])?;
    let end = name.rfind(['*', '>', '…'])?;
    let length = name.get(end..)?.chars().next()?.len_utf8();
    Some((name.get(..start)?, name.get(end + length..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(text: &str) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        for name in [
            "README.md",
            "docs/guide.md",
            "docs/add/a.md",
            "crates/api/src/rbac.rs",
            "profiles/osp-ubuntu.yaml",
        ] {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        not_there(root.path(), &root.path().join("docs/guide.md"), text)
            .into_iter()
            .collect()
    }

    #[test]
    fn paths_that_exist_may_be_named_in_several_ways() {
        let text = "See [rights](../crates/api/src/rbac.rs#top), [`api/src/rbac.rs`](../crates/api/src/rbac.rs), `add/a.md`:\n\
             crates/api/src/rbac.rs:12, profiles/osp-<name>.yaml, `profiles/*.yaml`, docs/{guide,add/a}.md, crates/ and README.md.";
        assert_eq!(missing(text), Vec::<String>::new());
    }

    #[test]
    fn what_is_no_path_is_passed_over() {
        let text = "plan.rs, gather/apply, k8c.io/name, osm_api::rbac, https://x/docs/y.md, ~/.cache/x, target/e2e/x.md, [a](#b)";
        assert_eq!(missing(text), Vec::<String>::new());
    }

    #[test]
    fn paths_that_do_not_exist_are_named() {
        let text = "[a](gone.md#x) `crates/gone/` docs/{guide,no}.md api/src/gone.rs profiles/x-<name>.yaml";
        assert_eq!(
            missing(text),
            [
                "api/src/gone.rs",
                "crates/gone/",
                "docs/no.md",
                "gone.md",
                "profiles/x-<name>.yaml"
            ]
        );
    }
}
