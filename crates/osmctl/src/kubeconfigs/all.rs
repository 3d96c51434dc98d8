//! `osmctl kubeconfigs --all`: renews the kubeconfigs of all WorkerClusters, each with the Secret
//! `worker-renewal` in its namespace. A cluster that fails holds up no other one.

use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use futures::{StreamExt, stream};
use kube::ResourceExt;
use osm_api::names;
use osm_api::rbac::RENEWAL;
use osm_api::worker_cluster::WorkerCluster;
use tokio::time::Instant;

use super::Kubeconfigs;
use crate::cluster::{AT_ONCE, Failure, Seed};
use crate::output;

/// Renews all; fails if the kubeconfigs of one cluster are not renewed.
pub async fn renew(command: &Kubeconfigs) -> Result<ExitCode> {
    let seed = Seed::connect(&command.cluster).await?;
    let (clusters, unreadable) = seed.worker_clusters(command.cluster_selector.as_deref()).await?;
    for problem in &unreadable {
        output::note(&format!("osmctl: {problem}"));
    }
    let (start, spread, count) = (Instant::now(), command.spread.unwrap_or_default(), clusters.len());
    let renewals = clusters.iter().enumerate().map(async |(index, cluster)| {
        tokio::time::sleep_until(start + moment(spread, index, count)).await;
        command.of(cluster).renew_one(&seed).await
    });
    let mut renewals = pin!(stream::iter(renewals).buffer_unordered(AT_ONCE));
    let mut has_failed = !unreadable.is_empty();
    while let Some(one) = renewals.next().await {
        has_failed |= one.unwrap_or_else(|problem| {
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
