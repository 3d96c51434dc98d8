//! Tests that `docs/security.md` names, as `name` in `path`: each exists. Each row of its tables of attacks names one, and each test in
//! `tests/attacks` has a row.
//!
//! A path is relative to the root, to `crates/` or to `tests/`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

const DOCUMENT: &str = "docs/security.md";

/// The section with the tables of attacks.
const ATTACKS: &str = "\n## Attacks\n";

const TESTS: &str = "tests/attacks";

/// Checks the document of the repository.
///
/// # Errors
/// Names each test that does not exist, each row without a test, and each test without a row; a file that can't be read.
pub fn check(root: &Path) -> Result<()> {
    let text = fs::read_to_string(root.join(DOCUMENT)).context(DOCUMENT)?;
    let mut problems: Vec<String> = named(&text)
        .into_iter()
        .filter(|test| !test.exists(root))
        .map(|Named { name, file }| format!("there is no test `{name}` in `{file}`"))
        .collect();
    let (_, attacks) = text.split_once(ATTACKS).context("the section of attacks")?;
    let attacks = attacks.split("\n## ").next().unwrap_or_default();
    for row in rows(attacks) {
        if named(row).is_empty() {
            problems.push(format!("this row names no test: {row}"));
        }
    }
    let in_rows: BTreeSet<Named<'_>> = rows(attacks).flat_map(named).collect();
    for entry in fs::read_dir(root.join(TESTS)).context(TESTS)? {
        let path = entry?.path();
        let file = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let source = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        for name in tests(&source) {
            let in_row = in_rows
                .iter()
                .any(|row| row.name == name && row.file.ends_with(&format!("attacks/{file}")));
            if !in_row {
                problems.push(format!("no row names the test `{name}` in `{TESTS}/{file}`"));
            }
        }
    }
    ensure!(problems.is_empty(), "{DOCUMENT}:\n  {}", problems.join("\n  "));
    Ok(())
}

/// A test that a document names.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Named<'t> {
    name: &'t str,
    file: &'t str,
}

impl Named<'_> {
    fn exists(&self, root: &Path) -> bool {
        let places: [PathBuf; 3] = [root.to_owned(), root.join("crates"), root.join("tests")];
        let sources = places
            .iter()
            .filter_map(|place| fs::read_to_string(place.join(self.file)).ok());
        sources
            .into_iter()
            .any(|source| tests(&source).contains(&self.name))
    }
}

/// The tests that a text names: `one` in `file.rs`, or several, with a comma or "and" between them.
fn named(text: &str) -> Vec<Named<'_>> {
    // Between backticks is code, and around it is prose.
    let parts: Vec<&str> = text.split('`').collect();
    let pairs: Vec<(&str, &str)> = parts
        .chunks(2)
        .filter_map(|pair| Some((*pair.first()?, *pair.get(1)?)))
        .collect();
    let mut found = Vec::new();
    // The names since the last word that is no conjunction.
    let mut names: Vec<&str> = Vec::new();
    for (prose, code) in pairs {
        match prose.trim() {
            "in" if code.ends_with(".rs") => {
                found.extend(names.drain(..).map(|name| Named { name, file: code }));
            }
            "," | "and" | ", and" => names.push(code),
            _ => names = vec![code],
        }
    }
    found
}

/// The rows of all tables, without their heads.
fn rows(text: &str) -> impl Iterator<Item = &str> {
    let is_row = |line: &&str| line.starts_with('|');
    let is_rule = |line: &str| line.starts_with("|--");
    let lines = text.lines().chain([""]);
    lines
        .clone()
        .zip(lines.skip(1))
        .filter(move |(line, next)| is_row(line) && !is_rule(line) && !is_rule(next))
        .map(|(line, _)| line)
}

/// Names of the tests in a source.
fn tests(source: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if is_test && !line.starts_with(['#', '/']) {
            let name = line
                .trim_start_matches("async ")
                .strip_prefix("fn ")
                .and_then(|rest| rest.split('(').next());
            found.extend(name);
            is_test = false;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_that_the_threat_model_names_exists_and_every_attack_has_a_row() {
        check(&crate::root()).unwrap();
    }

    #[test]
    fn names_are_found_with_their_file() {
        let text = "| x | `a` and `b` in `f.rs` | fuzz target `t`, `c`\n in `g.rs`; see `h.rs`, and `d` with `i.rs` |";
        let found: Vec<_> = named(text)
            .into_iter()
            .map(|test| (test.name, test.file))
            .collect();
        assert_eq!(
            found,
            [("a", "f.rs"), ("b", "f.rs"), ("t", "g.rs"), ("c", "g.rs")]
        );
        assert!(named("`a` is in the file `f.rs`").is_empty());
    }

    #[test]
    fn rows_are_what_is_below_the_heads() {
        let text = "\n| A | B |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\ntext\n\n| C |\n|--|\n| 5 |";
        assert_eq!(
            rows(text).collect::<Vec<_>>(),
            ["| 1 | 2 |", "| 3 | 4 |", "| 5 |"]
        );
    }

    #[test]
    fn only_tests_are_tests() {
        let source = "fn helper() {}\n#[tokio::test(flavor = \"x\")]\nasync fn one() {}\n    #[test]\n    // why\n    #[allow(x)]\n    fn two(\n";
        assert_eq!(tests(source), ["one", "two"]);
    }

    #[test]
    fn each_problem_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "tests/attacks/f.rs",
            "#[test]\nfn here() {}\n#[test]\nfn unnamed() {}\n",
        );
        let head = "# Page\n\n- `gone` in `tests/attacks/f.rs`\n\n## Attacks\n\n| A | T |\n|---|---|\n";
        write(
            DOCUMENT,
            &format!("{head}| x | `here` in `attacks/f.rs` |\n| y | none |\n"),
        );
        let error = check(folder.path()).unwrap_err().to_string();
        for problem in [
            "no test `gone` in `tests/attacks/f.rs`",
            "names no test: | y | none |",
            "no row names the test `unnamed` in `tests/attacks/f.rs`",
        ] {
            assert!(error.contains(problem), "{error}");
        }
        assert!(!error.contains("`here`"), "{error}");
    }
}
