//! Marks orphans, and deletes those that the plan says, once live reads have confirmed that nothing owns them.

use std::sync::Arc;

use kube::api::{Patch, PatchParams, PostParams};
use osm_api::{MachineDeployment, names};
use osm_runtime::Api;
use osm_runtime::error::already_exists;
use osm_runtime::request::failed;
use osm_runtime::status;
use serde_json::json;

use crate::io::apply::{objects, teardown};
use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::model::gathered::Gathered;
use crate::model::view::SecretView;
use crate::plan::steps::{Collect, OrphanStep, Owner};
use crate::plan::{orphan_budget, orphans};

/// What became of one orphan.
#[derive(Debug)]
pub enum OrphanOutcome {
    /// So many Secrets were marked.
    Marked(usize),
    Deleted,
    /// Its MachineDeployment exists: `namespace/name`.
    Owned(String),
    /// As many as an hour allows have been deleted.
    OverBudget,
    Failed(ApplyError),
}

/// A failure concerns this orphan only, so it is an outcome like the others.
pub async fn apply(context: &Context, gathered: &Gathered, step: &OrphanStep) -> OrphanOutcome {
    let outcome = match step {
        OrphanStep::Mark { secrets, since } => mark(context, secrets, &since.to_string()).await,
        OrphanStep::Collect(collect) => self::collect(context, gathered, collect).await,
    };
    outcome.unwrap_or_else(OrphanOutcome::Failed)
}

async fn mark(
    context: &Context,
    secrets: &[Arc<SecretView>],
    since: &str,
) -> Result<OrphanOutcome, ApplyError> {
    for secret in secrets {
        let patch = json!({"metadata": {
            "resourceVersion": secret.meta.resource_version,
            "annotations": {names::ORPHANED_SINCE: since},
        }});
        let api = context.secrets();
        let patched = api
            .patch(&secret.meta.name, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        context
            .caches
            .wrote_secret(&patched.map_err(failed("marking an orphaned Secret"))?);
    }
    Ok(OrphanOutcome::Marked(secrets.len()))
}

async fn collect(
    context: &Context,
    gathered: &Gathered,
    collect: &Collect,
) -> Result<OrphanOutcome, ApplyError> {
    const CONFIG: &str = "the OperatingSystemConfig";
    let config = status::live(&context.configs(), &gathered.name).await;
    let config = config.map_err(failed("reading the OperatingSystemConfig"))?;
    if collect.has_no_config && config.is_some() {
        return Err(osm_runtime::Error::Conflict { what: CONFIG }.into());
    }
    if let Some(owner) = living(context, &collect.owners).await? {
        return Ok(OrphanOutcome::Owned(format!(
            "{}/{}",
            owner.namespace, owner.name
        )));
    }
    if collect.is_limited && !record(context, gathered).await? {
        return Ok(OrphanOutcome::OverBudget);
    }
    // Before the deletion: a request that fails later must not hide what was deleted.
    tracing::warn!(
        config = gathered.name,
        pool = collect.pool,
        "deleting what was published for an orphaned pool"
    );
    let objects = std::slice::from_ref(&collect.objects);
    teardown::pool(context, &collect.pool, objects, true).await?;
    Ok(OrphanOutcome::Deleted)
}

/// The first of these that exists. The API server is asked in the cluster that the Secrets are in, since configs are also missing where
/// they are looked for in the wrong place.
async fn living<'a>(context: &Context, owners: &'a [Owner]) -> Result<Option<&'a Owner>, ApplyError> {
    for owner in owners {
        let client = context.cluster.worker.client.clone();
        let api: Api<MachineDeployment> = Api::namespaced(client, &owner.namespace);
        let live = status::live(&api, &owner.name)
            .await
            .map_err(failed("reading the MachineDeployment"))?;
        let uid = live.and_then(|live| live.metadata.uid);
        if uid.is_some_and(|uid| orphans::is_alive(owner, &uid)) {
            return Ok(Some(owner));
        }
    }
    Ok(None)
}

/// Records a deletion as [`orphan_budget::record`] says, from what the cache shows now: another config may have used the budget since
/// this one was gathered. Returns whether the deletion is allowed.
async fn record(context: &Context, gathered: &Gathered) -> Result<bool, ApplyError> {
    const WHAT: &str = "recording that an orphan is deleted";
    let installation = &context.installation;
    let budget = context.caches.orphan_budget(installation);
    let Some(record) = orphan_budget::record(&budget, gathered.now) else {
        return Ok(false);
    };
    // The resourceVersion, and the name of the first record, keep two replicas from using the same permission.
    let api = context.secrets();
    let written = match context.caches.orphan_record(installation) {
        Some(secret) => {
            let patch = json!({"metadata": {
                "resourceVersion": secret.meta.resource_version,
                "annotations": {names::COLLECTED: record},
            }});
            api.patch(&secret.meta.name, &PatchParams::default(), &Patch::Merge(&patch))
                .await
        }
        None => {
            let secret = objects::orphan_record(installation, record);
            let created = api.create(&PostParams::default(), &secret).await;
            if created.as_ref().is_err_and(already_exists) {
                // It lost its label. What it records counts once the watch shows it.
                let name = secret.metadata.name.clone().unwrap_or_default();
                let labels = json!({"metadata": {"labels": secret.metadata.labels}});
                let patched = api
                    .patch(&name, &PatchParams::default(), &Patch::Merge(&labels))
                    .await;
                context.caches.wrote_secret(&patched.map_err(failed(WHAT))?);
                return Err(osm_runtime::Error::Conflict { what: WHAT }.into());
            }
            created
        }
    };
    context.caches.wrote_secret(&written.map_err(failed(WHAT))?);
    Ok(true)
}
