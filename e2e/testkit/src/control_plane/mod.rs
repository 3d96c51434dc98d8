//! A real etcd and kube-apiserver on a free loopback port, in a temporary directory. They end with their
//! owner. On request they come with everything that machines need to join.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use osm_testkit::{ControlPlane, Options};
//!
//! let control_plane = ControlPlane::start(Options::default()).await?;
//! let admin = control_plane.admin()?;
//! # Ok(()) }
//! ```

mod apply;
pub mod assets;
mod audit;
mod backup;
mod identity;
mod pki;
mod programs;

use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::config::AuthInfo;
use rand::Rng;
use rand::distr::Alphanumeric;
use tokio::sync::{Mutex, OnceCell};

use self::assets::{Assets, Component};
pub use self::audit::{AuditEvent, AuditLog};
pub use self::backup::Backup;
pub use self::identity::kubeconfig;
pub use self::pki::Pki;
use self::programs::Programs;
use crate::process::{ScratchDir, Service};
use crate::wait::wait_for;

/// What the API server advertises, and so what the EndpointSlice `default/kubernetes` holds. It may not be a
/// loopback address; nobody answers there (RFC 5737).
pub const ADVERTISED_ADDRESS: &str = "192.0.2.10";

/// The cluster IP of the Service `default/kubernetes`.
pub const SERVICE_ADDRESS: &str = "10.96.0.1";

const READY_WITHIN: Duration = Duration::from_secs(180);

/// How often a port that someone else took between our look and the API server's is replaced.
const PORT_ATTEMPTS: usize = 3;

/// How a control plane differs from the usual one.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Controllers for kube-controller-manager to run, e.g. `csrapproving`, `csrsigning`, `namespace`. It is
    /// neither built nor started where this is empty and no machines join.
    pub controllers: Vec<&'static str>,
    /// Keep a log of all requests, for [`ControlPlane::audit_log`].
    pub audit: bool,
    /// Keep the bodies of the requests to objects and of their answers in this log as well, credentials
    /// included. Reads have no bodies.
    pub audit_bodies: bool,
    /// The address (not of loopback) by which machines reach the API server, on this host or a relay before
    /// it, where machines are to join.
    ///
    /// It listens on all addresses then, its certificate is valid for this one, and it advertises it. All
    /// controllers that are on by default run, those of `controllers` besides, and the scheduler: pods that
    /// the API server accepts run as soon as there is a node. The API server talks to kubelets only if the
    /// cluster's CA has signed their serving certificates. For a network of the test's own: the API server is
    /// as reachable as the host.
    pub nodes: Option<Ipv4Addr>,
    /// Another such address, where machines may have IPv6: pods and Services get addresses of both families
    /// then.
    pub nodes_ipv6: Option<Ipv6Addr>,
    /// The folder for the programs' logs, if they are to outlive the control plane. It must be there.
    pub logs: Option<PathBuf>,
}

impl Options {
    /// What [`assets::ensure`] must be asked for.
    #[must_use]
    pub fn components(&self) -> Vec<Component> {
        let mut components = vec![Component::Etcd, Component::KubeApiserver];
        if !self.all_controllers().is_empty() {
            components.push(Component::KubeControllerManager);
        }
        if self.nodes.is_some() {
            components.extend([Component::KubeScheduler, Component::Kubectl]);
        }
        components
    }
}

/// A running control plane. Dropping it, or the end of the process that owns it, ends all its processes and
/// removes its files.
#[derive(Debug)]
pub struct ControlPlane {
    // In the order in which they are dropped: the directory last.
    /// kube-controller-manager and kube-scheduler, where they run.
    followers: Vec<Service>,
    apiserver: Mutex<Option<Service>>,
    etcd: Mutex<Service>,
    assets: Assets,
    options: Options,
    port: u16,
    pki: Pki,
    admin_token: String,
    directory: ScratchDir,
}

impl ControlPlane {
    /// Starts one, with binaries built first where they are missing (progress on standard error). Ready when
    /// the API server says so.
    ///
    /// # Errors
    /// When a binary can't be built or a component does not become ready; the message holds the end of its
    /// log.
    pub async fn start(options: Options) -> Result<Self> {
        let assets = assets::ensure_verbosely(&options.components()).await?;
        let directory = ScratchDir::new("osm-control-plane-")?;
        let pki = Pki::create(directory.path(), options.addresses())?;
        let admin_token = random_token();
        // system:masters passes every authorization check.
        let users = format!("{admin_token},admin,admin,system:masters\n");
        private_file(&directory.path().join("tokens.csv"), &users)?;
        let arguments = Programs {
            directory: directory.path(),
            options: &options,
            port: 0,
        }
        .etcd();
        let logs = options.logs.as_deref().unwrap_or(directory.path());
        let etcd = spawn(&assets, Component::Etcd, arguments, logs)?;
        let mut control_plane = Self {
            followers: Vec::new(),
            apiserver: Mutex::new(None),
            etcd: Mutex::new(etcd),
            assets,
            options,
            port: 0,
            pki,
            admin_token,
            directory,
        };
        control_plane.start_apiserver_on_free_port().await?;
        control_plane.start_followers().await?;
        Ok(control_plane)
    }

