//! Everything that osmctl writes: tokens of ServiceAccounts in one cluster, Secrets with kubeconfigs in another
//! one, and the objects of a fleet's clusters.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::core::ApiResource;
use kube::{Api, ResourceExt};
use osm_api::names::{self, KUBECONFIG_KEY};
use osm_api::rbac::Service;
use osm_api::worker_cluster::WorkerCluster;
use serde_json::{Value, json};

use super::connect::{self, Connection};
use super::failure::Failure;
use super::list::{List, Reader};
use super::{Flags, Needs, Readers, Target};
use crate::snapshot::Snapshot;

/// Field manager of what people apply with osmctl.
pub const MANAGER: &str = "osmctl";

/// A token of a ServiceAccount. It has no `Debug`, so that it gets into no message.
pub struct Token {
    pub secret: String,
    /// When it expires.
    pub expiry: String,
}

/// The two clusters that kubeconfigs connect.
pub struct Clusters {
    /// What the kubeconfigs lead to.
    pub to: Connection,
    pub worker: Reader,
    /// Where the services run.
    services: Reader,
}

impl Clusters {
    /// The clusters that the flags select.
    ///
    /// # Errors
    /// Flags that select one cluster; a kubeconfig that is missing or invalid.
    pub async fn connect(flags: &Flags) -> Result<Self> {
        let management = connect::management(flags).await?;
        let Some(to) = connect::worker(flags).await? else {
            bail!(
                "set --worker-context or --worker-kubeconfig; with one cluster, the services need no kubeconfigs"
            );
        };
        Ok(Self::new(&management, to, flags))
    }

    fn new(services: &Connection, to: Connection, flags: &Flags) -> Self {
        Self {
            worker: Reader::new(&to, flags.request_timeout),
            services: Reader::new(services, flags.request_timeout),
            to,
        }
    }

    /// Requests a token of a ServiceAccount.
    ///
    /// # Errors
    /// A request that failed.
    pub async fn token(&self, namespace: &str, account: &str, lifetime: Duration) -> Result<Token> {
        let api: Api<ServiceAccount> = self.worker.namespaced(namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: i64::try_from(lifetime.as_secs()).ok(),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let params = PostParams::default();
        let request = api.create_token_request(account, &params, &request);
        let what = format!("a token of ServiceAccount {account} in namespace {namespace}");
        let status = self
            .worker
            .request("create", &what, request)
            .await
            .map_err(|failure| {
                if failure.is_not_found() {
                    anyhow::anyhow!(
                        "ServiceAccount {account} does not exist in namespace {namespace}; \
                     install the release there first, or check --worker-namespace and --release"
                    )
                } else {
                    failure.into()
                }
            })?;
        let status = status.status.context("the API server returned no token")?;
        Ok(Token {
            secret: status.token,
            expiry: status.expiration_timestamp.0.to_string(),
        })
    }

    /// Stores a kubeconfig in a Secret, which is created if it does not exist.
    ///
    /// # Errors
    /// A request that failed.
    pub async fn store(&self, namespace: &str, name: &str, kubeconfig: &str) -> Result<()> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace},
            "data": {KUBECONFIG_KEY: k8s_openapi::ByteString(kubeconfig.into())},
        });
        match self.services.apply(MANAGER, &secret).await {
            Err(failure) if failure.is_not_found() => {
                bail!("namespace {namespace} does not exist; create it first")
            }
            written => Ok(written.map(drop)?),
        }
    }

    /// Replaces the kubeconfig in a Secret, which is not created; returns whether it exists. `None` only asks
    /// for that, by a change of nothing, because these Secrets may be patched and not read.
    ///
    /// # Errors
    /// A request that failed.
    pub async fn replace(&self, namespace: &str, name: &str, kubeconfig: Option<&str>) -> Result<bool> {
        let api: Api<Secret> = self.services.namespaced(namespace);
        let params = PatchParams {
            dry_run: kubeconfig.is_none(),
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let change = kubeconfig.map(|text| json!({KUBECONFIG_KEY: k8s_openapi::ByteString(text.into())}));
        let patch = Patch::Merge(json!({"data": change.unwrap_or_else(|| json!({}))}));
        let what = format!("secrets {name} in namespace {namespace}");
        // The answer has no content.
        let replaced = api.patch_metadata(name, &params, &patch);
        match self.services.request("patch", &what, replaced).await {
            Err(failure) if failure.is_not_found() => Ok(false),
            replaced => Ok(replaced.map(|_| true)?),
        }
    }
}

