//! `osmctl fleet sync-kkp`: registers the user clusters of a KKP seed that have a label, and follows the flags
//! of their upstream OSM, which KKP maintains although it has no replicas.
//!
//! The only thing it ever deletes is a WorkerCluster that it has created, after a read by name has shown that
//! its Cluster is gone. So an empty list, a label that is lost or a request that fails removes nothing.

use std::collections::BTreeSet;
use std::pin::pin;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;
use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use osm_api::names::{GROUP, WORKER_CLUSTER};
use osm_api::rbac::Installation;
use osm_api::worker_cluster::{Joining, WorkerCluster};
use serde_json::json;

use super::{kkp, objects};
use crate::cluster::{self, AT_ONCE, Failure, List, MANAGER, Seed};
use crate::kubeconfigs::{Kubeconfigs, Tokens};
use crate::{migrate, output};

/// Field manager of the WorkerClusters. What people apply to them stays.
const FOLLOWER: &str = "osmctl-sync-kkp";

/// Register the user clusters of a KKP seed, and follow their flags
///
/// The command registers each Cluster with the label operatingsystemmanager.k8c.io/fleet=true whose upstream OSM
/// has no replicas, and updates the settings of its WorkerCluster when KKP changes the flags. It changes no
/// Cluster. If a Cluster can't be served, the command prints why and continues with the others. A WorkerCluster
/// that it created is deleted only after its Cluster is gone.
#[derive(Args)]
#[command(after_help = "\
Example:
  osmctl fleet sync-kkp --context seed --dry-run")]
pub struct SyncKkp {
    #[command(flatten)]
    tokens: Tokens,
    /// The value poolSettingsNamespaces of the fleet, comma-separated
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "kube-system"
    )]
    pool_settings_namespaces: Vec<String>,
    /// Print what would be done, and write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    cluster: cluster::Flags,
}

/// What is to be done about a Cluster.
enum Task {
    Follow(kkp::Cluster),
    End(WorkerCluster),
}

