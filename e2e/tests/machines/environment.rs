//! The environment of machines under test, on this computer and without Internet access: a cluster with
//! Operating System Manager, a mirror and a registry.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::Api;
use osm_api::Settings;
use osm_api::config::OperatingSystemConfig;
use osm_api::names::{KUBE_SYSTEM, SETTINGS_KEY};
use osm_api::rbac::{Installation, Service};
use osm_lab::machines::{self, Accelerator, Image, Lab, System, isolation};
use osm_lab::release::{self, Kubelet};
use osm_lab::serve::files::FileServer;
use osm_lab::serve::programs::Registry;
use osm_lab::serve::relay::Relay;
use osm_testkit::control_plane::assets;
use osm_testkit::installation::{self, Installed};
use osm_testkit::{ControlPlane, Options};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::process::Command;

use super::air_gap::AirGap;
use osm_testkit::progress::Progress;

/// How long the services may take until their watches are synced and their rights checked.
const READY: Duration = Duration::from_secs(180);

/// Where machines find the API server.
const API: SocketAddr = SocketAddr::new(IpAddr::V4(machines::API), 6443);

/// The same for those who have only IPv6.
pub const API_IPV6: SocketAddr = SocketAddr::new(IpAddr::V6(machines::API_IPV6), API.port());

/// Where the mirror is.
const MIRROR: SocketAddr = SocketAddr::new(IpAddr::V4(machines::HOST), 80);

/// Where the registry is.
pub const REGISTRY: SocketAddr = SocketAddr::new(IpAddr::V4(machines::HOST), 5000);

/// At all addresses, of both families.
const REGISTRY_LISTENS: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), REGISTRY.port());

/// What machines run for the test; every registry's name leads to the registry of the environment.
pub const TEST_IMAGE: &str = "registry.example.com/osm/node-test:1";

/// Changes a settings document.
pub type SettingsChange = fn(&mut Value) -> Result<()>;

/// The environment. Its parts end when it is dropped.
pub struct Environment {
    /// Machines and their network.
    pub lab: Lab,
    /// etcd, kube-apiserver, kube-controller-manager, kube-scheduler.
    pub control_plane: ControlPlane,
    /// How the services are installed.
    pub installation: Installation,
    services: Mutex<Option<Installed>>,
    /// Between machines and the API server.
    pub relay: Relay,
    /// What nodes download from.
    pub mirror: FileServer,
    /// What `osmctl urls` says that they do.
    pub urls: Vec<String>,
    /// What containers are pulled from.
    pub registry: Registry,
    /// The settings of docs/air-gap.md.
    settings: Value,
    /// Digest of those that are in force.
    in_force: Mutex<String>,
}

/// Everything that is built or downloaded beforehand, while there is a network. `other_kubelets` are minor
/// versions.
pub async fn prepare(systems: &[System], other_kubelets: &[&str], progress: Progress) -> Result<()> {
    progress.step(
        "etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl: looking for the binaries",
    );
    assets::ensure(&options().components(), |line| progress.step(line)).await?;
    progress.step("kubelet, containerd, runc, CNI plugins: looking for the releases");
    release::mirror(Environment::KUBELET_VERSION, |line| progress.step(line)).await?;
    for minor in other_kubelets {
        Kubelet::ensure(minor, |line| progress.step(line)).await?;
    }
    release::images(|line| progress.step(line)).await?;
    for system in systems {
        progress.step(&format!("{system}: looking for the image"));
        let system = system.clone();
        tokio::task::spawn_blocking(move || Image::ensure(&system, |line| progress.step(line))).await??;
    }
    Ok(())
}

fn options() -> Options {
    Options {
        nodes: Some(machines::API),
        nodes_ipv6: Some(machines::API_IPV6),
        ..Options::default()
    }
}

/// Where servers listen for those who have only IPv6.
fn by_ipv6(ipv4: SocketAddr) -> SocketAddr {
    SocketAddr::new(machines::HOST_IPV6.into(), ipv4.port())
}

