//! `osmctl kubeconfigs`: writes the kubeconfigs with which the services of a fleet work in a user cluster, or
//! renews those of all. `fleet` writes them for the clusters that it adds.
//!
//! Tokens exist only in the answers of an API server and in the Secrets: not in the process list, in files or
//! in messages.

mod all;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use clap::builder::PossibleValuesParser;
use osm_api::names;
use osm_api::rbac::{ClusterKind, RENEWAL, Service};
use serde_json::{Value, json};

use crate::cluster::{self, Clusters, Failure};
use crate::output;

/// Shortest lifetime of a token that an API server grants: it refuses requests for less than ten minutes.
const SHORTEST: Duration = Duration::from_secs(600);

/// Create and renew the kubeconfigs with which the services of a fleet use a cluster
///
/// For each service, the command requests a token of its ServiceAccount in the user cluster, and writes a
/// kubeconfig with it to a Secret of the seed: worker-osc-controller, worker-secret-syncer and
/// worker-csr-approver. Run the command again before the tokens expire. A service connects again with a new
/// kubeconfig.
///
/// With --all, it renews those of all WorkerClusters, with the Secret worker-renewal of each. It creates no
/// Secret: one that was deleted stays deleted.
#[derive(Args, Clone, Default)]
#[command(after_help = "\
Examples:
  # See what would be written
  osmctl kubeconfigs --context seed -n cluster-a --worker-context user-a --worker-namespace osm --dry-run

  # Write the kubeconfigs, or renew them
  osmctl kubeconfigs --context seed -n cluster-a --worker-context user-a --worker-namespace osm

  # Renew those of all WorkerClusters
  osmctl kubeconfigs --all")]
pub struct Kubeconfigs {
    #[command(flatten)]
    tokens: Tokens,
    /// Namespace of the release in the user cluster [default: --namespace]
    #[arg(long, value_name = "NAME")]
    worker_namespace: Option<String>,
    /// URL of the API server as pods reach it [default: the one in your kubeconfig]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Services, comma-separated [default: all that connect to user clusters]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = PossibleValuesParser::new(Service::ALL.map(Service::name)))]
    services: Vec<String>,
    /// Also write worker-renewal, with which the CronJob of the chart renews the others
    #[arg(long)]
    renewal: bool,
    /// Renew the kubeconfigs of all WorkerClusters
    #[arg(long, conflicts_with_all = ["worker_namespace", "server", "renewal", "worker_kubeconfig", "worker_context"])]
    all: bool,
    /// Only WorkerClusters with these labels, as a label selector such as ring=canary
    #[arg(long, value_name = "SELECTOR", requires = "all")]
    cluster_selector: Option<String>,
    /// Spread the WorkerClusters over this time, such as 1h
    #[arg(long, value_name = "DURATION", requires = "all", value_parser = cluster::timeout)]
    spread: Option<Duration>,
    /// Print what would be written, and request no token
    #[arg(long)]
    dry_run: bool,
    /// Whether messages have to name the cluster, which no flag has selected.
    #[arg(skip)]
    is_one_of_many: bool,
    #[command(flatten)]
    cluster: cluster::Flags,
}

/// The tokens of kubeconfigs.
#[derive(Args, Clone, Default)]
pub struct Tokens {
    /// Lifetime to request, such as 720h. The API server may grant less
    #[arg(long, value_name = "DURATION", default_value = "720h", value_parser = lifetime)]
    duration: Duration,
    /// Name of the release with which the names of the ServiceAccounts begin
    #[arg(long, value_name = "NAME", default_value = "osm")]
    pub release: String,
}

fn lifetime(text: &str) -> Result<Duration, String> {
    let lifetime = cluster::timeout(text)?;
    if lifetime < SHORTEST {
        return Err("is less than ten minutes, the shortest lifetime that an API server grants".to_owned());
    }
    Ok(lifetime)
}

impl Kubeconfigs {
    /// Those of one cluster of a fleet, with the one for the renewal.
    pub fn of_cluster(
        tokens: &Tokens,
        server: Option<String>,
        worker_namespace: &str,
        services: &[Service],
        cluster: cluster::Flags,
    ) -> Self {
        Self {
            tokens: tokens.clone(),
            server,
            worker_namespace: Some(worker_namespace.to_owned()),
            services: services.iter().map(|service| service.name().to_owned()).collect(),
            renewal: true,
            is_one_of_many: !cluster.has_worker_cluster(),
            cluster,
            ..Self::default()
        }
    }

    pub fn run(&self) -> Result<ExitCode> {
        cluster::run(async {
            if self.all {
                return all::renew(self).await;
            }
            let clusters = Clusters::connect(&self.cluster).await?;
            Ok(code(self.write_each(&clusters).await?))
        })
    }

