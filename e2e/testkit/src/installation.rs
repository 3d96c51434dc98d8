//! An installation on a control plane: the objects that the chart installs, and the services as processes.
//! Each service has its own identity and only its own rights.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use osm_api::names::{CLOUD_INIT_SETTINGS, SETTINGS_KEY};
use osm_api::rbac::{self, ClusterKind, Installation, Service};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::process::{self, ScratchDir};
use crate::{ControlPlane, wait_for};

/// Where the ServiceAccounts of the services are: apart, so that a test can delete the installation's
/// namespace and the services live on.
pub const IDENTITIES: &str = "osm-services";

/// How long a service may take until it serves its admin port. Generous, because the machine may be busy.
const STARTED_WITHIN: Duration = Duration::from_secs(180);

/// Everything that an installation in one cluster needs besides CRDs and settings, as Kubernetes objects in
/// order.
#[must_use]
pub fn manifests(installation: &Installation) -> Vec<Value> {
    manifests_in(installation, &ClusterKind::ALL)
}

/// As [`manifests`], in a cluster that plays only these parts.
#[must_use]
pub fn manifests_in(installation: &Installation, parts: &[ClusterKind]) -> Vec<Value> {
    let mut namespaces = vec![IDENTITIES];
    if parts.contains(&ClusterKind::Management) {
        namespaces.extend(installation.namespaces_to_render_from());
    }
    if parts.contains(&ClusterKind::Worker) {
        namespaces.push(installation.namespace.as_str());
        namespaces.extend(installation.pool_settings_namespaces.iter().map(String::as_str));
        namespaces.push(CLOUD_INIT_SETTINGS);
    }
    let mut objects: Vec<Value> = namespaces
        .into_iter()
        .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
        .collect();
    objects.extend(rbac::objects(&names(), installation, parts, &Service::ALL));
    objects
}

/// The chart names more than one release in a cluster.
fn names() -> rbac::Names {
    rbac::Names {
        prefix: "osm".to_owned(),
        namespace: IDENTITIES.to_owned(),
        accounts: String::new(),
    }
}

/// With the chart's value `joining: static`, kube-controller-manager approves these requests.
#[must_use]
pub fn node_client() -> Value {
    rbac::node_client(&names())
}

/// Name of the policy about what ServiceAccounts of `cloud-init-settings` may ask for, and of its binding.
pub const REQUESTS_POLICY: &str = "osm.requests";

/// The settings ConfigMap with this document.
#[must_use]
pub fn settings(installation: &Installation, document: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": installation.settings, "namespace": installation.namespace},
        "data": {SETTINGS_KEY: document}})
}

/// `kube-public/cluster-info` as kubeadm publishes it, with the API server's URL as machines have it.
#[must_use]
pub fn cluster_info(ca_pem: &str, server: &str) -> Value {
    use base64::Engine as _;
    let ca = base64::prelude::BASE64_STANDARD.encode(ca_pem);
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config",
        "clusters": [{"name": "", "cluster": {"server": server, "certificate-authority-data": ca}}]});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-info", "namespace": "kube-public"},
        "data": {"kubeconfig": kubeconfig.to_string()}})
}

/// One replica of a service; a service alone means its first.
#[derive(Clone, Copy, Debug)]
pub struct Pod {
    pub service: Service,
    /// Its number, from 0.
    pub number: usize,
}

impl Pod {
    fn key(self) -> (&'static str, usize) {
        (self.service.name(), self.number)
    }
}

impl From<Service> for Pod {
    fn from(service: Service) -> Self {
        Self { service, number: 0 }
    }
}

impl From<(Service, usize)> for Pod {
    fn from((service, number): (Service, usize)) -> Self {
        Self { service, number }
    }
}

