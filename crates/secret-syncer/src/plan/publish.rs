//! How a pool is published.

use std::collections::BTreeMap;

use osm_api::{PoolRef, config, names};

use crate::model::existing::OwnershipLabels;
use crate::model::gathered::Gathered;
use crate::model::tokens::Tokens;
use crate::model::view::{ConfigView, Meta};
use crate::plan::content::{Comparison, Content, Wanted};
use crate::plan::findings::{Cause, Finding};
use crate::plan::steps::{DocumentStep, Publish};
use crate::plan::{hold, messages, provisioning_secret};

pub fn publish(
    gathered: &Gathered,
    config: &ConfigView,
    md: &PoolRef,
    wanted: Wanted,
    ownership: OwnershipLabels,
    findings: Vec<Finding>,
) -> Publish {
    // Where something else is to be put right, it is published in any case.
    let is_compared = wanted.comparison == Comparison::Unknown && findings.len() == 1;
    // Repairs and renewals never wait, since nobody has chosen their content; nor does new content without which there would be nothing.
    let can_wait = wanted.comparison != Comparison::Same && gathered.existing.document().is_some();
    Publish {
        uid: config.uid.clone(),
        compare: is_compared.then(|| hold::record(gathered, config)).flatten(),
        bootstrap_name: names::bootstrap_secret_name(&md.name, &md.namespace),
        edge_script_name: wanted
            .is_edge
            .then(|| names::edge_script_secret_name(&md.name, &md.namespace)),
        kubeconfig_name: wanted
            .needs_kubeconfig_secret
            .then(|| names::kubeconfig_secret_name(&gathered.pool)),
        ownership,
        life: gathered.credentials.clone().unwrap_or_default().token_lifetime(),
        kept: provisioning_secret::kept_names(gathered),
        too_many_documents: (can_wait && !provisioning_secret::has_room(gathered)).then(|| {
            let kept = provisioning_secret::documents(gathered);
            messages::too_many_documents(kept, provisioning_secret::next_expiry(gathered))
        }),
        out_of_sight: provisioning_secret::out_of_sight(gathered),
        findings,
        wanted,
    }
}

/// What the status says of a pool about which nothing is to be done.
pub fn published(gathered: &Gathered, digest: &str) -> Option<config::Published> {
    let meta = &gathered.existing.bootstrap.as_ref()?.meta;
    Some(config::Published {
        digest: digest.to_owned(),
        revision: meta.annotation(names::MACHINE_DEPLOYMENT_REVISION)?.to_owned(),
        bootstrap_secret: meta.name.clone(),
        provisioning_secret: meta.annotation(names::PROVISIONING_SECRET)?.to_owned(),
        credential_expires: meta.time(names::EXPIRES)?.to_string(),
    })
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

    /// Whether this may be published while the config is like that: of a pool that exists, and with the content that was planned.
    pub fn is_allowed(&self, config: &ConfigView) -> bool {
        let is_planned = match &self.wanted.content {
            Content::Config { id, .. } => config.status.rendered.is_some() && config.content_id() == *id,
            Content::Published(_) => true,
        };
        config.uid == self.uid && is_planned && !config.is_retired()
    }

    /// Why the pool has to wait with this document.
    pub fn has_no_room_for(&self, step: &DocumentStep) -> Option<&str> {
        let problem = self.too_many_documents.as_deref();
        problem.filter(|_| matches!(step, DocumentStep::Create(_)))
    }

    /// Annotations of the bootstrap Secret, and of the Secrets that are written beside it, but for ownership.
    pub fn annotations(&self, document: &Meta, tokens: &Tokens) -> BTreeMap<String, String> {
        let (expires, renew_at) = (tokens.expires.to_string(), tokens.renew_at.to_string());
        [
            (names::MACHINE_DEPLOYMENT_REVISION, self.wanted.revision.as_str()),
            (names::PUBLISHED_FROM, &self.wanted.published_from),
            (names::PROVISIONING_SECRET, &document.name),
            (names::PROVISIONING_SECRET_UID, &document.uid),
            (names::BOUND_TO, &tokens.bound_to),
            (names::EXPIRES, &expires),
            (names::RENEW_AT, &renew_at),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    /// What the status says once everything is written.
    pub fn result(&self, document: &Meta, tokens: &Tokens) -> config::Published {
        config::Published {
            digest: self.wanted.digest.clone(),
            revision: self.wanted.revision.clone(),
            bootstrap_secret: self.bootstrap_name.clone(),
            provisioning_secret: document.name.clone(),
            credential_expires: tokens.expires.to_string(),
        }
    }
}
