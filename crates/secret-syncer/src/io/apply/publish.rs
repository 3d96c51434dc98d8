//! Publishes a pool, in an order in which no object ever refers to one that does not exist yet.

use k8s_openapi::api::core::v1::Secret;
use osm_api::config::Published;
use osm_api::{OperatingSystemConfigSpec, content, digest, names};
use osm_runtime::RequestError;
use osm_runtime::request::failed;

use crate::io::apply::{identity, objects, provisioning, well_known};
use crate::io::clients;
use crate::io::error::ApplyError;
use crate::io::syncer::Syncer;
use crate::io::tokens;
use crate::model::documents::Documents;
use crate::model::gathered::Gathered;
use crate::model::seal::seal;
use crate::model::token_binding::bound_to;
use crate::model::tokens::Tokens;
use crate::plan::adoption::WellKnown;
use crate::plan::retention;
use crate::plan::steps::Publish;

/// `None`: exactly this is published already.
///
/// # Errors
/// Requests that failed; documents that can't be generated; tokens that lack a right.
pub async fn publish(
    syncer: &Syncer,
    gathered: &Gathered,
    publish: &Publish,
) -> Result<Option<Published>, ApplyError> {
    if publish.confirm_worker {
        clients::confirm(&syncer.clients.cluster.worker, &gathered.clusters.worker).await?;
        syncer.memory.confirm_worker();
    }
    let content = fetch(syncer, &gathered.name, publish).await?;
    let documents = Documents::make(
        &content,
        publish.inputs.values.clone(),
        &gathered.pool,
        &gathered.key,
    )?;
    let published = match publish.is_published(&documents) {
        true => None,
        false => Some(write(syncer, gathered, publish, &documents).await?),
    };
    syncer.memory.edit(&gathered.name, |memory| {
        memory.verified = Some(publish.inputs.mac.clone())
    });
    Ok(published)
}

/// The content of exactly the generation that osc-controller has confirmed.
async fn fetch(
    syncer: &Syncer,
    name: &str,
    publish: &Publish,
) -> Result<OperatingSystemConfigSpec, ApplyError> {
    const WHAT: &str = "the OperatingSystemConfig";
    let config = syncer.clients.configs().get(name).await.map_err(failed(WHAT))?;
    syncer.wrote_config(&config);
    if config.metadata.generation == Some(publish.generation)
        && config.metadata.uid.as_ref() == Some(&publish.uid)
    {
        Ok(content::into_content(config))
    } else {
        Err(RequestError::Conflict { what: WHAT }.into())
    }
}

async fn write(
    syncer: &Syncer,
    gathered: &Gathered,
    publish: &Publish,
    documents: &Documents,
) -> Result<Published, ApplyError> {
    provisioning::label_again(syncer, &publish.ownership, &publish.out_of_sight).await?;
    let joins_by = identity::node_account(syncer, &publish.kubelets_join_by).await?;
    let account = identity::account(syncer, publish).await?;
    let document = provisioning::provide(syncer, gathered, publish, documents).await?;
    let opened = retention::opened(&publish.kept, &document.meta.name);
    identity::role(syncer, gathered, publish, &opened).await?;
    // After its Role: the API server checks whether we hold the rights that we bind.
    identity::binding(syncer, publish).await?;
    let bound = (document.meta.name.as_str(), document.meta.uid.as_str());
    let tokens = tokens::issue(syncer, &gathered.name, publish, bound).await?;
    let bound_to = bound_to(Some(&account), Some(&joins_by), Some(&document.meta.uid)).unwrap_or_default();

    let bootstrap = documents.bootstrap(&tokens)?;
    let script = documents.edge_script(&tokens)?;
    let sealed = |known, name: &str, entry, text: &str| {
        sealed(
            syncer,
            gathered,
            publish,
            (documents, &tokens, &bound_to),
            (known, name, entry, text),
        )
    };
    let secret = sealed(
        WellKnown::Bootstrap,
        &publish.bootstrap_name,
        names::CLOUD_CONFIG_KEY,
        &bootstrap,
    );
    let existing = &gathered.existing;
    well_known::put(
        syncer,
        gathered,
        WellKnown::Bootstrap,
        existing.bootstrap.as_deref(),
        secret,
    )
    .await?;
    syncer
        .memory
        .edit(&gathered.name, |memory| memory.unpublished = None);
    if let (Some(name), Some(script)) = (&publish.edge_script_name, script) {
        let secret = sealed(WellKnown::EdgeScript, name, names::EDGE_SCRIPT_KEY, &script);
        let existing = existing.edge_script.as_deref();
        well_known::put(syncer, gathered, WellKnown::EdgeScript, existing, secret).await?;
    }
    Ok(publish.result(documents, &tokens))
}

/// A Secret with the annotations that later decisions rest on, sealed together with its text.
fn sealed(
    syncer: &Syncer,
    gathered: &Gathered,
    publish: &Publish,
    (documents, tokens, bound_to): (&Documents, &Tokens, &str),
    (known, name, entry, text): (WellKnown, &str, &str, &str),
) -> Secret {
    let mut metadata = objects::metadata(
        &publish.ownership,
        &syncer.clients.installation,
        name,
        known.role(),
    );
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.extend(publish.annotations(&gathered.pool, documents, tokens, bound_to.to_owned()));
    let seal = seal(&gathered.key, &digest::sha256_hex(text.as_bytes()), annotations);
    annotations.insert(names::CONTENT_MAC.to_owned(), seal);
    objects::secret(metadata, entry, text, false)
}
