//! Publishes a pool, in an order in which nothing that a machine reads ever refers to what does not exist yet.

use std::borrow::Cow;

use osm_api::config::Published;
use osm_api::content::ContentView;
use osm_api::names;
use osm_runtime::RequestError;

use crate::io::apply::filled::Filled;
use crate::io::apply::provisioning::Promise;
use crate::io::apply::{
    CONFIG, LiveConfig, identity, kubeconfig_secret, live_config, provisioning, well_known,
};
use crate::io::clients;
use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::io::tokens;
use crate::model::documents::{DocumentError, Documents};
use crate::model::gathered::Gathered;
use crate::model::memory::{PoolMemory, Verified};
use crate::model::token_binding::{bound_to, bound_to_kubeconfig};
use crate::model::view::{ConfigView, Meta};
use crate::plan::adoption::WellKnown;
use crate::plan::retention;
use crate::plan::steps::{Content, KubeconfigSecret, Publish};

/// `None`: exactly this is published already.
///
/// # Errors
/// Requests that failed; documents that can't be generated; tokens that lack a right.
pub async fn publish(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
) -> Result<Option<Published>, ApplyError> {
    let worker = async {
        match publish.confirm_worker {
            true => clients::confirm(&context.clients.cluster.worker, &gathered.clusters.worker).await,
            false => Ok(()),
        }
    };
    let (confirmed, config) = tokio::join!(worker, live_config(context, &gathered.name));
    confirmed?;
    let LiveConfig { view, object } = config?;
    confirm(publish, &view)?;
    let (pool, key) = (&gathered.pool, &gathered.key);
    let documents = match &publish.content {
        Content::Config { values } => {
            let Some(config) = object else {
                return Err(RequestError::Conflict { what: CONFIG }.into());
            };
            let content = ContentView::of(&config).content().map_err(DocumentError::from);
            if content.is_err() {
                // The next plan holds it back, and renews what is published meanwhile.
                let altered = |memory: &mut PoolMemory| memory.altered = Some(view.resource_version.clone());
                context.memory.edit(&gathered.name, altered);
            }
            Documents::make(content?, values.clone(), pool, key)?
        }
        Content::Published(published) => Documents::published(&published.document, pool, key)?,
    };
    let published = match publish.is_published(&documents) {
        true => None,
        false => Some(write(context, gathered, publish, &documents).await?),
    };
    if let Content::Config { .. } = publish.content {
        context.memory.edit(&gathered.name, |memory| {
            memory.verified = Some(Verified {
                inputs_mac: publish.inputs_mac.clone(),
                document_mac: documents.document_mac.clone(),
            })
        });
    }
    Ok(published)
}

/// Nothing more is published for a pool whose end was seen since the config was fetched.
fn confirm_again(context: &Context, name: &str, publish: &Publish) -> Result<(), ApplyError> {
    let config = context.caches.configs.get(&context.clients.config_key(name));
    config.map_or(Ok(()), |config| confirm(publish, &config))
}

fn confirm(publish: &Publish, config: &ConfigView) -> Result<(), ApplyError> {
    if publish.is_allowed(config) {
        Ok(())
    } else {
        Err(RequestError::Conflict { what: CONFIG }.into())
    }
}

async fn write(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
    documents: &Documents,
) -> Result<Published, ApplyError> {
    provisioning::label_again(context, &publish.ownership, &publish.out_of_sight).await?;
    let joins_by = identity::node_account(context, &publish.kubelets_join_by).await?;
    let ready = match &publish.kubeconfig {
        None => document_first(context, gathered, publish, documents, &joins_by).await?,
        Some(secret) => tokens_first(context, gathered, publish, documents, &joins_by, secret).await?,
    };
    let Filled {
        documents, tokens, ..
    } = &ready;
    confirm_again(context, &gathered.name, publish)?;
    let bootstrap = documents.bootstrap(tokens)?;
    let script = documents.edge_script(tokens)?;
    let existing = &gathered.existing;
    let entry = (names::CLOUD_CONFIG_KEY, bootstrap.as_bytes());
    let secret = ready.secret(
        context,
        gathered,
        publish,
        WellKnown::Bootstrap,
        &publish.bootstrap_name,
        Some(entry),
    );
    let replaced = existing.bootstrap.as_deref();
    well_known::put(context, gathered, WellKnown::Bootstrap, replaced, secret).await?;
    if let (Some(name), Some(script)) = (&publish.edge_script_name, script) {
        let entry = (names::EDGE_SCRIPT_KEY, script.as_bytes());
        let secret = ready.secret(
            context,
            gathered,
            publish,
            WellKnown::EdgeScript,
            name,
            Some(entry),
        );
        let replaced = existing.edge_script.as_deref();
        well_known::put(context, gathered, WellKnown::EdgeScript, replaced, secret).await?;
    }
    Ok(publish.result(documents, tokens))
}

