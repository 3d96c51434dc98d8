//! An installation on a control plane: what the chart will install, and the three services as processes, each with an
//! identity of its own and only its own rights.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::rbac::v1::PolicyRule;
use osm_api::names::{CLOUD_INIT_SETTINGS, NODE_BOOTSTRAP_ACCOUNT, SETTINGS_KEY};
use osm_api::rbac::{Installation, Service};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::process::{self, ScratchDir};
use crate::{ControlPlane, wait_for};

/// Where the ServiceAccounts of the services are: apart, so that a test can delete the installation's namespace and
/// the services live on.
pub const IDENTITIES: &str = "osm-services";

/// How long a service may take until it serves its admin port.
const START: Duration = Duration::from_secs(30);

/// Everything that an installation needs besides CRDs and settings, as Kubernetes objects in order.
#[must_use]
pub fn manifests(installation: &Installation) -> Vec<Value> {
    let mut namespaces = installation.namespaces_of_profiles();
    namespaces.extend(installation.pool_settings_namespaces.iter().map(String::as_str));
    namespaces.extend([IDENTITIES, CLOUD_INIT_SETTINGS]);
    let mut objects: Vec<Value> = namespaces
        .into_iter()
        .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
        .collect();
    objects.extend(node_bootstrap());
    for service in Service::ALL {
        objects.push(json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": service.name(), "namespace": IDENTITIES}}));
        for grant in service.grants(installation) {
            objects.extend(role(service, grant.namespace.as_deref(), &grant.rules));
        }
    }
    objects
}

/// The identity with which kubelets join, and its two rights.
fn node_bootstrap() -> Vec<Value> {
    let subject =
        json!([{"kind": "ServiceAccount", "name": NODE_BOOTSTRAP_ACCOUNT, "namespace": CLOUD_INIT_SETTINGS}]);
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "automountServiceAccountToken": false,
        "metadata": {"name": NODE_BOOTSTRAP_ACCOUNT, "namespace": CLOUD_INIT_SETTINGS}});
    let bindings = [
        ("osm:node-bootstrapper", "system:node-bootstrapper"),
        ("osm:node-client", "system:certificates.k8s.io:certificatesigningrequests:nodeclient"),
    ];
    let bindings = bindings.into_iter().map(|(name, role)| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}, "subjects": subject})
    });
    std::iter::once(account).chain(bindings).collect()
}

fn role(service: Service, namespace: Option<&str>, rules: &[PolicyRule]) -> [Value; 2] {
    let (kind, name) =
        (if namespace.is_some() { "Role" } else { "ClusterRole" }, format!("osm:{}", service.name()));
    let metadata = json!({"name": name, "namespace": namespace});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": rules});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"), "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": service.name(), "namespace": IDENTITIES}]});
    [role, binding]
}

/// The settings ConfigMap with this document.
#[must_use]
pub fn settings(installation: &Installation, document: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": installation.settings, "namespace": installation.namespace},
        "data": {SETTINGS_KEY: document}})
}

/// `kube-public/cluster-info` as kubeadm publishes it, with the API server's URL as machines have it.
#[must_use]
pub fn cluster_info(control_plane: &ControlPlane, server: &str) -> Value {
    use base64::Engine as _;
    let ca = base64::prelude::BASE64_STANDARD.encode(control_plane.ca_pem());
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config",
        "clusters": [{"name": "", "cluster": {"server": server, "certificate-authority-data": ca}}]});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cluster-info", "namespace": "kube-public"},
        "data": {"kubeconfig": kubeconfig.to_string()}})
}

/// An installation on a control plane, with the services that run.
pub struct Installed {
    installation: Installation,
    binaries: PathBuf,
    identities: BTreeMap<&'static str, PathBuf>,
    running: BTreeMap<&'static str, Running>,
    logs: Logs,
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
    /// Installs CRDs, namespaces, identities, rights and empty settings; `binaries` is the folder of the services.
    ///
    /// # Errors
    /// When the server refuses something.
    pub async fn install(
        control_plane: &ControlPlane,
        installation: Installation,
        binaries: &Path,
    ) -> Result<Self> {
        control_plane.install_crds(&crds()).await?;
        control_plane.install_machine_deployment_crd().await?;
        apply(control_plane, &manifests(&installation)).await?;
        apply(
            control_plane,
            &[settings(&installation, ""), cluster_info(control_plane, &control_plane.url())],
        )
        .await?;
        let mut identities = BTreeMap::new();
        for service in Service::ALL {
            identities.insert(service.name(), control_plane.identity(IDENTITIES, service.name()).await?);
        }
        Ok(Self {
            installation,
            binaries: binaries.to_owned(),
            identities,
            running: BTreeMap::new(),
            logs: Logs::Own(ScratchDir::new("osm-logs")?),
        })
    }

    /// Services that are started from now on log to this folder, and their logs outlive them. It must be there.
    pub fn log_to(&mut self, folder: &Path) {
        self.logs = Logs::Given(folder.to_owned());
    }

    /// What it is called.
    #[must_use]
    pub fn installation(&self) -> &Installation {
        &self.installation
    }

    /// Starts a service and waits until it serves its admin port, ready or not.
    ///
    /// # Errors
    /// A service that ends, or does not serve.
    pub async fn start(&mut self, service: Service) -> Result<()> {
        let installation = self.installation.clone();
        self.start_as(service, &installation, &[]).await
    }

