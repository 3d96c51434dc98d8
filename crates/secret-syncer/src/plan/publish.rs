//! How a pool is published.

use std::collections::BTreeMap;
use std::sync::Arc;

use osm_api::config::{self, Rendered};
use osm_api::settings::Credentials;
use osm_api::{PoolRef, names};

use crate::model::documents::Documents;
use crate::model::gathered::{Gathered, Published};
use crate::model::ownership::OwnershipLabels;
use crate::model::token_binding::KubeletToken;
use crate::model::tokens::Tokens;
use crate::model::view::ConfigView;
use crate::plan::cause::Cause;
use crate::plan::causes::Wanted;
use crate::plan::inputs::Inputs;
use crate::plan::kubeconfig_secret;
use crate::plan::retention;
use crate::plan::steps::{BindingStep, Content, DocumentIdentity, KubeletIdentity, Publish};

/// A config that is to be published, with what is decided about it so far.
pub struct Subject<'a> {
    pub gathered: &'a Gathered,
    pub config: &'a ConfigView,
    pub md: &'a PoolRef,
    pub wanted: Target<'a>,
    pub credentials: &'a Credentials,
    pub ownership: OwnershipLabels,
    pub kubelet_token: KubeletToken,
    pub joins_by: Option<String>,
}

/// What is to be published.
pub enum Target<'a> {
    /// The content of the config.
    New {
        rendered: &'a Rendered,
        inputs: &'a Inputs,
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

    /// What the bootstrap Secret has to record; `None` for what it is known to record.
    pub fn as_new<'b>(&'b self, config: &ConfigView) -> Option<Wanted<'b>> {
        matches!(self, Self::New { .. }).then(|| Wanted {
            revision: self.revision(),
            published_from: self.published_from(config),
            inputs_mac: self.inputs_mac(),
        })
    }

    fn content(&self) -> Content {
        match self {
            Self::New { inputs, .. } => Content::Config {
                values: inputs.values.clone(),
            },
            Self::Published(published) => Content::Published(Arc::clone(published)),
        }
    }

    fn published_from(&self, config: &ConfigView) -> String {
        match self {
            Self::New { .. } => config.published_from(),
            Self::Published(published) => published.record.published_from.clone(),
        }
    }

    fn program(&self, gathered: &Gathered) -> Option<String> {
        match self {
            Self::New { .. } if !gathered.program.is_empty() => Some(gathered.program.clone()),
            _ => None,
        }
    }

    fn inputs_mac(&self) -> &str {
        match self {
            Self::New { inputs, .. } => &inputs.mac,
            Self::Published(published) => &published.record.inputs_mac,
        }
    }
}

pub fn publish(subject: Subject<'_>, causes: Vec<Cause>) -> Publish {
    let Subject {
        gathered,
        config,
        md,
        wanted,
        credentials,
        ..
    } = subject;
    let life = credentials.token_lifetime();
    Publish {
        uid: config.uid.clone(),
        content: wanted.content(),
        revision: wanted.revision().to_owned(),
        digest: wanted.digest().to_owned(),
        published_from: wanted.published_from(config),
        inputs_mac: wanted.inputs_mac().to_owned(),
        program: wanted.program(gathered),
        unless: (causes == [Cause::Unverified])
            .then(|| published_documents(gathered))
            .flatten(),
        confirm_worker: causes.contains(&Cause::Missing),
        bootstrap_name: names::bootstrap_secret_name(&md.name, &md.namespace),
        edge_script_name: wanted
            .is_edge(config)
            .then(|| names::edge_script_secret_name(&md.name, &md.namespace)),
        kubeconfig: wanted.needs_kubeconfig_secret(config).then(|| {
            let keep_until = retention::keep_until(gathered.now, life);
            kubeconfig_secret::provide(&gathered.existing, &gathered.pool, keep_until)
        }),
        identity: names::pool_object("node", &gathered.pool),
        ownership: subject.ownership,
        account: gathered
            .existing
            .account
            .as_ref()
            .map(|account| account.uid.clone()),
        binding: match &gathered.existing.binding {
            None => BindingStep::Create,
            Some(binding) if binding.good => BindingStep::Keep,
            Some(binding) => BindingStep::Recreate {
                uid: binding.meta.uid.clone(),
            },
        },
        kubelets_join_by: subject
            .joins_by
            .map_or(KubeletIdentity::CreateNodeAccount, KubeletIdentity::Known),
        kubelet_token: subject.kubelet_token,
        life,
        keep_until: retention::keep_until(gathered.now, life),
        kept: retention::kept(gathered)
            .into_iter()
            .map(|secret| secret.meta.name.clone())
            .collect(),
        // Repairs and renewals may need another one, and are no content that anybody chose. Chosen content is held back before.
        has_room: retention::documents(gathered) < retention::MAX_DOCUMENTS_WITH_REVISIONS,
        out_of_sight: retention::out_of_sight(gathered),
        causes,
    }
}

