//! Publishes a pool, in an order in which nothing that a machine reads ever refers to what does not exist yet:
//!
//! 1. the ServiceAccount, and what else tokens are bound to;
//! 2. tokens, or those of a publish that was not finished; where a document has them in it, a check that the API server accepts them;
//! 3. the provisioning Secret, which is kept longer than the tokens live, and beside it the Role and the RoleBinding;
//! 4. a check of what the tokens may do;
//! 5. the kubeconfig Secret, if machines fetch one;
//! 6. the bootstrap Secret, and the script of an edge pool.
//!
//! The status follows, in [`report`](crate::io::report).

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use osm_api::config::Published;
use osm_api::content::ContentView;
use osm_api::names;
use osm_runtime::RequestError;

use crate::io::apply::{CONFIG, LiveConfig, identity, live_config, objects, provisioning_secret, well_known};
use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::io::{gather, token};
use crate::model::documents::{DocumentError, Documents};
use crate::model::gathered::Gathered;
use crate::model::tokens::Tokens;
use crate::model::view::{ConfigView, Meta, SecretView};
use crate::plan::adoption::WellKnown;
use crate::plan::content::Content;
use crate::plan::provisioning_secret::{document_step, extended, keep_until, opened};
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
    let LiveConfig { view, object } = live_config(context, &gathered.name).await?;
    confirm(publish, &view)?;
    let documents = match &publish.wanted.content {
        Content::Config { values, .. } => {
            let Some(config) = object else {
                return Err(RequestError::Conflict { what: CONFIG }.into());
            };
            let content = ContentView::of(&config).content().map_err(DocumentError::from)?;
            Documents::make(content, values.clone(), &gathered.pool)?
        }
        Content::Published(published) => Documents::published(published, &gathered.pool)?,
    };
    if is_published(context, gathered, publish, &documents).await? {
        return Ok(None);
    }
    write(context, gathered, publish, &documents).await.map(Some)
}

/// Compares with the stored documents, where the plan says so.
async fn is_published(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
    documents: &Documents,
) -> Result<bool, ApplyError> {
    let Some(record) = &publish.compare else {
        return Ok(false);
    };
    let published = gather::published(context, &gathered.pool, record.clone()).await?;
    Ok(published.is_some_and(|published| documents.are_published(&published)))
}

/// Nothing more is published for a pool whose end was seen since the config was fetched.
fn confirm_again(context: &Context, name: &str, publish: &Publish) -> Result<(), ApplyError> {
    let config = context.caches.configs.get(&context.config_key(name));
    config.map_or(Ok(()), |config| confirm(publish, &config))
}

fn confirm(publish: &Publish, config: &ConfigView) -> Result<(), ApplyError> {
    if publish.is_allowed(config) {
        Ok(())
    } else {
        Err(RequestError::Conflict { what: CONFIG }.into())
    }
}

/// Requests that don't need each other's answers are sent together. The RoleBinding follows the Role, so that it never binds a Role of someone
/// else.
async fn write(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
    documents: &Documents,
) -> Result<Published, ApplyError> {
    provisioning_secret::label_again(context, &publish.ownership, &publish.out_of_sight).await?;
    let tokens = &token::provide(context, gathered, publish, documents.have_tokens_later()).await?;
    let documents = documents.with_tokens(tokens)?;
    let step = document_step(gathered, &documents, &publish.wanted.published_from);
    if let Some(problem) = publish.has_no_room_for(&step) {
        return Err(ApplyError::TooManyDocuments(problem.to_owned()));
    }
    // Its name is known before it exists. All texts are made before the first of them is written.
    let name = step.name().to_owned();
    let bootstrap = documents.bootstrap(tokens, &name)?;
    let script = documents.edge_script(tokens, &name)?;
    let kubeconfig = documents.kubeconfig(tokens)?;
    let new: Vec<&str> = publish
        .kubeconfig_name
        .iter()
        .chain([&name])
        .map(String::as_str)
        .collect();
    let opened = opened(&publish.kept, &new);
    let (document, is_open) = tokio::join!(
        provisioning_secret::provide(context, publish, step, &documents, tokens),
        identity::open(context, gathered, &publish.ownership, &opened),
    );
    let (document, is_open) = (document?.meta, is_open?);
    // Only now: a right to join that is missing must not keep a document or a Role from being restored.
    let causes = publish.causes();
    token::check(context, gathered.joining, &causes, tokens, &name, is_open).await?;
    confirm_again(context, &gathered.name, publish)?;

    let replacing = Replacing {
        context,
        gathered,
        publish,
        tokens,
        document: &document,
    };
    let existing = &gathered.existing;
    if let Some(name) = &publish.kubeconfig_name {
        let entry = kubeconfig.as_deref().map(|text| (names::KUBECONFIG_KEY, text));
        let existing = existing.kubeconfig.as_deref();
        replacing
            .put(WellKnown::Kubeconfig, name, entry, existing)
            .await?;
    }
    let entry = Some((names::CLOUD_CONFIG_KEY, bootstrap.as_str()));
    let replaced = existing.bootstrap.as_deref();
    replacing
        .put(WellKnown::Bootstrap, &publish.bootstrap_name, entry, replaced)
        .await?;
    if let (Some(name), Some(script)) = (&publish.edge_script_name, &script) {
        let entry = Some((names::EDGE_SCRIPT_KEY, script.as_str()));
        let existing = existing.edge_script.as_deref();
        replacing
            .put(WellKnown::EdgeScript, name, entry, existing)
            .await?;
    }
    Ok(publish.result(&document, tokens))
}

/// What the Secrets have in common that one publish replaces.
struct Replacing<'a> {
    context: &'a Context,
    gathered: &'a Gathered,
    publish: &'a Publish,
    tokens: &'a Tokens,
    /// The provisioning Secret.
    document: &'a Meta,
}

impl Replacing<'_> {
    async fn put(
        &self,
        known: WellKnown,
        name: &str,
        entry: Option<(&str, &str)>,
        existing: Option<&SecretView>,
    ) -> Result<(), ApplyError> {
        let secret = self.secret(known, name, entry, existing);
        well_known::put(self.context, self.gathered, known, existing, secret).await?;
        Ok(())
    }

    fn secret(
        &self,
        known: WellKnown,
        name: &str,
        entry: Option<(&str, &str)>,
        existing: Option<&SecretView>,
    ) -> Secret {
        let (publish, tokens) = (self.publish, self.tokens);
        let installation = &self.context.installation;
        let mut metadata = objects::metadata(&publish.ownership, installation, name, known.purpose());
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.extend(publish.annotations(self.document, tokens));
        if known == WellKnown::Kubeconfig {
            let at = keep_until(tokens.expires);
            let keep_until = existing.map_or(at, |secret| extended(secret, at));
            annotations.insert(names::KEEP_UNTIL.to_owned(), keep_until.to_string());
        }
        let entry = entry.map(|(name, text)| (name.to_owned(), ByteString(text.as_bytes().to_vec())));
        objects::with_digest(objects::secret(metadata, entry.into_iter().collect(), false))
    }
}
