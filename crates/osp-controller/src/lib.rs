//! osp-controller installs the default OperatingSystemProfiles, and validates every profile before a pool
//! uses it.
//!
//! It owns the whole status of every OperatingSystemProfile, the spec of the default profiles, and the copies
//! of custom profiles. It has no rights on Secrets. While the upstream OSM runs in the same namespace, it
//! writes no default profile, but validates those of the upstream OSM.
//!
//! A reconcile is `gather → plan → apply → report`. [`gather`] has [`validate`] check the stored profile,
//! [`plan`] makes all decisions, [`apply`] writes default profiles and copies, and [`report`] alone writes
//! status, Events, metrics and logs.

pub mod admission;
pub mod apply;
pub mod bases;
pub mod context;
pub mod custom_profile;
pub mod default_profile;
pub mod gather;
pub mod plan;
pub mod report;
pub mod stored_profile;
pub mod validate;

use std::time::Duration;

use osm_runtime::runner;
use osm_runtime::{AdmissionArgs, Cluster, Error, upstream_osm};

use crate::admission::ProfileJudge;
use crate::context::Context;

/// Runs the controller, and the webhook if the flags ask for it, until shutdown.
///
/// # Errors
/// The address of the webhook is not available.
pub async fn run(cluster: Cluster, admission: AdmissionArgs) -> anyhow::Result<()> {
    let context = Context::new(&cluster);
    context.watch();
    let judge = || ProfileJudge::new(&context);
    let webhook = osm_runtime::admission::spawn(&admission, judge, "the profile", &cluster.process)?;
    let queue = context.queue.clone();
    let keys = context.clone();
    // It is ready without default profiles, because it validates those that are there.
    upstream_osm::watch(&cluster, &queue, keys.clone(), || true).await;
    let work = move |key| reconcile(context.clone(), key);
    runner::work((&cluster, &cluster.replicas), queue, keys, work).await;
    if let Some(webhook) = webhook {
        webhook.ended().await;
    }
    Ok(())
}

/// Installs, copies or validates the profile with this key, `namespace/name`.
async fn reconcile(context: Context, key: String) -> Result<Option<Duration>, Error> {
    let gathered = gather::gather(&context, &key).await;
    let plan = plan::plan(&gathered);
    let refused = apply::apply(&context, &gathered, &plan).await?;
    report::report(&context, &gathered, &plan, refused.as_ref()).await?;
    Ok(plan.requeue_after)
}