/// An installation on a control plane, with the services that run.
pub struct Installed {
    installation: Installation,
    /// Folder of the programs of services that are started from now on.
    pub binaries: PathBuf,
    /// The kubeconfig of each service, by its name.
    identities: BTreeMap<&'static str, PathBuf>,
    running: BTreeMap<(&'static str, usize), Running>,
    logs: Logs,
    /// What services that are started from now on log.
    pub log_filter: String,
    /// Added to the environment of services that are started from now on.
    pub environment: BTreeMap<String, String>,
    /// Added to the arguments of services that are started from now on, by name of the service.
    pub arguments: BTreeMap<&'static str, Vec<String>>,
}

/// Where the services log to.
enum Logs {
    Own(ScratchDir),
    Given(PathBuf),
}

impl Logs {
    fn path(&self) -> &Path {
        match self {
            Self::Own(scratch) => scratch.path(),
            Self::Given(folder) => folder,
        }
    }
}

struct Running {
    process: process::Service,
    port: u16,
}

impl Installed {
    /// Installs CRDs, namespaces, identities, rights and empty settings: for this cluster, or for a fleet of which
    /// it is the seed. `binaries` is the folder of the services.
    ///
    /// # Errors
    /// When the server refuses something.
    pub async fn install(
        control_plane: &ControlPlane,
        installation: Installation,
        binaries: &Path,
    ) -> Result<Self> {
        let parts = if installation.fleet {
            &[ClusterKind::Management][..]
        } else {
            &ClusterKind::ALL
        };
        prepare(control_plane, &installation, parts).await?;
        Self::with_identities(control_plane, [IDENTITIES, ""], installation, binaries).await
    }

    /// An installation that a chart has made; the services come as the ServiceAccounts of this release.
    ///
    /// # Errors
    /// When there is no such ServiceAccount.
    pub async fn by_chart(
        control_plane: &ControlPlane,
        installation: Installation,
        release: &str,
        binaries: &Path,
    ) -> Result<Self> {
        let (namespace, prefix) = (installation.namespace.clone(), format!("{release}-"));
        Self::with_identities(control_plane, [&namespace, &prefix], installation, binaries).await
    }

    /// `prefix` comes before the name of each service.
    async fn with_identities(
        control_plane: &ControlPlane,
        [namespace, prefix]: [&str; 2],
        installation: Installation,
        binaries: &Path,
    ) -> Result<Self> {
        let mut identities = BTreeMap::new();
        for name in Service::ALL.map(Service::name) {
            let account = format!("{prefix}{name}");
            identities.insert(name, control_plane.identity(namespace, &account).await?);
        }
        Ok(Self {
            installation,
            binaries: binaries.to_owned(),
            identities,
            running: BTreeMap::new(),
            logs: Logs::Own(ScratchDir::new("osm-logs")?),
            log_filter: "info,osm_runtime::watch=debug".to_owned(),
            environment: BTreeMap::from([("RUST_BACKTRACE".to_owned(), "1".to_owned())]),
            arguments: BTreeMap::new(),
        })
    }

    /// The kubeconfig with which a service is started.
    ///
    /// # Errors
    /// When the service has none.
    pub fn kubeconfig(&self, service: Service) -> Result<&Path> {
        let found = self.identities.get(service.name()).map(PathBuf::as_path);
        found.with_context(|| format!("{} has no kubeconfig", service.name()))
    }

    /// Services that are started from now on log to this folder, and their logs outlive them. It must be
    /// there.
    pub fn log_to(&mut self, folder: &Path) {
        self.logs = Logs::Given(folder.to_owned());
    }

    #[must_use]
    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// Starts a service and waits until it serves its admin port, ready or not.
    ///
    /// # Errors
    /// A service that ends, or does not serve.
    pub async fn start(&mut self, pod: impl Into<Pod>) -> Result<()> {
        let (pod, installation) = (pod.into(), &self.installation);
        let (service, name) = (pod.service, pod.service.name());
        let identity = self.kubeconfig(service)?;
        let log = self.log_file(pod);
        let before = std::fs::read_to_string(&log).unwrap_or_default().len();
        let identity = identity.display().to_string();
        let (namespace, settings) = (installation.namespace.as_str(), installation.settings.as_str());
        let mut args = vec![
            "--namespace",
            namespace,
            "--settings-config-map",
            settings,
            "--kubeconfig",
            &identity,
        ];
        let replica = pod.number.to_string();
        args.extend([
            "--listen",
            "127.0.0.1:0",
            "--log-filter",
            &self.log_filter,
            "--pod-name",
            &replica,
        ]);
        let profile_namespaces = installation.profile_namespaces.join(",");
        let reads_profiles = matches!(service, Service::OspController | Service::OscController);
        if reads_profiles && !profile_namespaces.is_empty() {
            args.extend(["--profile-namespaces", &profile_namespaces]);
        }
        if service == Service::OspController {
            args.extend(installation.custom_profiles.then_some("--custom-profiles"));
        }
        let pool_settings_namespaces = installation.pool_settings_namespaces.join(",");
        let machine_deployment_namespaces = installation.machine_deployment_namespaces.join(",");
        let fallback = installation.fallback_profile_namespace.as_deref();
        if service == Service::OscController {
            args.extend(
                fallback
                    .into_iter()
                    .flat_map(|namespace| ["--fallback-profile-namespace", namespace]),
            );
            args.extend(["--pool-settings-namespaces", &pool_settings_namespaces]);
            args.extend(
                installation
                    .go_finalizers
                    .then_some("--remove-upstream-finalizers"),
            );
            if !machine_deployment_namespaces.is_empty() {
                args.extend(["--machine-deployment-namespaces", &machine_deployment_namespaces]);
            }
        }
        let is_of_fleet = installation.fleet && service != Service::OspController;
        args.extend(is_of_fleet.then_some("--fleet"));
        args.extend(self.arguments.get(name).into_iter().flatten().map(String::as_str));
        let mut process = process::Service::spawn(&self.binaries.join(name), args, &self.environment, &log)?;
        let port = wait_for(&format!("{name} to serve"), STARTED_WITHIN, async || {
            let text = std::fs::read_to_string(&log)?;
            if let Some(status) = process.exited()? {
                return Ok(Some(Err(anyhow::anyhow!(
                    "{name} has ended: {status}\n{}",
                    process.log_tail(10)
                ))));
            }
            Ok(text.get(before..).and_then(port_in).map(Ok))
        })
        .await??;
        self.running.insert(pod.key(), Running { process, port });
        Ok(())
    }

