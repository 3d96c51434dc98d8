//! Publishes a pool, in an order in which nothing that a machine reads ever refers to what does not exist
//! yet:
//!
//! 1. the ServiceAccount;
//! 2. its token, or that of a publish that was not finished; where a document has it in it, a check that the
//!    API server accepts it;
//! 3. the provisioning Secret, which is kept longer than the token lives;
//! 4. the Role, and the RoleBinding, which never binds a Role of someone else. Only now: another replica that
//!    works on the pool for a moment takes names out of the Role whose Secrets don't exist;
//! 5. a check of what the token may do;
//! 6. the kubeconfig Secret, if machines fetch one;
//! 7. the bootstrap Secret, and the script of an edge pool.
//!
//! The status follows, in [`report`](crate::io::report).

use k8s_openapi::ByteString;
use osm_api::config::Published;

use crate::io::apply::live_config::{CONFIG, live_config};
use crate::io::apply::{identity, objects, provisioning_secret, well_known};
use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::io::{gather, token};
use crate::model::documents::{DocumentError, Documents};
use crate::model::existing::WellKnown;
use crate::model::gathered::Gathered;
use crate::model::view::ConfigView;
use crate::plan::content::Origin;
use crate::plan::provisioning_secret::{document_step, opened};
use crate::plan::steps::Publish;

/// `None`: exactly this is published already.
///
/// # Errors
/// Requests that failed; documents that can't be generated; tokens that lack a right.
pub async fn publish(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
) -> Result<Option<Published>, ApplyError> {
    let (view, config) = live_config(context, &gathered.name).await?;
    confirm(publish, &view)?;
    let documents = match &publish.wanted.origin {
        Origin::Config { values, .. } => {
            let Some(config) = config else {
                return Err(osm_runtime::Error::Conflict { what: CONFIG }.into());
            };
            let content = config.content().map_err(DocumentError::from)?;
            Documents::make(content, values.clone(), &gathered.pool)?
        }
        Origin::Published(published) => Documents::published(published, &gathered.pool)?,
    };
    if let Some(record) = &publish.compare {
        let published = gather::published(context, &gathered.pool, record.clone()).await?;
        if published.is_some_and(|published| documents.are_published(&published)) {
            return Ok(None);
        }
    }
    write(context, gathered, publish, &documents).await.map(Some)
}

fn confirm(publish: &Publish, config: &ConfigView) -> Result<(), ApplyError> {
    if publish.is_allowed(config) {
        Ok(())
    } else {
        Err(osm_runtime::Error::Conflict { what: CONFIG }.into())
    }
}

async fn write(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
    documents: &Documents,
) -> Result<Published, ApplyError> {
    provisioning_secret::label_again(context, &publish.ownership, &publish.out_of_sight).await?;
    identity::account(context, gathered, &publish.ownership).await?;
    let token = &token::provide(context, gathered, publish, documents.has_token_later()).await?;
    let documents = documents.with_token(token)?;
    let step = document_step(gathered, &documents, &publish.wanted.published_from);
    if let Some(problem) = publish.has_no_room_for(&step) {
        return Err(ApplyError::TooManyDocuments(problem.to_owned()));
    }
    // All texts are made before the first of them is written.
    let name = step.name().to_owned();
    let texts = documents.texts(token, &name)?;
    let opened = opened(&publish.kept, &name);
    let document = provisioning_secret::provide(context, publish, step, &documents, token).await?;
    let document = document.meta;
    let is_open = identity::open(context, gathered, &publish.ownership, &opened).await?;
    // Only now: a right to join that is missing must not keep a document or a Role from being restored.
    let causes = publish.causes();
    token::check(context, &causes, token, &name, is_open).await?;
    // Nothing more is published for a pool whose end was seen since the config was fetched.
    if let Some(config) = context.shared.configs.get(&context.config_key(&gathered.name)) {
        confirm(publish, &config)?;
    }

    let mut status = None;
    for (known, entry) in texts {
        let Some(name) = known.name(&gathered.name, &gathered.pool) else {
            continue;
        };
        let existing = gathered.existing.well_known(known).map(|secret| &**secret);
        let mut metadata =
            objects::metadata(&publish.ownership, &context.installation, &name, known.purpose());
        let annotations = publish.annotations(known, existing, &document, token);
        metadata.annotations.get_or_insert_default().extend(annotations);
        let entry = entry.map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes())));
        let secret = objects::with_digest(objects::secret(metadata, entry.into_iter().collect(), false));
        let written = well_known::put(context, gathered, known, existing, secret).await?;
        if known == WellKnown::Bootstrap {
            status = written.meta.published(&publish.wanted.digest);
        }
    }
    let what = WellKnown::Bootstrap.what();
    // It lacks an annotation only if another program changes what is written.
    status.ok_or_else(|| osm_runtime::Error::Conflict { what }.into())
}
