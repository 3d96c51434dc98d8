//! The differences of two trees, file by file.

use std::time::Duration;

use similar::{ChangeTag, TextDiff};

use crate::tree::Tree;

/// How long the comparison of two texts may look for the smallest difference. After that, a larger one is
/// shown.
const MAX_TIME: Duration = Duration::from_secs(2);

/// Unchanged lines around a change, as of `diff -u`.
const CONTEXT: usize = 3;

/// A file that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Path inside the tree.
    pub path: String,
    /// Absent if the file is new.
    pub old: Option<String>,
    /// Absent if the file is gone.
    pub new: Option<String>,
}

impl Difference {
    /// Namespace and name of the pool in [`Tree::of`], as `namespace/name`.
    pub fn pool(&self) -> &str {
        let end = self.path.match_indices('/').nth(1).map(|(at, _)| at);
        self.path
            .get(..end.unwrap_or(self.path.len()))
            .unwrap_or_default()
    }
}

/// All files that differ, in order.
pub fn between(old: &Tree, new: &Tree) -> Vec<Difference> {
    let mut paths: Vec<&String> = old.0.keys().chain(new.0.keys()).collect();
    paths.sort_unstable();
    paths.dedup();
    let text = |tree: &Tree, path| tree.0.get(path).map(|entry| entry.text.clone());
    let differences = paths.into_iter().map(|path| Difference {
        path: path.clone(),
        old: text(old, path),
        new: text(new, path),
    });
    differences.filter(|one| one.old != one.new).collect()
}

impl Difference {
    /// `added`, `removed` or `changed`.
    pub fn kind(&self) -> &'static str {
        match (&self.old, &self.new) {
            (None, _) => "added",
            (_, None) => "removed",
            _ => "changed",
        }
    }

    /// Lines that are added and removed.
    pub fn changed_lines(&self) -> (usize, usize) {
        let (old, new) = self.texts();
        let diff = TextDiff::configure().timeout(MAX_TIME).diff_lines(old, new);
        let count = |tag| {
            diff.iter_all_changes()
                .filter(|change| change.tag() == tag)
                .count()
        };
        (count(ChangeTag::Insert), count(ChangeTag::Delete))
    }

    fn texts(&self) -> (&str, &str) {
        (
            self.old.as_deref().unwrap_or_default(),
            self.new.as_deref().unwrap_or_default(),
        )
    }

    /// As a unified diff. Control characters of a file are replaced, because a terminal would act on them.
    pub fn unified(&self) -> String {
        let side = |prefix: &str, text: &Option<String>| match text {
            Some(_) => format!("{prefix}/{}", self.path),
            None => "/dev/null".to_owned(),
        };
        let (old, new) = self.texts();
        let diff = TextDiff::configure().timeout(MAX_TIME).diff_lines(old, new);
        let mut text = format!("--- {}\n+++ {}\n", side("old", &self.old), side("new", &self.new));
        for hunk in diff.unified_diff().context_radius(CONTEXT).iter_hunks() {
            text.push_str(&format!("{}\n", hunk.header()));
            for change in hunk.iter_changes() {
                let sign = match change.tag() {
                    ChangeTag::Delete => "-",
                    ChangeTag::Insert => "+",
                    ChangeTag::Equal => " ",
                };
                let line = change.value().strip_suffix('\n').unwrap_or(change.value());
                text.push_str(&format!("{sign}{line}\n"));
                if change.missing_newline() {
                    text.push_str("\\ No newline at end of file\n");
                }
            }
        }
        text
    }
}
