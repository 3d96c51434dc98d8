//! `osmctl kubeconfigs --all`: renews the kubeconfigs of all WorkerClusters, each with the Secret
//! `worker-renewal` in its namespace. A cluster that fails holds up no other one.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use kube::ResourceExt;
use osm_api::names;
use osm_api::rbac::RENEWAL;
use osm_api::worker_cluster::WorkerCluster;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::Kubeconfigs;
use crate::cluster::{AT_ONCE, Failure, Seed};
use crate::output;

/// Renews all; fails if the kubeconfigs of one cluster are not renewed.
pub async fn renew(command: &Kubeconfigs) -> Result<ExitCode> {
    let seed = Arc::new(Seed::connect(&command.cluster).await?);
    let (clusters, unreadable) = seed.worker_clusters(command.cluster_selector.as_deref()).await?;
    for problem in &unreadable {
        output::note(&format!("osmctl: {problem}"));
    }
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let (spread, count) = (command.spread.unwrap_or_default(), clusters.len());
    let mut tasks = JoinSet::new();
    for (index, cluster) in clusters.into_iter().enumerate() {
        let (seed, permits, command) = (seed.clone(), permits.clone(), command.of(&cluster));
        tasks.spawn(async move {
            tokio::time::sleep(moment(spread, index, count)).await;
            let _permit = permits.acquire().await;
            command.renew_one(&seed).await
        });
    }
    let mut has_failed = !unreadable.is_empty();
    while let Some(one) = tasks.join_next().await {
        has_failed |= one?.unwrap_or_else(|problem| {
            output::note(&format!("osmctl: {problem:#}"));
            true
        });
    }
    Ok(super::code(has_failed))
}

/// When the turn of a cluster comes. Each restarts what serves it, so that they come one after the other.
fn moment(spread: Duration, index: usize, count: usize) -> Duration {
    let [index, count] = [index, count].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    spread / count.max(1) * index
}

impl Kubeconfigs {
    /// The same command, for one cluster.
    fn of(&self, cluster: &WorkerCluster) -> Self {
        let namespace = cluster.namespace().unwrap_or_default();
        let worker_namespace = cluster.spec.worker_namespace.clone();
        Self {
            cluster: self.cluster.within(&namespace),
            worker_namespace: worker_namespace.or(Some(namespace)),
            renewal: true,
            is_one_of_many: true,
            ..self.clone()
        }
    }

    /// Returns whether something has failed.
    async fn renew_one(&self, seed: &Seed) -> Result<bool> {
        let (namespace, secret) = (self.cluster.namespace(), names::worker_kubeconfig(RENEWAL));
        let command = format!("osmctl kubeconfigs -n {namespace} --worker-context CONTEXT --renewal");
        match seed.clusters_of(namespace, &secret).await {
            Ok(Some(clusters)) => self.write_each(&clusters).await,
            Ok(None) => {
                output::print(&format!(
                    "Cluster {namespace} is skipped, because it has no Secret {secret}; write it with `{command}`\n"
                ))?;
                Ok(false)
            }
            Err(problem) => {
                let advice = if problem.is::<Failure>() {
                    String::new()
                } else {
                    format!("; write it with `{command}`")
                };
                output::note(&format!("osmctl: {namespace}: {problem:#}{advice}"));
                Ok(true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_come_one_after_the_other() {
        let hour = Duration::from_secs(3600);
        let minutes = |index| moment(hour, index, 4).as_secs() / 60;
        assert_eq!([0, 1, 3].map(minutes), [0, 15, 45]);
        assert_eq!(moment(Duration::ZERO, 7, 8), Duration::ZERO);
    }
}
