//! Requests tokens of ServiceAccounts in one cluster, and writes Secrets with kubeconfigs in another one.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use osm_api::names::KUBECONFIG_KEY;
use osm_api::worker_cluster::WorkerCluster;
use serde_json::json;

use super::Flags;
use super::connect::{self, Connection};
use super::list::{List, Reader};

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
    /// Where the services run.
    services: Client,
    read: Reader,
    write: Reader,
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
            read: Reader::new(&to, flags.request_timeout),
            write: Reader::new(services, flags.request_timeout),
            services: services.client.clone(),
            to,
        }
    }

    /// Requests a token of a ServiceAccount.
    ///
    /// # Errors
    /// A request that failed.
    pub async fn token(&self, namespace: &str, account: &str, lifetime: Duration) -> Result<Token> {
        let api = Api::<ServiceAccount>::namespaced(self.to.client.clone(), namespace);
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
            .read
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
        let secret: Secret = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace},
        }))?;
        let secret = Secret {
            data: Some(
                [(
                    "kubeconfig".to_owned(),
                    k8s_openapi::ByteString(kubeconfig.into()),
                )]
                .into(),
            ),
            ..secret
        };
        let api = Api::<Secret>::namespaced(self.services.clone(), namespace);
        let (params, patch) = (PatchParams::apply("osmctl").force(), Patch::Apply(&secret));
        let what = format!("secrets {name} in namespace {namespace}");
        let written = self
            .write
            .request("patch", &what, api.patch(name, &params, &patch))
            .await;
        match written {
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
        let api = Api::<Secret>::namespaced(self.services.clone(), namespace);
        let params = PatchParams {
            dry_run: kubeconfig.is_none(),
            field_manager: Some("osmctl".to_owned()),
            ..PatchParams::default()
        };
        let change = kubeconfig.map(|text| json!({KUBECONFIG_KEY: k8s_openapi::ByteString(text.into())}));
        let patch = Patch::Merge(json!({"data": change.unwrap_or_else(|| json!({}))}));
        let what = format!("secrets {name} in namespace {namespace}");
        // The answer has no content.
        let replaced = api.patch_metadata(name, &params, &patch);
        match self.write.request("patch", &what, replaced).await {
            Err(failure) if failure.is_not_found() => Ok(false),
            replaced => Ok(replaced.map(|_| true)?),
        }
    }
}

/// The cluster of the services of a fleet.
pub struct Seed {
    connection: Connection,
    reader: Reader,
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
