//! `cargo xtask reasons`: docs/reasons.md and docs/runbooks, from the tables in crates/osm-api and the messages in the code.

mod messages;
mod runbooks;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Result, ensure};
use osm_api::Reason;
use osm_api::condition::{ACCEPTED, RENDERED};
use osm_api::rbac::Service;
use osm_api::reason::Carrier;

use self::messages::{Messages, Part};
use crate::generated::{self, File};

/// Write docs/reasons.md and the sections of docs/runbooks: every reason, what it means, what to do, and the messages that come with it
#[derive(clap::Args)]
pub struct Reasons {
    /// Write nothing; fail if the file is out of date
    #[arg(long)]
    check: bool,
}

impl Reasons {
    /// Writes or checks.
    ///
    /// # Errors
    /// A reason that no code uses, or that has no message or no runbook; a file that is out of date (with `--check`) or cannot be written.
    pub fn run(&self) -> Result<()> {
        let bad = "out of date (run `cargo xtask reasons`)";
        generated::settle(
            &stale()?,
            self.check,
            "docs/reasons.md and docs/runbooks are up to date",
            bad,
        )
    }
}

fn stale() -> Result<Vec<File>> {
    let messages = Messages::collect()?;
    let unused: Vec<Reason> = Reason::all()
        .filter(|reason| !messages.used.contains(reason))
        .collect();
    ensure!(unused.is_empty(), "no code uses these reasons: {unused:?}");
    let silent: Vec<Reason> = Reason::all()
        .filter(|reason| {
            messages.of(*reason, Part::Whole).is_empty() && messages.of(*reason, Part::Detail).is_empty()
        })
        .collect();
    ensure!(
        silent.is_empty(),
        "no message was found for these reasons: {silent:?}"
    );
    let strange = messages.strange();
    ensure!(
        strange.is_empty(),
        "no text in the code contains these parts of messages in the table: {strange:?}"
    );
    let docs = crate::root().join("docs");
    let mut files = runbooks::files(&docs)?;
    files.push((docs.join("reasons.md"), page(&messages)?));
    Ok(generated::stale(files))
}

const INTRODUCTION: &str = "# Reasons and messages

<!-- Generated from crates/osm-api/src/reason.rs and the messages in the code by `cargo xtask reasons`. Don't edit. -->

Conditions, Events, logs and metrics carry one of these reasons.
Search this page for the reason, or for a part of the message.
A message may consist of several texts, separated by semicolons: search for one of them.
Names in braces and `…` are placeholders.

- `kubectl get osp -A` lists the profiles, and `kubectl get osc -A` lists the pools. `kubectl describe` shows their messages.
- The condition `Ready` has the reason of `Accepted` or `Published`.
- Any other condition with the status `False` means that the newest change has no effect.
  The last valid configuration and its Secrets stay in use, unless the reason describes an exception.
- A reason of a condition is also the reason of the Event that the service emits when the condition turns `False` or recovers.
- [Runbooks](runbooks/README.md) describe what to look at, one page for each alert.

## Overview

| Reason | Service | Where |
|---|---|---|
";

const SETTINGS: &str = "
## Errors in settings

A refused [settings](settings.md) document lists every error at once, as `path: rule`.
`/readyz`, the log, and the message of `Rendered` or `PoolSettingsInvalid` contain the list; it never repeats a value.
An `unknown field` is misspelled or belongs elsewhere, a `missing field` is required, and `expected …` names the type that the field must have.

| Field | Rule |
|---|---|
";

