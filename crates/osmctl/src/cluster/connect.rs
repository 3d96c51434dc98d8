//! Clients for the clusters that the flags select.

use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use http::header::{HeaderValue, USER_AGENT};
use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig, KubeconfigError};
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

/// A worker cluster by the text of a kubeconfig, which the owner of that cluster may have written. Only the
/// server, its CA, the way to it and a token or client certificate are taken over, so that nothing in the text
/// runs a program, reads a file or trusts another API server.
///
/// # Errors
/// A text that isn't a kubeconfig, or lacks one of these. No message has a value of the text.
pub async fn foreign(text: &str, flags: &Flags) -> Result<Connection> {
    let mut taken = Kubeconfig::from_yaml(text).map_err(|_| anyhow!("is not valid"))?;
    for named in &mut taken.clusters {
        named.cluster = named.cluster.take().map(|cluster| Cluster {
            server: cluster.server,
            certificate_authority_data: cluster.certificate_authority_data,
            proxy_url: cluster.proxy_url,
            tls_server_name: cluster.tls_server_name,
            ..Cluster::default()
        });
    }
    for named in &mut taken.auth_infos {
        named.auth_info = named.auth_info.take().map(|user| AuthInfo {
            token: user.token,
            client_certificate_data: user.client_certificate_data,
            client_key_data: user.client_key_data,
            ..AuthInfo::default()
        });
    }
    let cluster = cluster_of(&taken, taken.current_context.as_deref());
    let cluster = cluster.context("has no current context with a cluster")?;
    let is_https = |server: &String| server.starts_with("https://");
    ensure!(
        cluster.server.as_ref().is_some_and(is_https),
        "must name its server as https://HOST:PORT"
    );
    let ca = cluster.certificate_authority_data.as_deref();
    ensure!(
        !ca.unwrap_or_default().is_empty(),
        "lacks certificate-authority-data"
    );
    let config = Config::from_custom_kubeconfig(taken, &KubeConfigOptions::default()).await;
    let config = config.map_err(|_| anyhow!("has a server, CA or user that cannot be used"))?;
    let user = &config.auth_info;
    ensure!(
        user.token.is_some() || user.client_certificate_data.is_some(),
        "has no token"
    );
    connection(ClusterKind::Worker, flags, (config, None, cluster))
        .map_err(|_| anyhow!("has a CA or a client certificate that cannot be used"))
}

/// A client by a configuration, the context that it is from, and the cluster of that context.
fn connection(
    kind: ClusterKind,
    flags: &Flags,
    (mut config, context, cluster): (Config, Option<String>, Cluster),
) -> Result<Connection, kube::Error> {
    // Another dependency may bring a second provider, so that rustls would not choose one. An error means
    // that one is installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    config.connect_timeout = Some(flags.request_timeout);
    config.read_timeout = Some(flags.request_timeout);
    let agent = HeaderValue::from_static(concat!("osmctl/", env!("CARGO_PKG_VERSION")));
    config.headers.push((USER_AGENT, agent));
    let ca = config.root_cert.as_deref().and_then(cluster_endpoint::pem);
    let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    Ok(Connection {
        kind,
        client: Client::try_from(config)?,
        server,
        context,
        ca,
        proxy: cluster.proxy_url,
        tls_server_name: cluster.tls_server_name,
    })
}

/// What the flags select for a cluster.
struct Selected<'f> {
    cluster: ClusterKind,
    file: Option<&'f Path>,
    context: Option<&'f str>,
}

impl Selected<'_> {
    async fn connect(&self, flags: &Flags) -> Result<Connection> {
        connection(self.cluster, flags, self.config().await?).map_err(|_| {
            anyhow!(
                "{} has a certificate or key that cannot be used; correct it",
                self.named()
            )
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        flags: Flags,
    }

    const GOOD: &str = "current-context: c
contexts: [{name: c, context: {cluster: c, user: c}}]
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1', certificate-authority-data: aHVudGVyMg==}}]
users: [{name: c, user: {token: hunter2}}]
";

    /// What is replaced in a kubeconfig, by what, and what is said of it.
    const REFUSED: &str = r#"
https: -> http: => must name its server as https://HOST:PORT
aHVudGVyMg== -> hunter2 => has a server, CA or user that cannot be used
certificate-authority-data -> certificate-authority => lacks certificate-authority-data
certificate-authority-data -> insecure-skip-tls-verify: true, proxy-url => lacks certificate-authority-data
users: [ -> users: [hunter2, => is not valid
current-context: c -> current-context: hunter2 => has no current context with a cluster
"#;

    /// That a program isn't run is shown in e2e/tests/chart/fleet.rs, with a CA.
    #[tokio::test]
    async fn a_kubeconfig_of_another_cluster_can_only_connect_to_it() {
        let command = Command::parse_from(["osmctl"]);
        for case in REFUSED.trim().lines() {
            let (change, expected) = case.split_once(" => ").unwrap();
            let (from, to) = change.split_once(" -> ").unwrap();
            assert!(GOOD.contains(from), "{from}");
            let refused = foreign(&GOOD.replace(from, to), &command.flags).await;
            let problem = format!("{:#}", refused.err().unwrap());
            assert_eq!(problem, expected, "{case}");
        }
    }
}