    /// Starts all services.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_all(&mut self) -> Result<()> {
        for service in Service::ALL {
            self.start(service).await?;
        }
        Ok(())
    }

    /// Ends a service as a crash does.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill9(&mut self, pod: impl Into<Pod>) -> Result<()> {
        self.running
            .remove(&pod.into().key())
            .context("the service does not run")?
            .process
            .kill9()
    }

    /// Ends a service as Kubernetes does, and waits for it.
    ///
    /// # Errors
    /// When it does not run, or does not end in time.
    pub async fn terminate(&mut self, pod: impl Into<Pod>, deadline: Duration) -> Result<ExitStatus> {
        self.running
            .remove(&pod.into().key())
            .context("the service does not run")?
            .process
            .terminate(deadline)
            .await
    }

    /// The process of a running service.
    ///
    /// # Errors
    /// When it does not run.
    pub fn process(&self, pod: impl Into<Pod>) -> Result<&process::Service> {
        Ok(&self.running(pod.into())?.process)
    }

    fn running(&self, pod: Pod) -> Result<&Running> {
        self.running.get(&pod.key()).context("the service does not run")
    }

    /// Where a running service serves `/metrics`, `/livez` and `/readyz`.
    ///
    /// # Errors
    /// When it does not run.
    pub fn address(&self, pod: impl Into<Pod>) -> Result<String> {
        Ok(format!("127.0.0.1:{}", self.running(pod.into())?.port))
    }

    /// What a service answers to GET, as status code and body.
    ///
    /// # Errors
    /// When it does not run or answer.
    pub async fn get(&self, pod: impl Into<Pod>, path: &str) -> Result<(u16, String)> {
        let port = self.running(pod.into())?.port;
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
        stream
            .write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())
            .await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").context("an HTTP answer")?;
        let code = head
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .context("a status code")?;
        Ok((code, body.to_owned()))
    }

    /// Whether a service says that it is ready.
    pub async fn is_ready(&self, pod: impl Into<Pod>) -> bool {
        self.get(pod, "/readyz").await.is_ok_and(|(code, _)| code == 200)
    }

    /// Whether a service says that it lives.
    pub async fn is_alive(&self, pod: impl Into<Pod>) -> bool {
        self.get(pod, "/livez").await.is_ok_and(|(code, _)| code == 200)
    }

    /// Waits until every running service is ready.
    ///
    /// # Errors
    /// After the deadline; says what is waited for.
    pub async fn ready(&self, deadline: Duration) -> Result<()> {
        for pod in self.pods() {
            wait_for(&format!("{pod:?} to be ready"), deadline, async || {
                let (code, body) = self.get(pod, "/readyz").await?;
                ensure!(code == 200, "{body}");
                Ok(Some(()))
            })
            .await?;
        }
        Ok(())
    }

    fn pods(&self) -> Vec<Pod> {
        let of = |service: Service| {
            let running = self
                .running
                .keys()
                .filter(move |(name, _)| *name == service.name());
            running.map(move |(_, number)| Pod {
                service,
                number: *number,
            })
        };
        Service::ALL.into_iter().flat_map(of).collect()
    }

    /// Log file of a service, or of one of its replicas.
    #[must_use]
    pub fn log_file(&self, pod: impl Into<Pod>) -> PathBuf {
        let Pod { service, number } = pod.into();
        let number = if number == 0 {
            String::new()
        } else {
            format!("-{number}")
        };
        self.logs.path().join(format!("{}{number}.log", service.name()))
    }

    /// All that the services have logged.
    #[must_use]
    pub fn logs(&self) -> String {
        let logged = |pod: Pod| {
            let text = std::fs::read_to_string(self.log_file(pod)).ok()?;
            Some(format!("== {} {}\n{text}", pod.service.name(), pod.number))
        };
        // Those that have ended, too; none has more replicas.
        let all = Service::ALL
            .into_iter()
            .flat_map(|service| (0..8).map(move |number| (service, number)));
        all.filter_map(|pod| logged(pod.into()))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// Installs into a cluster that plays these parts everything but the identities' kubeconfigs.
///
/// # Errors
/// When the server refuses something.
pub async fn prepare(
    control_plane: &ControlPlane,
    installation: &Installation,
    parts: &[ClusterKind],
) -> Result<()> {
    let mut more = Vec::new();
    if parts.contains(&ClusterKind::Management) {
        control_plane.install_crds(&crds()).await?;
        more.push(settings(installation, ""));
    }
    if parts.contains(&ClusterKind::Worker) {
        control_plane.install_machine_deployment_crd().await?;
        more.push(cluster_info(control_plane.ca_pem(), &control_plane.url()));
    }
    apply(control_plane, &manifests_in(installation, parts)).await?;
    apply(control_plane, &more).await
}

/// The CustomResourceDefinitions of machine-controller's MachineDeployments, MachineSets and Machines, cut
/// down to what tests need, in YAML.
pub const MACHINE_CONTROLLER_CRDS: &str = include_str!("../fixtures/machine-controller-crds.yaml");

/// The CRDs of this repository.
#[must_use]
pub fn crds() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crds")
}

