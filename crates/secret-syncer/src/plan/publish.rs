//! How a pool is published.

use std::collections::BTreeMap;

use osm_api::config::{Published, Rendered};
use osm_api::settings::Credentials;
use osm_api::{PoolRef, names};

use crate::model::documents::Documents;
use crate::model::gathered::Gathered;
use crate::model::ownership::OwnershipLabels;
use crate::model::tokens::Tokens;
use crate::model::view::{ConfigView, published_from};
use crate::plan::cause::Cause;
use crate::plan::inputs::Inputs;
use crate::plan::kubeconfig_secret;
use crate::plan::retention;
use crate::plan::steps::{BindingStep, DocumentIdentity, KubeletIdentity, Publish};
use crate::plan::worker_identity;

/// A config that is to be published, with what is decided about it so far.
pub struct Subject<'a> {
    pub gathered: &'a Gathered,
    pub config: &'a ConfigView,
    pub md: &'a PoolRef,
    pub rendered: &'a Rendered,
    pub revision: &'a str,
    pub inputs: &'a Inputs,
    pub credentials: &'a Credentials,
    pub ownership: OwnershipLabels,
    pub joins_by: Option<String>,
}

pub fn publish(subject: Subject<'_>, causes: Vec<Cause>) -> Publish {
    let Subject {
        gathered,
        config,
        md,
        rendered,
        credentials,
        ..
    } = subject;
    let life = credentials.token_lifetime();
    Publish {
        uid: config.uid.clone(),
        generation: config.generation,
        revision: subject.revision.to_owned(),
        digest: rendered.digest.clone(),
        inputs: subject.inputs.clone(),
        unless: (causes == [Cause::Unverified])
            .then(|| published_documents(gathered))
            .flatten(),
        confirm_worker: worker_identity::has_to_be_confirmed(&causes, gathered.worker_confirmed),
        bootstrap_name: names::bootstrap_secret_name(&md.name, &md.namespace),
        edge_script_name: config
            .is_edge
            .then(|| names::edge_script_secret_name(&md.name, &md.namespace)),
        kubeconfig: config.needs_kubeconfig_secret.then(|| {
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
        node_bootstrap: credentials.node_bootstrap.clone(),
        life,
        keep_until: retention::keep_until(gathered.now, life),
        kept: retention::kept(gathered)
            .into_iter()
            .map(|secret| secret.meta.name.clone())
            .collect(),
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
pub fn published(gathered: &Gathered, rendered: &Rendered) -> Option<Published> {
    let meta = &gathered.existing.bootstrap.as_ref()?.meta;
    Some(Published {
        digest: rendered.digest.clone(),
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

    /// Annotations of the bootstrap Secret, of the kubeconfig Secret and of the Secret with the script, but for ownership and seal.
    pub fn annotations(
        &self,
        documents: &Documents,
        tokens: &Tokens,
        bound_to: String,
    ) -> BTreeMap<String, String> {
        BTreeMap::from([
            (
                names::MACHINE_DEPLOYMENT_REVISION.to_owned(),
                self.revision.clone(),
            ),
            (
                names::PUBLISHED_FROM.to_owned(),
                published_from(&self.uid, self.generation),
            ),
            (names::INPUTS_MAC.to_owned(), self.inputs.mac.clone()),
            (names::DOCUMENT_MAC.to_owned(), documents.document_mac.clone()),
            (
                names::PROVISIONING_SECRET.to_owned(),
                documents.provisioning_secret.clone(),
            ),
            (names::BOUND_TO.to_owned(), bound_to),
            (names::EXPIRES.to_owned(), tokens.expires.to_string()),
            (names::RENEW_AT.to_owned(), tokens.renew_at.to_string()),
        ])
    }

    /// What the status says once everything is written.
    pub fn result(&self, documents: &Documents, tokens: &Tokens) -> Published {
        Published {
            digest: self.digest.clone(),
            revision: self.revision.clone(),
            bootstrap_secret: self.bootstrap_name.clone(),
            provisioning_secret: documents.provisioning_secret.clone(),
            credential_expires: tokens.expires.to_string(),
        }
    }
}
