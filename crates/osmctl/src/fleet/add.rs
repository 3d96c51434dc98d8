//! `osmctl fleet add`: prepares a user cluster, and registers it in the seed.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use clap::Args;
use osm_api::names::{GROUP, WORKER_CLUSTER};
use osm_api::rbac::Installation;
use osm_api::worker_cluster::{Joining, WorkerCluster};
use osm_user_data::yaml;
use serde_json::{Map, Value, json};

use super::objects;
use crate::cluster::{self, Clusters, MANAGER, Seed};
use crate::input;
use crate::kubeconfigs::{Kubeconfigs, Tokens};
use crate::output;

/// Add a cluster to a fleet, or bring it up to date
///
/// In the user cluster, the command applies what the services need there. In the seed, it applies the
/// namespace, the Secrets with kubeconfigs and the WorkerCluster, last. Fields of an existing WorkerCluster that
/// no flag sets stay as they are.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # See what would be applied
  osmctl fleet add --context seed -n cluster-a --worker-context user-a --dry-run")]
pub struct Add {
    /// Settings in which the cluster differs from the release of the fleet
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// How machines join, approved or static [default: as before, or approved]
    #[arg(long, value_name = "MODE", value_parser = joining)]
    joining: Option<Joining>,
    /// Namespace in the user cluster [default: as before, or --namespace]
    #[arg(long, value_name = "NAME")]
    worker_namespace: Option<String>,
    /// URL of the API server as pods of the seed reach it [default: the one in your kubeconfig]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// The value poolSettingsNamespaces of the fleet, comma-separated
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "kube-system"
    )]
    pool_settings_namespaces: Vec<String>,
    /// Whether the fleet has the value removeUpstreamFinalizers
    #[arg(long)]
    remove_upstream_finalizers: bool,
    #[command(flatten)]
    tokens: Tokens,
    /// Print the objects, and write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    cluster: cluster::Flags,
}

fn joining(text: &str) -> Result<Joining, String> {
    serde_json::from_value(json!(text)).map_err(|_| "must be approved or static".to_owned())
}

impl Add {
    pub async fn run(self) -> Result<ExitCode> {
        let namespace = self.cluster.namespace();
        let seed = Seed::connect(&self.cluster).await?;
        let before = seed
            .reader
            .get::<WorkerCluster>(namespace, WORKER_CLUSTER)
            .await?;
        let mut spec = self.given()?;
        let place = self.worker_namespace(before.as_ref())?;
        let joining = self
            .joining
            .or_else(|| before.as_ref().map(|before| before.spec.joining));
        let joining = joining.unwrap_or_default();
        if let Some(before) = &before {
            keep(&mut spec, before)?;
        }
        let registration = json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "WorkerCluster",
            "metadata": {"name": WORKER_CLUSTER, "namespace": namespace}, "spec": spec,
        });
        let installation = Installation {
            namespace: place.clone(),
            pool_settings_namespaces: self.pool_settings_namespaces.clone(),
            go_finalizers: self.remove_upstream_finalizers,
            fleet: true,
            ..Installation::default()
        };
        let of_cluster = objects::of_cluster(&installation, &self.tokens.release, joining);
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        if self.dry_run {
            print("the user cluster", &of_cluster)?;
            print(
                "the seed, with the Secrets that have kubeconfigs",
                &[namespace, registration],
            )?;
            return Ok(ExitCode::SUCCESS);
        }
        let clusters = Clusters::connect(&self.cluster).await?;
        for object in of_cluster {
            clusters.worker.apply(MANAGER, &object).await?;
        }
        seed.reader.apply(MANAGER, &namespace).await?;
        let services = objects::services(joining);
        let flags = self.cluster.clone();
        let kubeconfigs = Kubeconfigs::of_cluster(&self.tokens, self.server, &place, services, flags);
        ensure!(
            !kubeconfigs.write_each(&clusters).await?,
            "the cluster is not added, because a kubeconfig is missing; repeat the command"
        );
        let after = seed.reader.apply(MANAGER, &registration).await?;
        output::print(&super::outcome(before.as_ref(), &after))?;
        Ok(ExitCode::SUCCESS)
    }

    /// The namespace in the user cluster, which never changes.
    fn worker_namespace(&self, before: Option<&WorkerCluster>) -> Result<String> {
        let own = self.cluster.namespace();
        let before = before.map(|before| before.spec.worker_namespace.as_deref().unwrap_or(own));
        match (before, self.worker_namespace.as_deref()) {
            (Some(before), Some(now)) if before != now => bail!(
                "the WorkerCluster has the namespace {before} in the user cluster, which can't be changed; leave out --worker-namespace"
            ),
            (before, now) => Ok(now.or(before).unwrap_or(own).to_owned()),
        }
    }

    /// The fields that flags set.
    fn given(&self) -> Result<Map<String, Value>> {
        let mut spec = Map::new();
        if let Some(path) = &self.settings {
            let settings = input::settings_document(Some(path))?.document;
            spec.insert("settings".to_owned(), settings);
        }
        if let Some(joining) = self.joining {
            spec.insert("joining".to_owned(), json!(joining));
        }
        // It can't be added later, so a new one has it only if it is another one.
        let differs = |name: &&String| *name != self.cluster.namespace();
        if let Some(name) = self.worker_namespace.as_ref().filter(differs) {
            spec.insert("workerNamespace".to_owned(), json!(name));
        }
        Ok(spec)
    }
}

/// Adds the fields that an earlier command has applied. A server-side apply without them would remove them.
fn keep(spec: &mut Map<String, Value>, before: &WorkerCluster) -> Result<()> {
    let values = serde_json::to_value(&before.spec)?;
    let managed = before.metadata.managed_fields.iter().flatten();
    let own = managed.filter(|fields| fields.manager.as_deref() == Some(MANAGER));
    let fields = own.filter_map(|own| own.fields_v1.as_ref()?.0.get("f:spec")?.as_object());
    for field in fields
        .flat_map(Map::keys)
        .filter_map(|field| field.strip_prefix("f:"))
    {
        if let (false, Some(value)) = (spec.contains_key(field), values.get(field)) {
            spec.insert(field.to_owned(), value.clone());
        }
    }
    Ok(())
}

/// Prints objects as one stream of YAML documents.
fn print(place: &str, objects: &[Value]) -> Result<()> {
    output::document(&format!("# In {place}\n"))?;
    for object in objects {
        output::document(&format!(
            "---\n{}",
            yaml::write(object).map_err(anyhow::Error::msg)?
        ))?;
    }
    Ok(())
}