    /// Writes the kubeconfigs of one cluster. Returns whether one has failed.
    pub async fn write_each(&self, clusters: &Clusters) -> Result<bool> {
        let to = self.target(clusters)?;
        let mut has_failed = false;
        for of in self.names() {
            match self.write(clusters, &to, of).await {
                Ok(line) => output::print(&line)?,
                // The other kubeconfigs must not expire because of this one.
                Err(error) => {
                    let failure = error.downcast_ref::<Failure>();
                    let is_away = failure.is_some_and(Failure::concerns_every_request);
                    output::note(&match (failure, self.is_one_of_many) {
                        (Some(failure), true) => {
                            format!(
                                "osmctl: {}: {}",
                                self.cluster.namespace(),
                                failure.without_flags(
                                    "write a new kubeconfig with `osmctl kubeconfigs --renewal`"
                                )
                            )
                        }
                        (None, true) => format!("osmctl: {}: {error:#}", self.cluster.namespace()),
                        (_, false) => format!("osmctl: {error:#}"),
                    });
                    has_failed = true;
                    if is_away {
                        break;
                    }
                }
            }
        }
        Ok(has_failed)
    }

    /// The cluster that the kubeconfigs lead to, as an entry of a kubeconfig.
    fn target(&self, clusters: &Clusters) -> Result<Value> {
        let to = &clusters.to;
        // The images of the services contain no root certificates.
        let ca = to.ca.as_ref().context(
            "your kubeconfig has no CA for the API server, and the services need it; add certificate-authority-data to its cluster",
        )?;
        Ok(cluster_entry(
            self.server.as_deref().unwrap_or(&to.server),
            ca,
            to.proxy.as_deref(),
            to.tls_server_name.as_deref(),
        ))
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let connects = |service: &Service| service.clusters().contains(&ClusterKind::Worker);
        let services: Vec<&str> = match &*self.services {
            [] => Service::ALL
                .into_iter()
                .filter(connects)
                .map(Service::name)
                .collect(),
            services => services.iter().map(String::as_str).collect(),
        };
        // Last: the CronJob needs its own token until the others are renewed.
        services.into_iter().chain(self.renewal.then_some(RENEWAL))
    }

    /// Writes one kubeconfig; returns the line to print.
    async fn write(&self, clusters: &Clusters, to: &Value, of: &str) -> Result<String> {
        let namespace = self
            .worker_namespace
            .as_deref()
            .unwrap_or(self.cluster.namespace());
        let account = format!("{}-{of}", self.tokens.release);
        let (secret_namespace, secret) = (self.cluster.namespace(), names::worker_kubeconfig(of));
        if self.all && !clusters.replace(secret_namespace, &secret, None).await? {
            return Ok(format!(
                "Secret {secret_namespace}/{secret} does not exist, and is not created\n"
            ));
        }
        if self.dry_run {
            let server = to.get("server").and_then(Value::as_str).unwrap_or_default();
            return Ok(format!(
                "Secret {secret_namespace}/{secret} would get a kubeconfig of ServiceAccount {namespace}/{account} at {server}\n"
            ));
        }
        let token = clusters.token(namespace, &account, self.tokens.duration).await?;
        let text = kubeconfig(to, of, &token.secret);
        if self.all {
            clusters.replace(secret_namespace, &secret, Some(&text)).await?;
        } else {
            clusters.store(secret_namespace, &secret, &text).await?;
        }
        Ok(format!(
            "Secret {secret_namespace}/{secret} has a kubeconfig of ServiceAccount {namespace}/{account}, which expires at {}\n",
            token.expiry
        ))
    }
}

fn code(has_failed: bool) -> ExitCode {
    if has_failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn cluster_entry(server: &str, ca: &str, proxy: Option<&str>, tls_server_name: Option<&str>) -> Value {
    let ca = k8s_openapi::ByteString(ca.into());
    let mut cluster = json!({"server": server, "certificate-authority-data": ca});
    for (field, value) in [("proxy-url", proxy), ("tls-server-name", tls_server_name)] {
        if let (Some(value), Some(cluster)) = (value, cluster.as_object_mut()) {
            cluster.insert(field.to_owned(), value.into());
        }
    }
    cluster
}

/// JSON, which is YAML as well.
fn kubeconfig(cluster: &Value, user: &str, token: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "worker",
        "contexts": [{"name": "worker", "context": {"cluster": "worker", "user": user}}],
        "clusters": [{"name": "worker", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig;

    use super::*;

    #[test]
    fn a_kubeconfig_has_everything_that_a_service_needs() {
        let entry = cluster_entry("https://a:6443", "PEM", Some("http://proxy"), Some("b"));
        let text = kubeconfig(&entry, "secret-syncer", "t0ken");
        let read: Kubeconfig = serde_json::from_str(&text).unwrap();
        let cluster = read.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://a:6443"));
        assert_eq!(cluster.certificate_authority_data.as_deref(), Some("UEVN"));
        assert_eq!(cluster.proxy_url.as_deref(), Some("http://proxy"));
        assert_eq!(cluster.tls_server_name.as_deref(), Some("b"));
        assert_eq!(read.current_context.as_deref(), Some("worker"));
        let plain = cluster_entry("https://a", "PEM", None, None);
        assert_eq!(plain.as_object().unwrap().len(), 2);
    }
}