/// The documents that the bootstrap Secret was made from.
fn published_documents(gathered: &Gathered) -> Option<DocumentIdentity> {
    let meta = &gathered.existing.bootstrap.as_ref()?.meta;
    Some(DocumentIdentity {
        document_mac: meta.annotation(names::DOCUMENT_MAC)?.to_owned(),
        provisioning_secret: meta.annotation(names::PROVISIONING_SECRET)?.to_owned(),
    })
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
    /// Whether exactly these documents are published, and so nothing is to be done.
    pub fn is_published(&self, documents: &Documents) -> bool {
        self.unless.as_ref().is_some_and(|published| {
            // The name of a provisioning document with tokens is as new as they are; the MAC is of the same document without them.
            let same_name =
                self.kubeconfig.is_some() || published.provisioning_secret == documents.provisioning_secret;
            published.document_mac == documents.document_mac && same_name
        })
    }

    /// Whether this may be published while the config is like that: of a pool that exists, and with the content that was planned.
    pub fn is_allowed(&self, config: &ConfigView) -> bool {
        let is_planned = match self.content {
            Content::Config { .. } => {
                config.status.rendered.is_some() && config.published_from() == self.published_from
            }
            Content::Published(_) => true,
        };
        config.uid == self.uid && is_planned && !config.is_retired()
    }

    /// Annotations of the bootstrap Secret, of the kubeconfig Secret and of the Secret with the script, but for ownership and seal.
    pub fn annotations(
        &self,
        documents: &Documents,
        tokens: &Tokens,
        bound_to: String,
    ) -> BTreeMap<String, String> {
        let program = self
            .program
            .clone()
            .map(|program| (names::PROGRAM.to_owned(), program));
        let others = [
            (
                names::MACHINE_DEPLOYMENT_REVISION.to_owned(),
                self.revision.clone(),
            ),
            (names::PUBLISHED_FROM.to_owned(), self.published_from.clone()),
            (names::INPUTS_MAC.to_owned(), self.inputs_mac.clone()),
            (names::DOCUMENT_MAC.to_owned(), documents.document_mac.clone()),
            (
                names::PROVISIONING_SECRET.to_owned(),
                documents.provisioning_secret.clone(),
            ),
            (names::BOUND_TO.to_owned(), bound_to),
            (names::EXPIRES.to_owned(), tokens.expires.to_string()),
            (names::RENEW_AT.to_owned(), tokens.renew_at.to_string()),
        ];
        others.into_iter().chain(program).collect()
    }

    /// What the status says once everything is written.
    pub fn result(&self, documents: &Documents, tokens: &Tokens) -> config::Published {
        config::Published {
            digest: self.digest.clone(),
            revision: self.revision.clone(),
            bootstrap_secret: self.bootstrap_name.clone(),
            provisioning_secret: documents.provisioning_secret.clone(),
            credential_expires: tokens.expires.to_string(),
        }
    }
}
