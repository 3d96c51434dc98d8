//! Checks `docs/runbooks`: people write the pages, and each alert has one of its name.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use osm_api::{Reason, Runbook};

/// The page of a reason, from `docs/`.
pub fn link(reason: Reason) -> String {
    format!("runbooks/{}.md", reason.runbook().name())
}

/// # Errors
/// A page that is missing, has another alert as its title, or belongs to no alert.
pub fn check(docs: &Path) -> Result<()> {
    let folder = docs.join("runbooks");
    let mut number = 0;
    for runbook in Runbook::all() {
        let path = folder.join(format!("{}.md", runbook.name()));
        let text =
            fs::read_to_string(&path).with_context(|| format!("no runbook {}; write it", path.display()))?;
        let title = format!("# {}\n\n", runbook.alert());
        ensure!(
            text.starts_with(&title),
            "{} must begin with {title:?}",
            path.display()
        );
        number += 1;
    }
    let found = fs::read_dir(&folder)?.count();
    ensure!(
        found == number,
        "docs/runbooks has {found} files, but there are {number} alerts; delete those of no alert, \
         or add them to crates/osm-api/src/runbook.rs"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alert_has_a_runbook() {
        let mut texts = Vec::new();
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
