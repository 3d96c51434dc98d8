//! Clients for the clusters that the flags select.

use std::path::Path;

use anyhow::{Result, anyhow};
use http::header::{HeaderValue, USER_AGENT};
use kube::config::{Cluster, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use osm_api::cluster_endpoint;
use osm_api::rbac::ClusterKind;

use super::Flags;

/// A cluster.
pub struct Connection {
    pub kind: ClusterKind,
    pub client: Client,
    /// URL of the API server.
    pub server: String,
    /// Context of the kubeconfig; absent in a pod.
    pub context: Option<String>,
    /// PEM bundle with which the API server is verified, if the kubeconfig contains one.
    pub ca: Option<String>,
    /// Proxy through which the kubeconfig reaches the API server.
    pub proxy: Option<String>,
    /// Name in the certificate of the API server, if the kubeconfig contains one.
    pub tls_server_name: Option<String>,
}

/// The flag that selects the `kubeconfig` or the `context` of a cluster.
pub fn flag(cluster: ClusterKind, name: &str) -> String {
    match cluster {
        ClusterKind::Management => format!("--{name}"),
        ClusterKind::Worker => format!("--worker-{name}"),
    }
}

/// The cluster with profiles, configs, settings and the services.
///
/// # Errors
/// A kubeconfig that is missing or invalid.
pub async fn management(flags: &Flags) -> Result<Connection> {
    let selected = Selected {
        cluster: ClusterKind::Management,
        file: flags.kubeconfig.as_deref(),
        context: flags.context.as_deref(),
    };
    selected.connect(flags).await
}

/// The worker cluster, which has the MachineDeployments; `None` if it is the management cluster.
///
/// # Errors
/// As [`management`].
pub async fn worker(flags: &Flags) -> Result<Option<Connection>> {
    let (file, context) = (&flags.worker_kubeconfig, &flags.worker_context);
    if file.is_none() && context.is_none() {
        return Ok(None);
    }
    let selected = Selected {
        cluster: ClusterKind::Worker,
        file: file.as_deref().or(flags.kubeconfig.as_deref()),
        context: context.as_deref(),
    };
    selected.connect(flags).await.map(Some)
}

/// What the flags select for a cluster.
struct Selected<'f> {
    cluster: ClusterKind,
    file: Option<&'f Path>,
    context: Option<&'f str>,
}

impl Selected<'_> {
    async fn connect(&self, flags: &Flags) -> Result<Connection> {
        // Another dependency may bring a second provider, so that rustls would not choose one. An error means
        // that one is installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (mut config, context, cluster) = self.config().await?;
        config.connect_timeout = Some(flags.request_timeout);
        config.read_timeout = Some(flags.request_timeout);
        let agent = HeaderValue::from_static(concat!("osmctl/", env!("CARGO_PKG_VERSION")));
        config.headers.push((USER_AGENT, agent));
        let ca = config.root_cert.as_deref().and_then(cluster_endpoint::pem);
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let client = Client::try_from(config).map_err(|_| {
            anyhow!(
                "{} has a certificate or key that cannot be used; correct it",
                self.named()
            )
        })?;
        Ok(Connection {
            kind: self.cluster,
            client,
            server,
            context,
            ca,
            proxy: cluster.proxy_url,
            tls_server_name: cluster.tls_server_name,
        })
    }

    fn named(&self) -> String {
        match self.file {
            Some(file) => format!("the kubeconfig {}", file.display()),
            None => "the kubeconfig".to_owned(),
        }
    }

    /// The configuration of a client, the context that it is from, and the cluster of that context.
    async fn config(&self) -> Result<(Config, Option<String>, Cluster)> {
        let options = KubeConfigOptions {
            context: self.context.map(str::to_owned),
            ..KubeConfigOptions::default()
        };
        let kubeconfig = match self.file {
            Some(file) => Kubeconfig::read_from(file),
            None => Kubeconfig::read(),
        };
        let kubeconfig = match kubeconfig {
            Ok(kubeconfig) => kubeconfig,
            Err(error) if self.file.is_none() && self.context.is_none() && is_missing(&error) => {
                let config = Config::incluster().map(|config| (config, None, Cluster::default()));
                return config.map_err(|_| {
                    anyhow!("there is no kubeconfig: {error}; set --kubeconfig or the variable KUBECONFIG")
                });
            }
            Err(error) => return Err(self.invalid(&error)),
        };
        let context = options
            .context
            .clone()
            .or_else(|| kubeconfig.current_context.clone());
        let cluster = cluster_of(&kubeconfig, context.as_deref()).unwrap_or_default();
        Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map(|config| (config, context, cluster))
            .map_err(|error| self.invalid(&error))
    }

    /// What is wrong with the kubeconfig. The message of a parser may quote the file, and so a token.
    fn invalid(&self, error: &KubeconfigError) -> anyhow::Error {
        let (named, flag) = (self.named(), |name| flag(self.cluster, name));
        match error {
            KubeconfigError::Parse(error) => match error.location() {
                Some(at) => {
                    let (line, column) = (at.line(), at.column());
                    anyhow!("{named} is not valid: line {line}, column {column} cannot be read; correct it")
                }
                None => anyhow!("{named} is not valid; correct it"),
            },
            KubeconfigError::ReadConfig(error, path) => {
                let flag = flag("kubeconfig");
                anyhow!("cannot read {}: {error}; check {flag}", path.display())
            }
            KubeconfigError::CurrentContextNotSet => {
                let flag = flag("context");
                anyhow!(
                    "{named} has no current context; set {flag}, `kubectl config get-contexts` lists them"
                )
            }
            KubeconfigError::LoadContext(name) => {
                let hint = match self.cluster {
                    ClusterKind::Management => String::new(),
                    _ => format!(", or name another file with {}", flag("kubeconfig")),
                };
                anyhow!("{named} has no context {name}; `kubectl config get-contexts` lists them{hint}")
            }
            other => anyhow!("{named} is not valid: {other}; correct it"),
        }
    }
}

/// The cluster of a context.
fn cluster_of(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<Cluster> {
    let named = kubeconfig
        .contexts
        .iter()
        .find(|named| Some(&*named.name) == context)?;
    let name = &named.context.as_ref()?.cluster;
    let cluster = kubeconfig.clusters.iter().find(|cluster| cluster.name == *name)?;
    cluster.cluster.clone()
}

fn is_missing(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::FindPath => true,
        KubeconfigError::ReadConfig(error, _) => error.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}
