//! Plans how a pool is published.

use std::collections::BTreeMap;
use std::sync::Arc;

use osm_api::names;

use crate::model::existing::Ownership;
use crate::model::gathered::Gathered;
use crate::model::token::Token;
use crate::model::view::{ConfigView, Meta};
use crate::plan::content::{Comparison, Origin, Wanted};
use crate::plan::findings::{Cause, Finding};
use crate::plan::steps::Publish;
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
        kept = provisioning_secret::opened(&kept, &names::kubeconfig_secret_name(&gathered.pool()));
    }
    Publish {
        compare: is_compared.then(|| hold::record(gathered, config)).flatten(),
        ownership,
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
    pub fn is_allowed(&self, gathered: &Gathered, config: &ConfigView) -> bool {
        let is_same = |planned: &Arc<ConfigView>| planned.uid == config.uid;
        let is_planned = match &self.wanted.origin {
            Origin::Config { id, .. } => config.status.rendered.is_some() && config.content_id() == *id,
            Origin::Published(_) => true,
        };
        gathered.config.as_ref().is_some_and(is_same) && is_planned && !config.is_retired()
    }

    /// Annotations of the Secrets that are replaced, but for ownership. `document`: the provisioning Secret.
    pub fn annotations(&self, document: &Meta, token: &Token) -> BTreeMap<String, String> {
        let (expires, renew_at) = (token.expires.to_string(), token.renew_at.to_string());
        let annotations = [
            (names::MACHINE_DEPLOYMENT_REVISION, self.wanted.revision.as_str()),
            (names::PUBLISHED_FROM, &self.wanted.published_from),
            (names::PROVISIONING_SECRET, &document.name),
            (names::PROVISIONING_SECRET_UID, &document.uid),
            (names::BOUND_TO, &token.account),
            (names::EXPIRES, &expires),
            (names::RENEW_AT, &renew_at),
        ];
        let annotations = annotations.into_iter();
        annotations
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }
}
