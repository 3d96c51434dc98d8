//! `docs/runbooks`: the sections of the pages that cover reasons, and the list of the pages.
//!
//! People write the pages. Only what is between the markers of a page is generated.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use osm_api::{Reason, Runbook};

use super::sentences;
use crate::generated::{self, File};

const BEGIN: &str = "<!-- reasons: generated from crates/osm-api/src/reason.rs by `cargo xtask reasons` -->";
const END: &str = "<!-- end of reasons -->";

/// The list of the pages. It is a page of the folder, but no runbook.
const LIST: &str = "README.md";

const INTRODUCTION: &str = "# Runbooks

<!-- Generated from crates/osm-api/src/runbook.rs and the pages of this folder by `cargo xtask reasons`. Don't edit. -->

Each alert has a page in this folder, and each reason has a section of a page.
To begin with a symptom instead, see [troubleshooting](../troubleshooting.md).

- `NAMESPACE` is the label `namespace` of the alert, which is the namespace of the services.
  `POOL`, `PROFILE` and `MACHINE` are the names of a MachineDeployment, of a profile and of a Machine.
- The commands in fenced blocks only read. [A test](../../e2e/tests/chain/runbooks.rs) runs them.
  Indented commands change something, or need what the test does not have.
- If the MachineDeployments are in another cluster, pass `--worker-context` or `--worker-kubeconfig` to [osmctl](../osmctl.md#look-at-a-cluster).
  kubectl finds Machines, Nodes, requests and the namespace `cloud-init-settings` in that cluster.
- If the services are in a [home cluster](../kkp.md), pass the [flags of osmctl](../osmctl.md#a-home-cluster) that select it.
  `-n` is then the namespace of the installation in the user cluster, and kubectl finds everything but the services there.
- If you ask for help, send [what a maintainer asks for](../troubleshooting.md#ask-for-help).

## Alerts

| Alert | Meaning |
|---|---|
";

/// Where the section of a reason is, from `docs/`.
pub fn link(reason: Reason) -> String {
    let page = reason.section().runbook.name();
    format!("runbooks/{page}.md#{}", reason.as_str().to_lowercase())
}

/// The pages, and their list, with the text that they should have.
///
/// # Errors
/// A page that does not exist, has another alert as its title, or has no place for the sections of its reasons; a file that is no runbook.
pub fn files(docs: &Path) -> Result<Vec<File>> {
    let folder = docs.join("runbooks");
    let mut list = INTRODUCTION.to_owned();
    let mut files = Vec::new();
    for runbook in Runbook::all() {
        let path = folder.join(format!("{}.md", runbook.name()));
        let text =
            fs::read_to_string(&path).with_context(|| format!("no runbook {}; write it", path.display()))?;
        let (page, summary) = page(runbook, &text).with_context(|| path.display().to_string())?;
        writeln!(
            list,
            "| [{}]({}.md) | {summary} |",
            runbook.alert(),
            runbook.name()
        )?;
        files.push((path, page));
    }
    list.push_str("\n## Reasons\n\n| Reason | Runbook |\n|---|---|\n");
    for reason in Reason::all() {
        let name = reason.section().runbook.name();
        let anchor = reason.as_str().to_lowercase();
        writeln!(list, "| [`{reason}`]({name}.md#{anchor}) | {name} |")?;
    }
    files.push((folder.join(LIST), list));
    let strangers = strangers(&folder, &files)?;
    ensure!(
        strangers.is_empty(),
        "no alert has these runbooks; delete them, or add them to crates/osm-api/src/runbook.rs: {strangers:?}"
    );
    Ok(files)
}

/// The page with its sections, and its first sentence.
fn page(runbook: Runbook, text: &str) -> Result<(String, &str)> {
    let title = format!("# {}\n\n", runbook.alert());
    let rest = text
        .strip_prefix(&title)
        .with_context(|| format!("the page must begin with {title:?}"))?;
    let summary = rest.lines().next().unwrap_or_default();
    let reasons: Vec<Reason> = Reason::all()
        .filter(|reason| reason.section().runbook == runbook)
        .collect();
    let page = match reasons.is_empty() {
        true => text.to_owned(),
        false => generated::between(text, BEGIN, END, &sections(&reasons)?)?,
    };
    Ok((page, summary))
}

fn sections(reasons: &[Reason]) -> Result<String> {
    let mut text = String::new();
    for reason in reasons {
        let row = reason.row();
        let remedy = match row.remedy {
            "" => "Nothing.",
            remedy => remedy,
        };
        writeln!(
            text,
            "\n### {reason}\n\n{}\n\n**Look at:** {}\n\n**What to do:** {}",
            below(&sentences(row.means)),
            below(&sentences(reason.section().look_at)),
            below(&sentences(remedy)),
        )?;
    }
    text.push('\n');
    Ok(text)
}

/// Markdown of a page in `docs/`, for a page in a folder below.
fn below(markdown: &str) -> String {
    markdown
        .replace("](", "](../")
        .replace("](../http", "](http")
        .replace("](../runbooks/", "](")
}

fn strangers(folder: &Path, files: &[File]) -> Result<Vec<PathBuf>> {
    let mut strangers = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !files.iter().any(|(known, _)| *known == path) {
            strangers.push(path);
        }
    }
    Ok(strangers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Alerts are in the chart, and those to copy in a page.
    #[test]
    fn every_alert_has_a_runbook() {
        let mut texts = vec![crate::root().join("docs/operations.md")];
        let mut folders = vec![crate::root().join("charts/operating-system-manager")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => texts.push(path),
                }
            }
        }
        let text: String = texts
            .iter()
            .map(|path| fs::read_to_string(path).unwrap())
            .collect();
        let alerts: Vec<&str> = text
            .split("alert: ")
            .skip(1)
            .filter_map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric()).next())
            .filter(|name| name.starts_with("OSM"))
            .collect();
        assert!(alerts.len() > 10, "{alerts:?}");
        for alert in alerts {
            assert!(
                Runbook::all().any(|runbook| runbook.alert() == alert),
                "{alert} has no page in docs/runbooks"
            );
        }
    }
}
