//! secret-syncer: publishes OperatingSystemConfigs as the Secrets that machine-controller and booting nodes read.
//!
//! It owns `status.published` and the condition `Published` of OperatingSystemConfigs, and every Secret,
//! ServiceAccount, Role and RoleBinding that it makes in `cloud-init-settings`. It runs no template.
//!
//! A reconcile is `gather → plan → apply → report`, in three layers that only use the ones before:
//! [`model`] (what the others speak of) ← [`mod@plan`] (decisions, pure) ← [`io`] (everything with a client).

#![allow(missing_docs)] // This crate is not published; comments say why, and names say what.
#![deny(clippy::disallowed_types)]

pub mod io;
pub mod model;
pub mod plan;

use std::sync::Arc;
use std::time::Duration;

use osm_runtime::runner;
use osm_runtime::{Cluster, Process};

use crate::io::apply::{Applied, apply};
use crate::io::clients::Names;
use crate::io::error::Error;
use crate::io::gather::gather;
use crate::io::report::{report, report_legacy_tokens};
use crate::io::syncer::Syncer;
use crate::io::{hmac_key, join_right, watches};
use crate::model::key::Key;
use crate::plan::plan;

/// Runs the controller until shutdown. The program in `names` is [this one](io::program::digest_of_this), or stands for one.
///
/// # Errors
/// Metrics whose names are taken.
pub async fn run(process: Arc<Process>, cluster: Cluster, names: Names) -> anyhow::Result<()> {
    let installation = names.installation.clone();
    let syncer = Syncer::new(&process, &cluster, names)?;
    watches::start(&syncer);
    syncer.queue.add(Key::HmacKey);
    syncer.queue.add(Key::JoinRight);
    let (queue, shared) = (syncer.queue.clone(), syncer.clone());
    let work = move |key| reconcile(syncer.clone(), key);
    runner::work(&cluster, &installation, queue, shared, work).await;
    Ok(())
}

async fn reconcile(syncer: Syncer, key: Key) -> Result<Option<Duration>, Error> {
    match key {
        Key::HmacKey => hmac_key::reconcile(&syncer).await.map(|()| None),
        Key::LegacyTokens => {
            report_legacy_tokens(&syncer).await;
            Ok(None)
        }
        Key::JoinRight => Ok(join_right::reconcile(&syncer).await?),
        Key::Config(name) => {
            let outcome = sync(&syncer, &name).await;
            report(&syncer, &name, outcome).await
        }
    }
}

async fn sync(syncer: &Syncer, name: &str) -> Result<Applied, Error> {
    let Some(gathered) = gather(syncer, name).await? else {
        return Ok(Applied::nothing());
    };
    let (memory, plan) = plan(&gathered);
    syncer.memory.set(name, memory);
    Ok(apply(syncer, &gathered, plan?).await?)
}