/// Copies the logs of services and control plane into a folder, also where not all of them were started.
pub fn save_logs(folder: &Path) -> Result<()> {
    let directory = isolation::directory().context("machines need namespaces of their own")?;
    std::fs::create_dir_all(folder)?;
    for log in std::fs::read_dir(directory.join(machines::LOGS))? {
        let log = log?;
        std::fs::copy(log.path(), folder.join(log.file_name()))?;
    }
    Ok(())
}

/// As pools' configs name the settings that they were rendered with.
fn digest_of(settings: &Value) -> Result<String> {
    Ok(Settings::from_document(settings.clone())?.digest()?)
}

impl Environment {
    /// The version of most kubelets.
    pub const KUBELET_VERSION: &str = "1.34.4";

    /// Sets it up; `binaries` is the folder of the services and of osmctl.
    pub async fn start(accelerator: Accelerator, binaries: &Path, progress: Progress) -> Result<Self> {
        let mut lab = Lab::new(accelerator)?;
        progress.step("starting the control plane");
        let logs = lab.directory().join(machines::LOGS);
        let control_plane = ControlPlane::start(Options {
            logs: Some(logs.clone()),
            ..options()
        })
        .await?;
        let upstream = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), control_plane.port());
        let relay = Relay::start(&[API, API_IPV6], upstream)?;

        progress.step("filling the mirror, as docs/air-gap.md says");
        let releases = release::mirror(Self::KUBELET_VERSION, |line| progress.step(line)).await?;
        let kubectl = control_plane.kubectl()?;
        let air_gap =
            AirGap::follow(lab.directory(), &releases, binaries, &kubectl, MIRROR, REGISTRY).await?;
        let mirror = FileServer::start(&[MIRROR, by_ipv6(MIRROR)], &air_gap.mirror())?;
        let images = release::images(|line| progress.step(line)).await?;
        let registry = Registry::start(&lab.directory().join("registry"), REGISTRY_LISTENS, None)?;
        registry.push("pause:3.10.1", &images.pause)?;
        registry.push("osm/node-test:1", &images.node_test)?;

        let settings = air_gap.settings()?;
        // Not before, because the server of docs/air-gap.md listens on the port of all addresses.
        lab.serve_metadata()?;

        progress.step("installing Operating System Manager");
        let mut installed = Installed::install(&control_plane, Installation::default(), binaries).await?;
        installed.log_to(&logs);
        let cluster_info = installation::cluster_info(control_plane.ca_pem(), &format!("https://{API}"));
        installation::apply(&control_plane, &[cluster_info, network_plugin()]).await?;
        air_gap
            .put_in_force(&control_plane.admin_kubeconfig_path())
            .await?;
        installed.start_all().await?;
        installed.ready(READY).await?;
        Ok(Self {
            lab,
            control_plane,
            installation: installed.installation().clone(),
            services: Mutex::new(Some(installed)),
            relay,
            mirror,
            urls: air_gap.urls()?,
            in_force: Mutex::new(digest_of(&settings)?),
            settings,
            registry,
        })
    }

    /// Puts settings in force: those of docs/air-gap.md, perhaps changed. [`Self::is_published`] tells when a
    /// pool has them.
    pub async fn put_in_force(&self, change: Option<SettingsChange>) -> Result<()> {
        let mut document = self.settings.clone();
        if let Some(change) = change {
            change(&mut document)?;
        }
        let digest = digest_of(&document)?;
        // What the page has put there stays as it is until other settings are asked for.
        if digest != self.in_force() {
            let config_map = installation::settings(&self.installation, &document.to_string());
            installation::apply(&self.control_plane, &[config_map]).await?;
            *self.in_force.lock() = digest;
        }
        Ok(())
    }

    fn in_force(&self) -> String {
        self.in_force.lock().clone()
    }

    /// An error that says why, unless a pool's documents are published for a revision with the settings in
    /// force.
    pub async fn is_published(&self, config: &str, revision: &str) -> Result<()> {
        let namespace = &self.installation.namespace;
        let api = Api::<OperatingSystemConfig>::namespaced(self.control_plane.admin()?, namespace);
        let object = api.get(config).await?;
        let conditions = object.status.iter().flat_map(|status| &status.conditions);
        let complaints: Vec<_> = conditions
            .filter(|condition| condition.status != "True")
            .collect();
        let Some(rendered) = object.stored() else {
            bail!("{config} is not rendered: {complaints:?}");
        };
        ensure!(
            rendered.settings_digest == Some(self.in_force()),
            "{config} is not rendered with the settings in force: {complaints:?}"
        );
        ensure!(
            object.is_published(revision),
            "what is rendered of {config} is not published: {complaints:?}"
        );
        Ok(())
    }

    /// The node of a machine, if it has registered.
    pub async fn node(&self, name: &str) -> Result<Option<Node>> {
        Ok(Api::<Node>::all(self.control_plane.admin()?)
            .get_opt(name)
            .await?)
    }

    /// Kills the services.
    pub fn stop_services(&self) {
        *self.services.lock() = None;
    }

    fn stop(&self, service: Service) -> Result<()> {
        let mut services = self.services.lock();
        services.as_mut().context("no service runs")?.kill9(service)
    }

    /// As with the chart's value `joining: static`: no approver runs, and kube-controller-manager approves.
    ///
    /// # Errors
    /// A service that does not run, and requests that failed.
    pub async fn join_without_approver(&self) -> Result<()> {
        self.stop(Service::CsrApprover)?;
        installation::apply(&self.control_plane, &[installation::node_client()]).await
    }

    /// Deletes everything that was installed for the services, with all that they have published.
    pub async fn uninstall(&self) -> Result<()> {
        let mut objects = installation::manifests(&self.installation);
        objects.push(installation::settings(&self.installation, ""));
        // The API server refuses to delete this one.
        let name = |object: &Value| object.pointer("/metadata/name").cloned();
        objects.retain(|object| {
            object.get("kind") != Some(&json!("Namespace")) || name(object) != Some(json!(KUBE_SYSTEM))
        });
        let file = self.lab.directory().join("uninstall.json");
        std::fs::write(
            &file,
            json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string(),
        )?;
        let crds = installation::crds();
        for path in [&crds, &file] {
            let path = path.display().to_string();
            self.kubectl(&["delete", "--ignore-not-found", "--filename", &path])
                .await?;
        }
        Ok(())
    }

    /// Takes the settings that are in the cluster now for those that pools have to be published with.
    pub async fn read_settings(&self) -> Result<()> {
        let (namespace, name) = (&self.installation.namespace, &self.installation.settings);
        let config_map = Api::<ConfigMap>::namespaced(self.control_plane.admin()?, namespace)
            .get(name)
            .await?;
        let data = config_map.data.unwrap_or_default();
        let document = Settings::document(data.get(SETTINGS_KEY).context(SETTINGS_KEY)?)?;
        *self.in_force.lock() = digest_of(&document)?;
        Ok(())
    }

    /// Runs kubectl as the cluster's administrator.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let kubeconfig = self.control_plane.admin_kubeconfig_path();
        let output = Command::new(self.control_plane.kubectl()?)
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .context("kubectl can't be run")?;
        ensure!(
            output.status.success(),
            "kubectl {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// A network plugin as clusters have it: a DaemonSet whose pod puts its configuration on the node.
fn network_plugin() -> Value {
    let configuration = json!({"cniVersion": "1.0.0", "name": "lab", "plugins": [
        {"type": "bridge", "bridge": "cni0", "isGateway": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.1.0/24"}], [{"subnet": "fd00:10:244:1::/64"}]],
                "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}},
    ]});
    let labels = json!({"app": "network-plugin"});
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "network-plugin", "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "hostNetwork": true,
                    "tolerations": [{"operator": "Exists"}],
                    "priorityClassName": "system-node-critical",
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{
                        "name": "install",
                        "image": TEST_IMAGE,
                        "args": ["install-cni", "/host/etc/cni/net.d/10-lab.conflist"],
                        "env": [{"name": "CNI_CONFIG", "value": configuration.to_string()}],
                        "volumeMounts": [{"name": "cni", "mountPath": "/host/etc/cni/net.d"}],
                    }],
                    "volumes": [{"name": "cni", "hostPath": {"path": "/etc/cni/net.d", "type": "DirectoryOrCreate"}}],
                },
            },
        },
    })
}