    /// The one control plane that the tests of a process share, with usual options; each test uses namespaces
    /// of its own.
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub async fn shared() -> Result<&'static Self> {
        static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
        SHARED.get_or_try_init(|| Self::start(Options::default())).await
    }

    /// The API server's address, `https://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The API server's port, at 127.0.0.1 and, where machines join, at every address of this host.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The binary of kubectl.
    ///
    /// # Errors
    /// Without [`Options::nodes`].
    pub fn kubectl(&self) -> Result<PathBuf> {
        Ok(self.assets.path(Component::Kubectl)?.to_owned())
    }

    /// A kubeconfig (mode 0600) of a user who may do everything.
    #[must_use]
    pub fn admin_kubeconfig_path(&self) -> PathBuf {
        self.directory.path().join("admin.kubeconfig")
    }

    /// A client that may do everything. Created on each call, because a client ends with the tokio runtime
    /// that made it.
    ///
    /// # Errors
    /// When the TLS configuration is refused.
    pub fn admin(&self) -> Result<Client> {
        self.client(&self.admin_token)
    }

    /// A client for another token.
    ///
    /// # Errors
    /// When the TLS configuration is refused.
    pub fn client(&self, token: &str) -> Result<Client> {
        self.client_with(AuthInfo {
            token: Some(token.to_owned().into()),
            ..AuthInfo::default()
        })
    }

    /// A client that says in another way who it is, such as by a certificate.
    ///
    /// # Errors
    /// When the TLS configuration is refused.
    pub fn client_with(&self, auth_info: AuthInfo) -> Result<Client> {
        let mut config = kube::Config::new(self.url().parse()?);
        config.root_cert = Some(vec![self.pki.ca_der.clone()]);
        config.auth_info = auth_info;
        Ok(Client::try_from(config)?)
    }

    /// Applies YAML documents of any kind, as [`ControlPlane::admin`].
    ///
    /// # Errors
    /// When the text is not YAML, or the server refuses an object.
    pub async fn apply_yaml(&self, yaml: &str) -> Result<Vec<DynamicObject>> {
        apply::apply_yaml(&self.admin()?, yaml).await
    }

    /// Applies the CustomResourceDefinitions (and all else) in a directory's `.yaml` files and waits until
    /// their kinds are served.
    ///
    /// # Errors
    /// When the server refuses one, or does not serve it in time.
    pub async fn install_crds(&self, directory: &Path) -> Result<()> {
        apply::install_crds(&self.admin()?, directory).await
    }

    /// The CustomResourceDefinitions of machine-controller's MachineDeployments, MachineSets and Machines,
    /// cut down to what tests need.
    ///
    /// # Errors
    /// As [`ControlPlane::install_crds`].
    pub async fn install_machine_deployment_crd(&self) -> Result<()> {
        self.install_crds(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures"))
            .await
    }

    /// Kills the API server at once, as if its machine had failed. Does nothing where it does not run.
    ///
    /// # Errors
    /// When it can't be waited for.
    pub async fn stop_apiserver(&self) -> Result<()> {
        if let Some(mut apiserver) = self.apiserver.lock().await.take() {
            apiserver.kill9()?;
        }
        Ok(())
    }

    /// Starts the API server again, with the same port and data, and waits until it is ready. Does nothing
    /// where it runs.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn start_apiserver(&self) -> Result<()> {
        let mut apiserver = self.apiserver.lock().await;
        if apiserver.is_none() {
            *apiserver = Some(self.spawn_apiserver().await?);
        }
        Ok(())
    }

    async fn start_apiserver_on_free_port(&mut self) -> Result<()> {
        let mut attempt = 1;
        loop {
            self.port = free_port(self.options.bind_address())?;
            private_file(&self.admin_kubeconfig_path(), &self.kubeconfig(&self.admin_token))?;
            match self.start_apiserver().await {
                Err(error)
                    if attempt < PORT_ATTEMPTS && format!("{error:#}").contains("address already in use") =>
                {
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    async fn spawn_apiserver(&self) -> Result<Service> {
        let arguments = self.programs().kube_apiserver()?;
        let mut apiserver = self.spawn(Component::KubeApiserver, arguments)?;
        self.wait_until_ready(&mut apiserver).await?;
        Ok(apiserver)
    }

    async fn wait_until_ready(&self, apiserver: &mut Service) -> Result<()> {
        let client = self.admin()?;
        let mut etcd = self.etcd.lock().await;
        let outcome = wait_for("kube-apiserver to be ready", READY_WITHIN, async || {
            for service in [&mut *etcd, &mut *apiserver] {
                if let Some(ended) = ended(service)? {
                    return Ok(Some(Err(ended)));
                }
            }
            let request = http::Request::get("/readyz").body(Vec::new())?;
            let answer = client.request_text(request).await?;
            Ok((answer == "ok").then_some(Ok(())))
        });
        let outcome = outcome.await;
        outcome.with_context(|| format!("kube-apiserver's last lines:\n{}", apiserver.log_tail(10)))?
    }

    /// Starts what needs an API server to start with.
    async fn start_followers(&mut self) -> Result<()> {
        if !self.options.all_controllers().is_empty() {
            let arguments = self.programs().kube_controller_manager();
            self.followers
                .push(self.spawn(Component::KubeControllerManager, arguments)?);
        }
        if self.options.nodes.is_some() {
            let arguments = self.programs().kube_scheduler();
            self.followers
                .push(self.spawn(Component::KubeScheduler, arguments)?);
            self.wait_until_pods_are_accepted().await?;
        }
        Ok(())
    }

    /// The API server refuses a pod whose ServiceAccount isn't there, and `default` is made by a controller.
    /// So is what every pod mounts.
    async fn wait_until_pods_are_accepted(&mut self) -> Result<()> {
        let client = self.admin()?;
        let accounts = Api::<ServiceAccount>::default_namespaced(client.clone());
        let config_maps = Api::<ConfigMap>::default_namespaced(client);
        let followers = &mut self.followers;
        wait_for("the controllers' first work", READY_WITHIN, async || {
            for service in &mut *followers {
                if let Some(ended) = ended(service)? {
                    return Ok(Some(Err(ended)));
                }
            }
            let made = accounts.get_opt("default").await?.is_some()
                && config_maps.get_opt("kube-root-ca.crt").await?.is_some();
            Ok(made.then_some(Ok(())))
        })
        .await?
    }

    fn programs(&self) -> Programs<'_> {
        Programs {
            directory: self.directory.path(),
            options: &self.options,
            port: self.port,
        }
    }

    fn spawn(&self, component: Component, arguments: Vec<String>) -> Result<Service> {
        spawn(&self.assets, component, arguments, self.log_folder())
    }

    fn log_folder(&self) -> &Path {
        self.options.logs.as_deref().unwrap_or(self.directory.path())
    }

    fn kubeconfig(&self, token: &str) -> String {
        identity::kubeconfig(&self.url(), self.ca_pem(), token)
    }
}

fn spawn(assets: &Assets, component: Component, arguments: Vec<String>, logs: &Path) -> Result<Service> {
    const NO_ENV: [(&str, &str); 0] = [];
    let log = logs.join(format!("{}.log", component.name()));
    Service::spawn(assets.path(component)?, arguments, NO_ENV, &log)
}

/// Why a program that should run does not.
fn ended(service: &mut Service) -> Result<Option<anyhow::Error>> {
    let status = service.exited()?;
    Ok(status.map(|status| {
        anyhow!(
            "{} ended ({status}); its last lines:\n{}",
            service.name(),
            service.log_tail(10)
        )
    }))
}

/// A port below the range from which the kernel serves outgoing connections, so that it stays free while the
/// API server is stopped.
///
/// # Errors
/// When a hundred ports are taken.
pub fn free_port(address: Ipv4Addr) -> Result<u16> {
    let mut rng = rand::rng();
    for _ in 0..100 {
        let port = rng.random_range(20_000..32_000);
        if TcpListener::bind((address, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port on {address} between 20000 and 32000")
}

#[must_use]
pub fn random_token() -> String {
    rand::rng()
        .sample_iter(Alphanumeric)
        .take(32)
        .map(char::from)
        .collect()
}

/// Writes a file that only its owner may read.
///
/// # Errors
/// When it can't be written.
pub fn private_file(path: &Path, content: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let file = File::options()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(path);
    file.and_then(|mut file| file.write_all(content.as_bytes()))
        .with_context(|| path.display().to_string())
}
