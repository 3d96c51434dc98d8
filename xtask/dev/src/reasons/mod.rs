//! `cargo xtask reasons` writes docs/reasons.md and the sections of docs/runbooks from the tables in crates/osm-api.

mod runbooks;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::Result;
use osm_api::Reason;
use osm_api::condition::{ACCEPTED, RENDERED};
use osm_api::rbac::Service;
use osm_api::reason::Carrier;

use crate::generated::File;

/// The pages.
pub fn files() -> Result<Vec<File>> {
    let docs = crate::root().join("docs");
    let mut files = runbooks::files(&docs)?;
    files.push((docs.join("reasons.md"), page()?));
    Ok(files)
}

const INTRODUCTION: &str = "# Reasons

<!-- Generated from crates/osm-api/src/reason.rs by `cargo xtask reasons`. Don't edit. -->

Conditions, Events, logs and metrics carry one of these reasons.
Each links to its section of a [runbook](runbooks/README.md), which explains what it means, what to look at, and what to do.

- `kubectl get osp -A` lists the profiles, and `kubectl get osc -A` lists the pools. `kubectl describe` shows their messages.
- The condition `Ready` has the reason of `Accepted` or `Published`.
- Any other condition with the status `False` means that the newest change has no effect.
  The last valid configuration and its Secrets stay in use, unless the reason describes an exception.
- A reason of a condition is also the reason of the Event that the service emits when the condition turns `False` or recovers.
- A refused [settings](settings.md) document lists every error at once, as `path: rule`, in `/readyz`, in the log and in the message.

| Reason | Service | Where |
|---|---|---|
";

fn page() -> Result<String> {
    let mut page = INTRODUCTION.to_owned();
    for reason in Reason::all() {
        let row = reason.row();
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
            "| [`{reason}`]({}) | {services} | {} |",
            runbooks::link(reason),
            places(&|carrier| vec![place(carrier)])
        )?;
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

fn place(carrier: &Carrier) -> String {
    match carrier {
        Carrier::Condition(type_) => format!("condition `{type_}`"),
        Carrier::Event(_, kind) => format!("Event of the {kind}"),
        Carrier::Request => "CertificateSigningRequest".to_owned(),
        Carrier::Log(_) => "log".to_owned(),
    }
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