impl Reader {
    /// Creates an object, or changes the fields that `object` has. Fields that `manager` has applied before, and
    /// `object` lacks, go; those of others stay.
    ///
    /// # Errors
    /// A request that failed.
    pub async fn apply(&self, manager: &str, object: &Value) -> Result<DynamicObject, Failure> {
        let (api, kind, name) = self.place_of(object);
        let (params, patch) = (PatchParams::apply(manager).force(), Patch::Apply(object));
        let what = format!("{} {name}", kind.plural);
        self.request("patch", &what, api.patch(&name, &params, &patch))
            .await
    }

    /// Deletes a WorkerCluster, unless it is another one than that of this uid.
    ///
    /// # Errors
    /// A request that failed.
    pub async fn delete(&self, cluster: &WorkerCluster) -> Result<(), Failure> {
        let api: Api<WorkerCluster> = self.namespaced(&cluster.namespace().unwrap_or_default());
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: cluster.uid(),
            resource_version: None,
        });
        let deletion = api.delete(names::WORKER_CLUSTER, &params);
        self.request("delete", "workerclusters.operatingsystemmanager.k8c.io", deletion)
            .await
            .map(drop)
    }
}

/// The cluster of the services of a fleet.
pub struct Seed {
    pub reader: Reader,
    connection: Connection,
    flags: Flags,
}

impl Seed {
    /// # Errors
    /// A kubeconfig that is missing or invalid.
    pub async fn connect(flags: &Flags) -> Result<Self> {
        let connection = connect::management(flags).await?;
        Ok(Self {
            reader: Reader::new(&connection, flags.request_timeout),
            connection,
            flags: flags.clone(),
        })
    }

    /// All WorkerClusters with these labels, and what is wrong with those that can't be decoded.
    ///
    /// # Errors
    /// A request that failed.
    pub async fn worker_clusters(&self, labels: Option<&str>) -> Result<(Vec<WorkerCluster>, Vec<String>)> {
        let kind = ApiResource::erase::<WorkerCluster>(&());
        let mut list = List::everywhere(&kind);
        if let Some(labels) = labels {
            list = list.labels(labels);
        }
        let listed = self.reader.list(&list).await?;
        Ok((listed.objects, listed.problems))
    }

    /// The releases that serve each WorkerCluster: their namespaces, by the namespace of the WorkerCluster.
    ///
    /// # Errors
    /// A request that failed.
    pub async fn served_by(&self) -> Result<BTreeMap<String, Vec<String>>, Failure> {
        let (mut served, kind) = (BTreeMap::new(), ApiResource::erase::<WorkerCluster>(&()));
        for (release, selector) in super::fleets(&self.reader).await? {
            let clusters = List::everywhere(&kind).labels(&selector);
            for cluster in self.reader.list::<WorkerCluster>(&clusters).await?.objects {
                let releases: &mut Vec<String> =
                    served.entry(cluster.namespace().unwrap_or_default()).or_default();
                releases.push(release.clone());
            }
        }
        Ok(served)
    }

    /// Reads the cluster of a WorkerCluster, whose namespace the flags have, with the kubeconfig of osc-controller.
    ///
    /// # Errors
    /// As [`Readers::read`]; a kubeconfig that is missing or invalid.
    pub async fn read(&self, flags: &Flags, needs: Needs) -> Result<Snapshot> {
        let secret = names::worker_kubeconfig(Service::OscController.name());
        let clusters = self.clusters_of(flags.namespace(), &secret).await?;
        let clusters = clusters.with_context(|| format!("there is no Secret {secret}"))?;
        let readers = Readers {
            management: self.reader.clone(),
            ca: clusters.to.ca.clone(),
            worker: clusters.worker,
            target: Target::new(&self.connection, flags),
        };
        readers.read(flags, needs).await
    }

    /// The cluster that the kubeconfig in a Secret leads to; `None`: there is no such Secret.
    ///
    /// # Errors
    /// A request that failed; a kubeconfig that is not valid.
    pub async fn clusters_of(&self, namespace: &str, secret: &str) -> Result<Option<Clusters>> {
        let Some(found) = self.reader.get::<Secret>(namespace, secret).await? else {
            return Ok(None);
        };
        let text = found.data.and_then(|mut data| data.remove(KUBECONFIG_KEY));
        let text = text.and_then(|text| String::from_utf8(text.0).ok());
        let text =
            text.with_context(|| format!("Secret {secret} has no kubeconfig in its key {KUBECONFIG_KEY}"))?;
        let to = connect::foreign(&text, &self.flags).await;
        let to = to.with_context(|| format!("the kubeconfig in Secret {secret}"))?;
        Ok(Some(Clusters::new(&self.connection, to, &self.flags)))
    }
}