/// Applies objects in order.
///
/// # Errors
/// When the server refuses one.
pub async fn apply(control_plane: &ControlPlane, objects: &[Value]) -> Result<()> {
    let documents: Vec<String> = objects.iter().map(ToString::to_string).collect();
    control_plane
        .apply_yaml(&documents.join("\n---\n"))
        .await
        .map(drop)
}

/// The admin server logs the address that it listens on.
fn port_in(log: &str) -> Option<u16> {
    log.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find_map(|line| line.get("address")?.as_str()?.rsplit_once(':')?.1.parse().ok())
}

/// Folder with the services' binaries: `OSM_BIN_DIR`, else built by cargo in the profile of the running
/// program.
///
/// # Errors
/// A build that fails.
pub fn binaries() -> Result<PathBuf> {
    use std::sync::OnceLock;
    static BUILT: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    if let Some(folder) = std::env::var_os("OSM_BIN_DIR") {
        return Ok(folder.into());
    }
    let built = BUILT.get_or_init(|| {
        let services = Service::ALL.map(Service::name);
        build(&services).map_err(|error| format!("{error:#}"))
    });
    built.clone().map_err(anyhow::Error::msg)
}

/// The program osmctl, from the same folder as [`binaries`].
///
/// # Errors
/// A build that fails.
pub fn osmctl() -> Result<PathBuf> {
    let folder = match std::env::var_os("OSM_BIN_DIR") {
        Some(folder) => folder.into(),
        None => build(&["osmctl"])?,
    };
    Ok(folder.join("osmctl"))
}

/// Builds the programs of these packages in the profile of the running program; returns their folder.
///
/// # Errors
/// A build that fails.
pub fn build(packages: &[&str]) -> Result<PathBuf> {
    let packages = packages.iter().flat_map(|package| ["--package", package]);
    let status = osm_judges::cargo_tool::cargo()
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .args(["build", "--quiet"])
        .args(packages)
        .status()
        .context("cargo can't be run")?;
    ensure!(
        status.success(),
        "the programs can't be built: cargo build says why"
    );
    // target/debug/deps/test-… → target/debug
    let program = std::env::current_exe()?;
    let folder = program
        .ancestors()
        .find(|folder| folder.file_name().is_some_and(|name| name == "debug"));
    Ok(folder
        .context("not run from cargo's target folder: set OSM_BIN_DIR")?
        .to_owned())
}