fn page(messages: &Messages) -> Result<String> {
    let mut page = INTRODUCTION.to_owned();
    for reason in Reason::all() {
        let row = reason.row();
        let link = format!("[`{reason}`](#{})", reason.as_str().to_lowercase());
        let places = |of: &dyn Fn(&Carrier) -> Vec<String>| {
            let all: BTreeSet<String> = row.carriers.iter().flat_map(of).collect();
            all.into_iter().collect::<Vec<_>>().join(", ")
        };
        let services = places(&|carrier| {
            services(carrier)
                .iter()
                .map(|service| service.name().to_owned())
                .collect()
        });
        writeln!(
            page,
            "| {link} | {services} | {} |",
            places(&|carrier| vec![short(carrier)])
        )?;
    }
    page.push_str("\n## Every reason\n");
    for reason in Reason::all() {
        let row = reason.row();
        writeln!(page, "\n### {reason}\n\n{}\n", sentences(row.means))?;
        let remedy = if row.remedy.is_empty() {
            "Nothing."
        } else {
            row.remedy
        };
        writeln!(
            page,
            "**What to do:** {}\n\n**Runbook:** [{}]({})\n\nReported by:\n",
            sentences(remedy),
            reason.section().runbook.name(),
            runbooks::link(reason),
        )?;
        for carrier in row.carriers {
            writeln!(page, "- {}", long(carrier))?;
        }
        let titles = [
            (Part::Whole, "Messages"),
            (Part::Detail, "Details that a message may contain"),
        ];
        for (part, title) in titles {
            let texts = messages.of(reason, part);
            if !texts.is_empty() {
                writeln!(page, "\n{title}:\n")?;
            }
            for text in texts {
                writeln!(page, "- {}", code(text))?;
            }
        }
    }
    page.push_str(SETTINGS);
    for (field, rule) in &messages.settings {
        writeln!(page, "| `{field}` | {} |", code(&rule.replace('|', "\\|")))?;
    }
    Ok(page)
}

/// One sentence per line.
fn sentences(text: &str) -> String {
    text.replace(". ", ".\n")
}

fn services(carrier: &Carrier) -> &'static [Service] {
    match carrier {
        Carrier::Condition(ACCEPTED) => &[Service::OspController],
        Carrier::Condition(RENDERED) => &[Service::OscController],
        Carrier::Condition(_) => &[Service::SecretSyncer],
        Carrier::Event(Service::OspController, _) => &[Service::OspController],
        Carrier::Event(Service::OscController, _) => &[Service::OscController],
        Carrier::Event(Service::SecretSyncer, _) => &[Service::SecretSyncer],
        Carrier::Event(Service::CsrApprover, _) | Carrier::Request => &[Service::CsrApprover],
        Carrier::Log(services) => services,
    }
}

fn short(carrier: &Carrier) -> String {
    match carrier {
        Carrier::Condition(type_) => format!("condition `{type_}`"),
        Carrier::Event(..) => "Event".to_owned(),
        Carrier::Request => "request".to_owned(),
        Carrier::Log(_) => "log".to_owned(),
    }
}

fn long(carrier: &Carrier) -> String {
    let services = services(carrier)
        .iter()
        .map(|service| service.name())
        .collect::<Vec<_>>()
        .join(", ");
    match carrier {
        Carrier::Condition(type_) => {
            let kind = if *type_ == ACCEPTED {
                "OperatingSystemProfile"
            } else {
                "OperatingSystemConfig"
            };
            format!("{services}, in the condition `{type_}` of the {kind}")
        }
        Carrier::Event(_, kind) => format!("{services}, in an Event about the {kind}"),
        Carrier::Request => format!(
            "{services}, in the condition `Approved` or `Denied` of a CertificateSigningRequest, or in `osm_joining_requests_pending`"
        ),
        Carrier::Log(_) => format!("{services}, in the log and in `osm_reconciles_total`"),
    }
}

/// A message as inline code; it may contain backticks.
fn code(text: &str) -> String {
    if text.contains('`') {
        format!("`` {text} ``")
    } else {
        format!("`{text}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_pages_are_up_to_date_and_every_reason_is_used_and_has_a_message_and_a_runbook() {
        assert!(stale().unwrap().is_empty(), "run `cargo xtask reasons`");
    }
}
