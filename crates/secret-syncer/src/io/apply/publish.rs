//! Publishes a pool, in an order in which no object ever refers to one that does not exist yet.

use osm_api::config::Published;
use osm_api::{content, names};
use osm_runtime::RequestError;

use crate::io::apply::filled::Filled;
use crate::io::apply::provisioning::Promise;
use crate::io::apply::{
    CONFIG, LiveConfig, identity, kubeconfig_secret, live_config, provisioning, well_known,
};
use crate::io::clients;
use crate::io::error::ApplyError;
use crate::io::syncer::Syncer;
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
    syncer: &Syncer,
    gathered: &Gathered,
    publish: &Publish,
) -> Result<Option<Published>, ApplyError> {
    if publish.confirm_worker {
        clients::confirm(&syncer.clients.cluster.worker, &gathered.clusters.worker).await?;
    }
    let LiveConfig { view, object } = live_config(syncer, &gathered.name).await?;
    confirm(publish, &view)?;
    let (pool, key) = (&gathered.pool, &gathered.key);
    let documents = match &publish.content {
        Content::Config { values } => {
            let Some(config) = object else {
                return Err(RequestError::Conflict { what: CONFIG }.into());
            };
            let content = content::into_content(*config).map_err(DocumentError::from);
            if content.is_err() {
                // The next plan holds it back, and renews what is published meanwhile.
                let altered = |memory: &mut PoolMemory| memory.altered = Some(view.resource_version.clone());
                syncer.memory.edit(&gathered.name, altered);
            }
            Documents::make(&content?, values.clone(), pool, key)?
        }
        Content::Published(published) => Documents::published(&published.document, pool, key)?,
    };
    let published = match publish.is_published(&documents) {
        true => None,
        false => Some(write(syncer, gathered, publish, &documents).await?),
    };
    if let Content::Config { .. } = publish.content {
        syncer.memory.edit(&gathered.name, |memory| {
            memory.verified = Some(Verified {
                inputs_mac: publish.inputs_mac.clone(),
                document_mac: documents.document_mac.clone(),
            })
        });
    }
    Ok(published)
}

/// Nothing more is published for a pool whose end was seen since the config was fetched.
fn confirm_again(syncer: &Syncer, name: &str, publish: &Publish) -> Result<(), ApplyError> {
    let config = syncer.caches.configs.get(&syncer.clients.config_key(name));
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
    syncer: &Syncer,
    gathered: &Gathered,
    publish: &Publish,
    documents: &Documents,
) -> Result<Published, ApplyError> {
    provisioning::label_again(syncer, &publish.ownership, &publish.out_of_sight).await?;
    let accounts = Accounts {
        joins_by: identity::node_account(syncer, &publish.kubelets_join_by).await?,
        account: identity::account(syncer, publish).await?,
    };
    let ready = match &publish.kubeconfig {
        None => document_first(syncer, gathered, publish, documents, &accounts).await?,
        Some(secret) => tokens_first(syncer, gathered, publish, documents, &accounts, secret).await?,
    };
    let Filled {
        documents, tokens, ..
    } = &ready;
    confirm_again(syncer, &gathered.name, publish)?;
    let bootstrap = documents.bootstrap(tokens)?;
    let script = documents.edge_script(tokens)?;
    let existing = &gathered.existing;
    let entry = (names::CLOUD_CONFIG_KEY, bootstrap.as_bytes());
    let secret = ready.secret(
        syncer,
        gathered,
        publish,
        WellKnown::Bootstrap,
        &publish.bootstrap_name,
        Some(entry),
    );
    let replaced = existing.bootstrap.as_deref();
    well_known::put(syncer, gathered, WellKnown::Bootstrap, replaced, secret).await?;
    syncer
        .memory
        .edit(&gathered.name, |memory| memory.unpublished = None);
    if let (Some(name), Some(script)) = (&publish.edge_script_name, script) {
        let entry = (names::EDGE_SCRIPT_KEY, script.as_bytes());
        let secret = ready.secret(
            syncer,
            gathered,
            publish,
            WellKnown::EdgeScript,
            name,
            Some(entry),
        );
        let replaced = existing.edge_script.as_deref();
        well_known::put(syncer, gathered, WellKnown::EdgeScript, replaced, secret).await?;
    }
    Ok(publish.result(documents, tokens))
}