impl SyncKkp {
    pub async fn run(self) -> Result<ExitCode> {
        let seed = Seed::connect(&self.cluster).await?;
        let (kind, label) = (kkp::kind(), format!("{}=true", kkp::LABEL));
        let listed = seed
            .reader
            .list::<kkp::Cluster>(&List::everywhere(&kind).labels(&label))
            .await?;
        let (registered, unreadable) = seed.worker_clusters(Some(kkp::CLUSTER)).await?;
        if listed.objects.is_empty() {
            output::print(&format!("No Cluster has the label {label}\n"))?;
        }
        let names: BTreeSet<String> = listed
            .objects
            .iter()
            .filter_map(|one| one.metadata.name.clone())
            .collect();
        let follow = listed.objects.into_iter().map(|cluster| {
            let name = cluster.metadata.name.clone().unwrap_or_default();
            (name, Task::Follow(cluster))
        });
        let unlisted = registered.into_iter().filter_map(|registration| {
            let name = registration.labels().get(kkp::CLUSTER)?.clone();
            (!names.contains(&name)).then_some((name, Task::End(registration)))
        });
        let tasks = follow.chain(unlisted).map(async |(name, task)| {
            let result = match task {
                Task::Follow(cluster) => self.follow(&seed, &name, &cluster).await,
                Task::End(registration) => self.end(&seed, &name, &registration).await,
            };
            (result, name)
        });
        let mut tasks = pin!(stream::iter(tasks).buffer_unordered(AT_ONCE));
        let problems = [listed.problems, unreadable].concat();
        let mut has_failed = !problems.is_empty();
        problems
            .iter()
            .for_each(|problem| output::note(&format!("osmctl: {problem}")));
        while let Some((result, name)) = tasks.next().await {
            match result {
                Ok(line) => output::print(&line)?,
                Err(error) => {
                    has_failed = true;
                    let error = match error.downcast_ref::<Failure>() {
                        Some(failure) => failure.without_flags("see whether KKP renews the Secret"),
                        None => format!("{error:#}"),
                    };
                    output::note(&format!("osmctl: Cluster {name}: {error}"));
                }
            }
        }
        Ok(if has_failed {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }

    /// Brings one Cluster up to date. Returns the line to print.
    async fn follow(&self, seed: &Seed, name: &str, cluster: &kkp::Cluster) -> Result<String> {
        let skipped = |why: &str| Ok(format!("Cluster {name} is skipped: {why}\n"));
        if let Some(why) = cluster.obstacle() {
            return skipped(&why);
        }
        let namespace = &cluster.status.namespace_name;
        let before = seed
            .reader
            .get::<WorkerCluster>(namespace, WORKER_CLUSTER)
            .await?;
        let is_own = |before: &WorkerCluster| before.labels().get(kkp::CLUSTER).is_some_and(|of| of == name);
        if before.as_ref().is_some_and(|before| !is_own(before)) {
            return skipped(&format!(
                "someone else created WorkerCluster {namespace}/{WORKER_CLUSTER}"
            ));
        }
        let Some(upstream) = seed.reader.get::<Deployment>(namespace, kkp::DEPLOYMENT).await? else {
            return skipped(&format!(
                "Deployment {namespace}/{}, whose flags it would follow, does not exist",
                kkp::DEPLOYMENT
            ));
        };
        if let Some(why) = kkp::running(&upstream) {
            return skipped(&why);
        }
        let Some(clusters) = seed.clusters_of(namespace, kkp::ADMIN_SECRET).await? else {
            return skipped(&format!(
                "Secret {namespace}/{} does not exist",
                kkp::ADMIN_SECRET
            ));
        };
        let mut settings = match migrate::settings_of(&clusters.worker, &upstream).await? {
            Ok(settings) => settings,
            Err(decisions) => {
                return skipped(&format!(
                    "{}. Add the cluster with `osmctl fleet add --settings` instead",
                    decisions.join("; ")
                ));
            }
        };
        // It comes from KKP's configuration, and so is the same for all clusters: the release of the fleet has it.
        settings.remove("defaultProfiles");
        if self.dry_run {
            let done = if before.is_none() { "created" } else { "updated" };
            return Ok(format!(
                "WorkerCluster {namespace}/{WORKER_CLUSTER} would be {done}\n"
            ));
        }
        let installation = Installation {
            namespace: namespace.clone(),
            pool_settings_namespaces: self.pool_settings_namespaces.clone(),
            // The MachineDeployments have the finalizer of the upstream OSM.
            go_finalizers: true,
            fleet: true,
            ..Installation::default()
        };
        let joining = before
            .as_ref()
            .map_or(Joining::Approved, |before| before.spec.joining);
        for object in objects::of_cluster(&installation, &self.tokens.release, joining) {
            clusters.worker.apply(MANAGER, &object).await?;
        }
        // Each kubeconfig that is written interrupts a service, and the renewal replaces those that exist.
        if before.is_none() {
            let services = objects::services(joining);
            let flags = self.cluster.within(namespace);
            let kubeconfigs = Kubeconfigs::of_cluster(&self.tokens, None, namespace, services, flags);
            ensure!(
                !kubeconfigs.write_each(&clusters).await?,
                "it is not registered, because a kubeconfig is missing"
            );
        }
        let registration = json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "WorkerCluster",
            "metadata": {"name": WORKER_CLUSTER, "namespace": namespace, "labels": {kkp::CLUSTER: name}},
            "spec": {"settings": settings},
        });
        let after = seed.reader.apply(FOLLOWER, &registration).await?;
        Ok(super::outcome(before.as_ref(), &after))
    }

    /// Deletes the WorkerCluster of a Cluster that is not in the list, if it is gone. Returns the line to print.
    async fn end(&self, seed: &Seed, name: &str, registration: &WorkerCluster) -> Result<String> {
        let namespace = registration.namespace().unwrap_or_default();
        let registered = format!("WorkerCluster {namespace}/{WORKER_CLUSTER}");
        if !seed.reader.is_gone(&kkp::kind(), name).await? {
            return Ok(format!(
                "{registered} stays, because Cluster {name} exists without the label {}=true; delete it to end the service\n",
                kkp::LABEL
            ));
        }
        if self.dry_run {
            return Ok(format!("{registered} would be deleted\n"));
        }
        seed.reader.delete(registration).await?;
        Ok(format!("{registered} deleted, because Cluster {name} is gone\n"))
    }
}
