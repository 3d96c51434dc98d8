//! `cargo xtask reasons` writes docs/reasons.md from the table in crates/osm-api, and checks that each alert has a runbook.

mod runbooks;

use std::fmt::Write as _;

use anyhow::Result;
use osm_api::Reason;
use osm_api::reason::Row;

use crate::generated::File;

pub fn files() -> Result<Vec<File>> {
    let docs = crate::root().join("docs");
    runbooks::check(&docs)?;
    Ok(vec![(docs.join("reasons.md"), page()?)])
}

const INTRODUCTION: &str = "# Reasons

<!-- Generated from crates/osm-api/src/reason.rs by `cargo xtask reasons`. Don't edit. -->

This page is for operators. It lists the reasons that conditions, Events, logs and metrics carry.
Each links to the [runbook](troubleshooting.md#runbooks) of the alert that reports it.

- `osmctl status POOL` shows the reason of a pool with its message and the next step; `kubectl describe` shows those of any object.
- `critical` means that someone may have credentials that belong to others, and `info` is a normal state.
  With `warning`, the newest change has no effect or a machine waits, and what is published stays.
- The condition `Ready` has the reason of `Accepted` or `Published`.

| Reason | Severity | Meaning | What to do |
|---|---|---|---|
";

fn page() -> Result<String> {
    let mut page = INTRODUCTION.to_owned();
    for reason in Reason::all() {
        let Row {
            severity,
            means,
            remedy,
        } = reason.row();
        let severity: &str = severity.into();
        let remedy = if remedy.is_empty() { "–" } else { remedy };
        let link = runbooks::link(reason);
        writeln!(page, "| [`{reason}`]({link}) | {severity} | {means} | {remedy} |")?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated;

    #[test]
    fn the_committed_pages_are_up_to_date_and_every_reason_has_a_runbook() {
        assert!(
            generated::stale(files().unwrap()).is_empty(),
            "run `cargo xtask reasons`"
        );
    }
}