/// What tokens are issued for.
struct Accounts {
    /// uid of the pool's ServiceAccount.
    account: String,
    /// What the kubelets' token rests on.
    joins_by: String,
}

/// The tokens are bound to the provisioning Secret.
async fn document_first(
    syncer: &Syncer,
    gathered: &Gathered,
    publish: &Publish,
    documents: &Documents,
    accounts: &Accounts,
) -> Result<Filled, ApplyError> {
    let promise = Promise {
        keep_until: publish.keep_until,
        bound_to: None,
    };
    let document = provisioning::provide(syncer, gathered, publish, documents, &promise).await?;
    let Meta { name, uid, .. } = &document.meta;
    let role = gathered.existing.role.as_deref();
    let opened = retention::opened(&publish.kept, &[name]);
    let role = identity::role(syncer, role, publish, &opened).await?;
    let tokens = tokens::issue(syncer, gathered, publish, (name, uid)).await?;
    // Some time after its Role: the API server compares the Role with our rights, and looks again only after 100 ms if it has not seen the
    // Role yet.
    let is_bound = identity::binding(syncer, publish).await?;
    let is_as_written = is_bound && retention::opens(role.as_ref(), &opened);
    tokens::check(syncer, publish, &tokens, name, is_as_written).await?;
    let bound_to = bound_to(Some(&accounts.account), Some(&accounts.joins_by), Some(uid));
    Ok(Filled {
        documents: documents.clone(),
        tokens,
        bound_to: bound_to.unwrap_or_default(),
    })
}

/// The tokens are bound to the kubeconfig Secret, because the provisioning document depends on them.
///
/// Tokens are checked before a document contains them. Otherwise each attempt of a lasting failure would leave a document.
async fn tokens_first(
    syncer: &Syncer,
    gathered: &Gathered,
    publish: &Publish,
    documents: &Documents,
    accounts: &Accounts,
    secret: &KubeconfigSecret,
) -> Result<Filled, ApplyError> {
    let Accounts { account, joins_by } = accounts;
    let existing = kubeconfig_secret::provide(syncer, gathered, publish, secret).await?;
    let bound = existing.meta.uid.clone();
    let before = gathered.existing.role.as_deref();
    let opened = retention::opened(&publish.kept, &[&secret.name]);
    let widened = identity::role(syncer, before, publish, &opened).await?;
    let is_bound = identity::binding(syncer, publish).await?;
    let bound_to = bound_to(Some(account), Some(joins_by), Some(&bound)).unwrap_or_default();
    let tokens = kubeconfig_secret::tokens(syncer, gathered, publish, &existing, &bound_to).await?;
    let mut filled = Filled {
        documents: documents.with_tokens(&tokens, &gathered.pool, &gathered.key)?,
        tokens,
        bound_to,
    };
    kubeconfig_secret::fill(syncer, gathered, publish, &existing, &filled, secret.keep_until).await?;

    let promise = Promise {
        keep_until: retention::kept_until_expiry(filled.tokens.expires),
        bound_to: Some(filled.bound_to.clone()),
    };
    let document = provisioning::provide(syncer, gathered, publish, &filled.documents, &promise).await?;
    let Meta { name, uid, .. } = &document.meta;
    let opened = retention::opened(&publish.kept, &[&secret.name, name]);
    let role = identity::role(syncer, widened.as_ref().or(before), publish, &opened).await?;
    let is_as_written = is_bound && retention::opens(role.as_ref(), &opened);
    tokens::check(syncer, publish, &filled.tokens, name, is_as_written).await?;
    let bound_to = bound_to_kubeconfig(Some(account), Some(joins_by), Some(uid), Some(&bound));
    filled.bound_to = bound_to.unwrap_or_default();
    Ok(filled)
}
