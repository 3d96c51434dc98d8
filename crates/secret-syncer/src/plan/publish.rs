//! Plans how a pool is published.

use std::collections::BTreeMap;

use osm_api::names;

use crate::model::existing::{Ownership, WellKnown};
use crate::model::gathered::Gathered;
use crate::model::token::Token;
use crate::model::view::{ConfigView, Meta, SecretView};
use crate::plan::content::{Comparison, Origin, Wanted};
use crate::plan::findings::{Cause, Finding};
use crate::plan::steps::{DocumentStep, Publish};
use crate::plan::{hold, messages, provisioning_secret};

pub fn publish(
    gathered: &Gathered,
    config: &ConfigView,
    wanted: Wanted,
    ownership: Ownership,
    findings: Vec<Finding>,
) -> Publish {
    // Where something else is to be put right, it is published in any case.
    let is_compared = wanted.comparison == Comparison::Unknown && findings.len() == 1;
    // Only new content waits, and only if something is published already. Repairs and renewals keep the
    // content.
    let can_wait = wanted.comparison != Comparison::Same && gathered.existing.document().is_some();
    let mut kept = provisioning_secret::kept_open(gathered);
    if wanted.needs_kubeconfig_secret {
        kept = provisioning_secret::opened(&kept, &names::kubeconfig_secret_name(&gathered.pool));
    }
    Publish {
        uid: config.uid.clone(),
        compare: is_compared.then(|| hold::record(gathered, config)).flatten(),
        ownership,
        life: gathered.credentials.clone().unwrap_or_default().token_lifetime(),
        kept,
        too_many_documents: (can_wait && !provisioning_secret::has_room(gathered)).then(|| {
            let kept = provisioning_secret::documents(gathered);
            messages::too_many_documents(kept, provisioning_secret::next_expiry(gathered))
        }),
        out_of_sight: provisioning_secret::out_of_sight(gathered),
        findings,
        wanted,
    }
}

impl Publish {
    pub fn causes(&self) -> Vec<Cause> {
        let mut causes: Vec<Cause> = self.findings.iter().map(|finding| finding.cause).collect();
        causes.dedup();
        causes
    }

    /// For the log.
    pub fn because(&self) -> String {
        let messages: Vec<&str> = self
            .findings
            .iter()
            .map(|finding| finding.message.as_str())
            .collect();
        messages.join("; ")
    }

    /// Whether this may be published while the config is like that: of a pool that exists, and with the
    /// content that was planned.
    pub fn is_allowed(&self, config: &ConfigView) -> bool {
        let is_planned = match &self.wanted.origin {
            Origin::Config { id, .. } => config.status.rendered.is_some() && config.content_id() == *id,
            Origin::Published(_) => true,
        };
        config.uid == self.uid && is_planned && !config.is_retired()
    }

    /// Why the pool has to wait with this document.
    pub fn has_no_room_for(&self, step: &DocumentStep) -> Option<&str> {
        let problem = self.too_many_documents.as_deref();
        problem.filter(|_| matches!(step, DocumentStep::Create(_)))
    }

    /// Annotations of a Secret that is replaced, but for ownership. `existing` is what it replaces, and
    /// `document` the provisioning Secret.
    pub fn annotations(
        &self,
        known: WellKnown,
        existing: Option<&SecretView>,
        document: &Meta,
        token: &Token,
    ) -> BTreeMap<String, String> {
        let (expires, renew_at) = (token.expires.to_string(), token.renew_at.to_string());
        let keep_until = provisioning_secret::keep_until(existing, token.expires).to_string();
        // Tokens that were published with it before may still fetch it.
        let keep_until = (known == WellKnown::Kubeconfig).then_some((names::KEEP_UNTIL, keep_until.as_str()));
        [
            (names::MACHINE_DEPLOYMENT_REVISION, self.wanted.revision.as_str()),
            (names::PUBLISHED_FROM, &self.wanted.published_from),
            (names::PROVISIONING_SECRET, &document.name),
            (names::PROVISIONING_SECRET_UID, &document.uid),
            (names::BOUND_TO, &token.account),
            (names::EXPIRES, &expires),
            (names::RENEW_AT, &renew_at),
        ]
        .into_iter()
        .chain(keep_until)
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
    }
}
