//! The API server that the services run on: in memory, or a real one.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use osm_api::definitions;
use osm_api::rbac::{ClusterKind, Installation, Service};
use osm_sim::memory::{self, Server};
use osm_testkit::control_plane::{Pki, assets, kubeconfig, private_file, random_token};
use osm_testkit::installation::{self, IDENTITIES};
use osm_testkit::process::ScratchDir;
use osm_testkit::progress::Progress;
use osm_testkit::{ControlPlane, Options};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// Tokens of the services live this long. Nobody tries for a year.
const TOKEN_LIFE_SECONDS: i64 = 365 * 24 * 60 * 60;

/// An API server with everything installed that the services need. Dropping it ends it.
pub struct ApiServer {
    installation: Installation,
    kubeconfig: PathBuf,
    what: What,
}

enum What {
    InMemory(InMemory),
    Real {
        control_plane: Box<ControlPlane>,
        logs: ScratchDir,
    },
}

struct InMemory {
    url: String,
    pki: Pki,
    directory: ScratchDir,
    task: AbortHandle,
}

impl Drop for InMemory {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ApiServer {
    /// One in memory.
    ///
    /// # Errors
    /// The port is in use, or a file can't be written.
    pub async fn in_memory(port: u16, progress: Progress) -> Result<Self> {
        // It fails only if there is one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = listen(port).await?;
        let url = format!("https://{}", listener.local_addr()?);
        progress.step(&format!("serving an API server in memory at {url}"));
        let directory = ScratchDir::new("osm-demo-")
            .context("a directory for temporary files can't be made; set TMPDIR")?;
        let pki = Pki::create(directory.path(), std::iter::empty())?;
        let admin_token = random_token();
        let path = directory.path().join("admin.kubeconfig");
        private_file(&path, &kubeconfig(&url, &pki.ca_pem, &admin_token))?;
        let installation = Installation::default();
        let server = Server::new(Timestamp::now());
        server.with(|state| state.salt_tokens(random_token()));
        server.load(&objects(&installation, &pki.ca_pem, &url)?)?;
        let serving = memory::serve(server, listener, memory::tls(directory.path())?, admin_token);
        Ok(Self {
            installation,
            kubeconfig: path,
            what: What::InMemory(InMemory {
                url,
                pki,
                directory,
                task: tokio::spawn(serving).abort_handle(),
            }),
        })
    }

    /// A real etcd and kube-apiserver.
    ///
    /// # Errors
    /// A program that can't be built or started.
    pub async fn real(progress: Progress) -> Result<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        progress.step("looking for the binaries of etcd and kube-apiserver");
        assets::ensure(&Options::default().components(), |line| progress.step(line)).await?;
        progress.step("starting etcd and kube-apiserver");
        let control_plane = Box::new(ControlPlane::start(Options::default()).await?);
        progress.step("installing the custom resources, the namespaces, and an identity with its own permissions for each service");
        let installation = Installation::default();
        installation::prepare(&control_plane, &installation, &ClusterKind::ALL).await?;
        Ok(Self {
            installation,
            kubeconfig: control_plane.admin_kubeconfig_path(),
            what: What::Real {
                control_plane,
                logs: ScratchDir::new("osm-demo-")?,
            },
        })
    }

    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// Whether it is for trying only.
    pub fn is_in_memory(&self) -> bool {
        matches!(self.what, What::InMemory(_))
    }

    /// Where the demo's files are.
    pub fn directory(&self) -> &Path {
        match &self.what {
            What::InMemory(memory) => memory.directory.path(),
            What::Real { logs, .. } => logs.path(),
        }
    }

    /// A kubeconfig of a user who may do everything.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A client for that user.
    ///
    /// # Errors
    /// The kubeconfig can't be used.
    pub async fn admin(&self) -> Result<Client> {
        let kubeconfig = Kubeconfig::read_from(&self.kubeconfig)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }

    /// A kubeconfig of a service, with a token of its own.
    ///
    /// # Errors
    /// The API server refuses the token.
    pub async fn identity(&self, service: Service) -> Result<PathBuf> {
        let memory = match &self.what {
            What::Real { control_plane, .. } => {
                return control_plane.identity(IDENTITIES, service.name()).await;
            }
            What::InMemory(memory) => memory,
        };
        let accounts = Api::<ServiceAccount>::namespaced(self.admin().await?, IDENTITIES);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(TOKEN_LIFE_SECONDS),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(service.name(), &PostParams::default(), &request)
            .await?;
        let token = answer.status.context("TokenRequest without status")?.token;
        let path = memory
            .directory
            .path()
            .join(format!("{}.kubeconfig", service.name()));
        private_file(&path, &kubeconfig(&memory.url, &memory.pki.ca_pem, &token))?;
        Ok(path)
    }
}

/// # Errors
/// The port is in use, or may not be used.
async fn listen(port: u16) -> Result<TcpListener> {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
        Err(error) if error.kind() == ErrorKind::AddrInUse => Err(error).context(format!(
            "port {port} of 127.0.0.1 is in use; name another --port, or none to use any that is free"
        )),
        bound => {
            bound.with_context(|| format!("cannot listen on port {port} of 127.0.0.1; name another --port"))
        }
    }
}

/// What [`installation::prepare`] installs on a real one.
fn objects(installation: &Installation, ca_pem: &str, url: &str) -> Result<Vec<Value>> {
    let mut objects = vec![
        definitions::parse(definitions::PROFILES),
        definitions::parse(definitions::CONFIGS),
    ];
    let of_machines: Vec<Value> = serde_saphyr::from_multiple(installation::MACHINE_CONTROLLER_CRDS)?;
    objects.extend(of_machines);
    objects.extend(installation::manifests(installation));
    objects.push(installation::settings(installation, ""));
    objects.push(installation::cluster_info(ca_pem, url));
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_named_with_what_to_do() {
        let taken = listen(0).await.unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = listen(port).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "port {port} of 127.0.0.1 is in use; name another --port, or none to use any that is free"
            )
        );
    }
}
