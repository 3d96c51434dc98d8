//! How a pool is published.

use std::collections::BTreeMap;
use std::sync::Arc;

use osm_api::config::{self, Rendered};
use osm_api::{Joining, PoolRef, names};

use crate::model::gathered::{Gathered, Published};
use crate::model::ownership::OwnershipLabels;
use crate::model::published_from::published_from;
use crate::model::source::Inputs;
use crate::model::tokens::Tokens;
use crate::model::view::{ConfigView, Meta};
use crate::plan::cause::Cause;
use crate::plan::content::Comparison;
use crate::plan::findings::{Finding, Wanted};
use crate::plan::steps::{BindingStep, Content, DocumentStep, Publish, SharedAccount};
use crate::plan::{hold, messages, provisioning_secret};

/// A config that is to be published.
pub struct Subject<'a> {
    pub gathered: &'a Gathered,
    pub config: &'a ConfigView,
    pub md: &'a PoolRef,
    pub wanted: Target<'a>,
    pub ownership: OwnershipLabels,
}

/// What is to be published.
pub enum Target<'a> {
    /// The content of the config.
    New {
        rendered: &'a Rendered,
        inputs: &'a Inputs,
        comparison: Comparison,
    },
    /// What is published already, with other tokens.
    Published(&'a Arc<Published>),
}

impl Target<'_> {
    pub fn revision(&self) -> &str {
        match self {
            Self::New { rendered, .. } => rendered.revision.as_deref().unwrap_or_default(),
            Self::Published(published) => &published.record.revision,
        }
    }

    pub fn digest(&self) -> &str {
        match self {
            Self::New { rendered, .. } => &rendered.digest,
            Self::Published(published) => &published.record.digest,
        }
    }

    pub fn is_edge(&self, config: &ConfigView) -> bool {
        match self {
            Self::New { .. } => config.is_edge,
            Self::Published(published) => published.document.content.is_edge(),
        }
    }

    pub fn needs_kubeconfig_secret(&self, config: &ConfigView) -> bool {
        match self {
            Self::New { .. } => config.needs_kubeconfig_secret,
            Self::Published(published) => published.document.content.needs_kubeconfig_secret(),
        }
    }

    /// New content, against what the bootstrap Secret records.
    pub fn as_new(&self) -> Option<Wanted<'_>> {
        match self {
            Self::New { comparison, .. } => Some(Wanted {
                revision: self.revision(),
                comparison: *comparison,
            }),
            Self::Published(_) => None,
        }
    }

    fn content(&self, config: &ConfigView) -> Content {
        match self {
            Self::New { inputs, .. } => Content::Config {
                identity: config.identity(),
                values: inputs.values.clone(),
            },
            Self::Published(published) => Content::Published(Arc::clone(published)),
        }
    }

    fn published_from(&self) -> String {
        match self {
            Self::New { rendered, inputs, .. } => published_from(&rendered.digest, &inputs.references),
            Self::Published(published) => published.record.published_from.clone(),
        }
    }
}

pub fn publish(subject: Subject<'_>, findings: Vec<Finding>) -> Publish {
    let Subject {
        gathered,
        config,
        md,
        wanted,
        ownership,
    } = subject;
    let existing = &gathered.existing;
    let is_unknown = wanted
        .as_new()
        .is_some_and(|wanted| wanted.comparison == Comparison::Unknown);
    Publish {
        uid: config.uid.clone(),
        content: wanted.content(config),
        revision: wanted.revision().to_owned(),
        digest: wanted.digest().to_owned(),
        published_from: wanted.published_from(),
        // Where something else is to be put right, it is published in any case.
        compare: (is_unknown && findings.len() == 1)
            .then(|| hold::record(gathered, config))
            .flatten(),
        bootstrap_name: names::bootstrap_secret_name(&md.name, &md.namespace),
        edge_script_name: wanted
            .is_edge(config)
            .then(|| names::edge_script_secret_name(&md.name, &md.namespace)),
        kubeconfig_name: wanted
            .needs_kubeconfig_secret(config)
            .then(|| names::kubeconfig_secret_name(&gathered.pool)),
        identity: names::pool_account(&gathered.pool),
        ownership,
        account: existing.account.as_ref().map(|account| account.uid.clone()),
        binding: match &existing.binding {
            None => BindingStep::Create,
            Some(binding) if binding.good => BindingStep::Keep,
            Some(binding) => BindingStep::Recreate {
                uid: binding.meta.uid.clone(),
            },
        },
        shared_account: (gathered.joining == Joining::Static).then(|| SharedAccount {
            account: gathered.node_account.clone(),
            token_binding: existing
                .token_binding
                .as_ref()
                .map(|secret| secret.meta.uid.clone()),
        }),
        life: gathered.credentials.clone().unwrap_or_default().token_lifetime(),
        kept: provisioning_secret::kept(gathered)
            .into_iter()
            .map(|secret| secret.meta.name.clone())
            .collect(),
        too_many_documents: (!provisioning_secret::has_room(gathered)).then(|| {
            let kept = provisioning_secret::documents(gathered);
            messages::too_many_documents(kept, provisioning_secret::next_expiry(gathered))
        }),
        out_of_sight: provisioning_secret::out_of_sight(gathered),
        findings,
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
        let is_planned = match &self.content {
            Content::Config { identity, .. } => {
                config.status.rendered.is_some() && config.identity() == *identity
            }
            Content::Published(_) => true,
        };
        config.uid == self.uid && is_planned && !config.is_retired()
    }

    /// Why the pool has to wait with this document. Repairs and renewals never wait, since nobody has chosen their content.
    pub fn has_no_room_for(&self, step: &DocumentStep) -> Option<&str> {
        match (step, &self.content) {
            (DocumentStep::Create { .. }, Content::Config { .. }) => self.too_many_documents.as_deref(),
            _ => None,
        }
    }

    /// Annotations of the bootstrap Secret, and of the Secrets that are written beside it, but for ownership.
    pub fn annotations(&self, document: &Meta, tokens: &Tokens, bound_to: &str) -> BTreeMap<String, String> {
        let (expires, renew_at) = (tokens.expires.to_string(), tokens.renew_at.to_string());
        [
            (names::MACHINE_DEPLOYMENT_REVISION, self.revision.as_str()),
            (names::PUBLISHED_FROM, &self.published_from),
            (names::PROVISIONING_SECRET, &document.name),
            (names::PROVISIONING_SECRET_UID, &document.uid),
            (names::BOUND_TO, bound_to),
            (names::EXPIRES, &expires),
            (names::RENEW_AT, &renew_at),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    /// What the status says once everything is written.
    pub fn result(&self, document: &Meta, tokens: &Tokens) -> config::Published {
        config::Published {
            digest: self.digest.clone(),
            revision: self.revision.clone(),
            bootstrap_secret: self.bootstrap_name.clone(),
            provisioning_secret: document.name.clone(),
            credential_expires: tokens.expires.to_string(),
        }
    }
}