    /// Starts secret-syncer as this installation, but with a `--namespace` in which there is nothing.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_lost(&mut self, control_plane: &ControlPlane, namespace: &str) -> Result<()> {
        let lost = Installation { namespace: namespace.to_owned(), ..self.installation.clone() };
        apply(control_plane, &manifests(&lost)).await?;
        let installation = self.installation.namespace.clone();
        self.start_as(Service::SecretSyncer, &lost, &["--installation", &installation]).await
    }

    async fn start_as(&mut self, service: Service, installation: &Installation, more: &[&str]) -> Result<()> {
        let name = service.name();
        let identity = self.identities.get(name).context("an identity of every service")?;
        let log = self.log_file(service);
        let before = std::fs::read_to_string(&log).unwrap_or_default().len();
        let identity = identity.display().to_string();
        let (namespace, settings) = (installation.namespace.as_str(), installation.settings.as_str());
        let mut args = vec!["--namespace", namespace, "--settings", settings, "--kubeconfig", &identity];
        args.extend(["--listen", "127.0.0.1:0", "--log", "info,osm_runtime::watch=debug"]);
        let profile_namespaces = installation.profile_namespaces.join(",");
        if service != Service::SecretSyncer && !profile_namespaces.is_empty() {
            args.extend(["--profile-namespaces", &profile_namespaces]);
        }
        let pool_settings_namespaces = installation.pool_settings_namespaces.join(",");
        if service == Service::OscController {
            args.extend(["--pool-settings-namespaces", &pool_settings_namespaces]);
        }
        args.extend(more);
        let mut process =
            process::Service::spawn(&self.binaries.join(name), args, [("RUST_BACKTRACE", "1")], &log)?;
        let port = wait_for(&format!("{name} to serve"), START, async || {
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
        self.running.insert(name, Running { process, port });
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
    pub fn kill9(&mut self, service: Service) -> Result<()> {
        self.running.remove(service.name()).context("the service does not run")?.process.kill9()
    }

    /// Ends a service as Kubernetes does, and waits for it.
    ///
    /// # Errors
    /// When it does not run, or does not end in time.
    pub async fn terminate(&mut self, service: Service, deadline: Duration) -> Result<ExitStatus> {
        self.running
            .remove(service.name())
            .context("the service does not run")?
            .process
            .terminate(deadline)
            .await
    }

    /// The process of a running service.
    ///
    /// # Errors
    /// When it does not run.
    pub fn process(&self, service: Service) -> Result<&process::Service> {
        Ok(&self.running.get(service.name()).context("the service does not run")?.process)
    }

    /// Where a running service serves `/metrics`, `/livez` and `/readyz`.
    ///
    /// # Errors
    /// When it does not run.
    pub fn address(&self, service: Service) -> Result<String> {
        Ok(format!(
            "127.0.0.1:{}",
            self.running.get(service.name()).context("the service does not run")?.port
        ))
    }

    /// What a service answers to GET, as status code and body.
    ///
    /// # Errors
    /// When it does not run or answer.
    pub async fn get(&self, service: Service, path: &str) -> Result<(u16, String)> {
        let port = self.running.get(service.name()).context("the service does not run")?.port;
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").context("an HTTP answer")?;
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).context("a status code")?;
        Ok((code, body.to_owned()))
    }

    /// Whether a service says that it is ready.
    pub async fn is_ready(&self, service: Service) -> bool {
        self.get(service, "/readyz").await.is_ok_and(|(code, _)| code == 200)
    }

    /// Whether a service says that it lives.
    pub async fn is_alive(&self, service: Service) -> bool {
        self.get(service, "/livez").await.is_ok_and(|(code, _)| code == 200)
    }

    /// Waits until every running service is ready.
    ///
    /// # Errors
    /// After the deadline; says what is waited for.
    pub async fn ready(&self, deadline: Duration) -> Result<()> {
        for service in Service::ALL.into_iter().filter(|service| self.running.contains_key(service.name())) {
            wait_for(&format!("{} to be ready", service.name()), deadline, async || {
                let (code, body) = self.get(service, "/readyz").await?;
                ensure!(code == 200, "{body}");
                Ok(Some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// Log file of a service.
    #[must_use]
    pub fn log_file(&self, service: Service) -> PathBuf {
        self.logs.path().join(format!("{}.log", service.name()))
    }

    /// All that the services have logged.
    #[must_use]
    pub fn logs(&self) -> String {
        let read = |service: Service| std::fs::read_to_string(self.log_file(service)).unwrap_or_default();
        Service::ALL.map(|service| format!("== {}\n{}", service.name(), read(service))).join("\n")
    }
}

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
    control_plane.apply_yaml(&documents.join("\n---\n")).await.map(drop)
}

/// The admin server logs the address that it listens on.
fn port_in(log: &str) -> Option<u16> {
    log.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find_map(|line| line.get("address")?.as_str()?.rsplit_once(':')?.1.parse().ok())
}

/// Folder with the three binaries: `OSM_BIN_DIR`, else built by cargo in the profile of the running program.
///
/// # Errors
/// A build that fails.
pub fn binaries() -> Result<PathBuf> {
    use std::sync::OnceLock;
    static BUILT: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    if let Some(folder) = std::env::var_os("OSM_BIN_DIR") {
        return Ok(folder.into());
    }
    let built = BUILT.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    built.clone().map_err(anyhow::Error::msg)
}

fn build() -> Result<PathBuf> {
    let packages = Service::ALL.iter().flat_map(|service| ["--package", service.name()]);
    let status = std::process::Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .args(["build", "--quiet"])
        .args(packages)
        .status()
        .context("cargo can't be run")?;
    ensure!(status.success(), "the services can't be built: cargo build says why");
    // target/debug/deps/test-… → target/debug
    let program = std::env::current_exe()?;
    let folder = program.ancestors().find(|folder| folder.file_name().is_some_and(|name| name == "debug"));
    Ok(folder.context("not run from cargo's target folder: set OSM_BIN_DIR")?.to_owned())
}
