//! Clients for the clusters that the flags select.

use std::path::Path;

use anyhow::{Result, anyhow};
use http::header::{HeaderValue, USER_AGENT};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use osm_api::cluster_endpoint;

use super::Flags;

/// A cluster.
pub struct Connection {
    pub client: Client,
    /// URL of the API server.
    pub server: String,
    /// Context of the kubeconfig; absent in a pod.
    pub context: Option<String>,
    /// PEM bundle with which the API server is verified, if the kubeconfig contains one.
    pub ca: Option<String>,
}

/// The cluster with profiles, configs and settings.
///
/// # Errors
/// A kubeconfig that is missing or invalid.
pub async fn management(flags: &Flags) -> Result<Connection> {
    connect(flags, flags.kubeconfig.as_deref(), flags.context.as_deref()).await
}

/// The cluster with MachineDeployments; `None` if it is the same.
///
/// # Errors
/// As [`management`].
pub async fn worker(flags: &Flags) -> Result<Option<Connection>> {
    let (file, context) = (
        flags.worker_kubeconfig.as_deref(),
        flags.worker_context.as_deref(),
    );
    if file.is_none() && context.is_none() {
        return Ok(None);
    }
    connect(flags, file.or(flags.kubeconfig.as_deref()), context)
        .await
        .map(Some)
}

async fn connect(flags: &Flags, file: Option<&Path>, context: Option<&str>) -> Result<Connection> {
    // Another dependency may bring a second provider, so that rustls would not choose one. An error means that one is installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (mut config, context) = config(file, context).await?;
    config.connect_timeout = Some(flags.request_timeout);
    config.read_timeout = Some(flags.request_timeout);
    let agent = HeaderValue::from_static(concat!("osmctl/", env!("CARGO_PKG_VERSION")));
    config.headers.push((USER_AGENT, agent));
    let ca = config.root_cert.as_deref().and_then(cluster_endpoint::pem);
    let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    let client = Client::try_from(config).map_err(|_| {
        anyhow!(
            "{} has a certificate or key that cannot be used; correct it",
            named(file)
        )
    })?;
    Ok(Connection {
        client,
        server,
        context,
        ca,
    })
}

fn named(file: Option<&Path>) -> String {
    match file {
        Some(file) => format!("the kubeconfig {}", file.display()),
        None => "the kubeconfig".to_owned(),
    }
}

/// The configuration of a client, and the context that it is from.
async fn config(file: Option<&Path>, context: Option<&str>) -> Result<(Config, Option<String>)> {
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let kubeconfig = match file {
        Some(file) => Kubeconfig::read_from(file),
        None => Kubeconfig::read(),
    };
    let kubeconfig = match kubeconfig {
        Ok(kubeconfig) => kubeconfig,
        Err(error) if file.is_none() && context.is_none() && is_missing(&error) => {
            return Config::incluster()
                .map(|config| (config, None))
                .map_err(|_| anyhow!("there is no kubeconfig; set --kubeconfig or the variable KUBECONFIG"));
        }
        Err(error) => return Err(invalid(file, &error)),
    };
    let context = options
        .context
        .clone()
        .or_else(|| kubeconfig.current_context.clone());
    Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map(|config| (config, context))
        .map_err(|error| invalid(file, &error))
}

fn is_missing(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::FindPath => true,
        KubeconfigError::ReadConfig(error, _) => error.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

/// What is wrong with a kubeconfig. The message of a parser may quote the file, and so a token.
fn invalid(file: Option<&Path>, error: &KubeconfigError) -> anyhow::Error {
    let named = named(file);
    match error {
        KubeconfigError::Parse(error) => match error.location() {
            Some(at) => {
                let (line, column) = (at.line(), at.column());
                anyhow!("{named} is not valid: line {line}, column {column} cannot be read; correct it")
            }
            None => anyhow!("{named} is not valid; correct it"),
        },
        KubeconfigError::ReadConfig(error, path) => {
            anyhow!("cannot read {}: {error}; check --kubeconfig", path.display())
        }
        KubeconfigError::CurrentContextNotSet => {
            anyhow!("{named} has no current context; set --context, `kubectl config get-contexts` lists them")
        }
        KubeconfigError::LoadContext(name) => {
            anyhow!("{named} has no context {name}; `kubectl config get-contexts` lists them")
        }
        other => anyhow!("{named} is not valid: {other}; correct it"),
    }
}