/// The tokens are bound to the provisioning Secret. `joins_by`: what the kubelets' token rests on.
///
/// Requests that don't need each other's answers are sent together. The RoleBinding follows the Role, so that it never binds a Role of someone
/// else.
async fn document_first<'a>(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
    documents: &'a Documents,
    joins_by: &str,
) -> Result<Filled<'a>, ApplyError> {
    let promise = Promise {
        keep_until: publish.keep_until,
        bound_to: None,
    };
    let step = provisioning::step(gathered, publish, documents, &promise)?;
    let before = gathered.existing.role.as_deref();
    // Its name is known before it exists.
    let opened = retention::opened(&publish.kept, &[&documents.provisioning_secret]);
    let (account, document, role) = tokio::join!(
        identity::account(context, publish),
        provisioning::provide(context, publish, step, documents, &promise),
        identity::role(context, before, publish, &opened),
    );
    let (account, document, role) = (account?, document?, role?);
    let Meta { name, uid, .. } = &document.meta;
    let (tokens, is_bound) = tokio::join!(
        tokens::issue(context, gathered, publish, (name, uid)),
        identity::binding(context, publish),
    );
    let (tokens, is_bound) = (tokens?, is_bound?);
    let is_as_written = is_bound && retention::opens(role.as_ref(), &opened);
    tokens::check(context, publish, &tokens, name, is_as_written).await?;
    let bound_to = bound_to(Some(&account), Some(joins_by), Some(uid));
    Ok(Filled {
        documents: Cow::Borrowed(documents),
        tokens,
        bound_to: bound_to.unwrap_or_default(),
    })
}

/// The tokens are bound to the kubeconfig Secret, because the provisioning document depends on them.
///
/// Tokens are checked before a document contains them. Otherwise each attempt of a lasting failure would leave a document.
async fn tokens_first<'a>(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
    documents: &'a Documents,
    joins_by: &str,
    secret: &KubeconfigSecret,
) -> Result<Filled<'a>, ApplyError> {
    let account = &identity::account(context, publish).await?;
    let existing = kubeconfig_secret::provide(context, gathered, publish, secret).await?;
    let bound = existing.meta.uid.clone();
    let before = gathered.existing.role.as_deref();
    let opened = retention::opened(&publish.kept, &[&secret.name]);
    let widened = identity::role(context, before, publish, &opened).await?;
    let is_bound = identity::binding(context, publish).await?;
    let bound_to = bound_to(Some(account), Some(joins_by), Some(&bound)).unwrap_or_default();
    let tokens = kubeconfig_secret::tokens(context, gathered, publish, &existing, &bound_to).await?;
    let mut filled = Filled {
        documents: Cow::Owned(documents.with_tokens(&tokens, &gathered.pool, &gathered.key)?),
        tokens,
        bound_to,
    };
    kubeconfig_secret::fill(context, gathered, publish, &existing, &filled, secret.keep_until).await?;

    let promise = Promise {
        keep_until: retention::kept_until_expiry(filled.tokens.expires),
        bound_to: Some(filled.bound_to.clone()),
    };
    let step = provisioning::step(gathered, publish, &filled.documents, &promise)?;
    let document = provisioning::provide(context, publish, step, &filled.documents, &promise).await?;
    let Meta { name, uid, .. } = &document.meta;
    let opened = retention::opened(&publish.kept, &[&secret.name, name]);
    let role = identity::role(context, widened.as_ref().or(before), publish, &opened).await?;
    let is_as_written = is_bound && retention::opens(role.as_ref(), &opened);
    tokens::check(context, publish, &filled.tokens, name, is_as_written).await?;
    let bound_to = bound_to_kubeconfig(Some(account), Some(joins_by), Some(uid), Some(&bound));
    filled.bound_to = bound_to.unwrap_or_default();
    Ok(filled)
}
