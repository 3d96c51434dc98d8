//! An air-gapped site on this machine: a cluster, Operating System Manager in it, a mirror and a registry, and room for machines.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::PostParams;
use osm_api::rbac::Installation;
use osm_testkit::control_plane::assets;
use osm_testkit::installation::{self, Installed};
use osm_testkit::lab::processes::Watcher;
use osm_testkit::lab::{self, Image, Lab, Release};
use osm_testkit::serve::files::FileServer;
use osm_testkit::serve::metadata::InstanceMetadata;
use osm_testkit::serve::oci;
use osm_testkit::serve::registry::Registry;
use osm_testkit::serve::relay::{Identities, Relay};
use osm_testkit::{ControlPlane, Options, machine_controller, release};
use serde_json::json;
use tokio::task::JoinHandle;

use super::air_gap::AirGap;
use crate::progress::Progress;

/// How long the services may take until their watches are synced and their rights checked.
const READY: Duration = Duration::from_secs(30);

/// Where machines find the API server.
const API: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(lab::API), 6443);

/// Where the mirror is.
const MIRROR: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(lab::HOST), 80);

/// Where the registry is.
const REGISTRY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(lab::HOST), 5000);

/// Where clouds have their metadata services.
const METADATA: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(lab::METADATA), 80);

/// What machines run for the test; any registry's name leads to the site's registry.
pub const TEST_IMAGE: &str = "registry.example.com/osm/node-test:1";

/// The site. Its parts end when it is dropped.
pub struct Site {
    /// Machines and their network.
    pub lab: Lab,
    /// etcd, kube-apiserver, kube-controller-manager, kube-scheduler.
    pub control_plane: ControlPlane,
    /// The three services.
    pub installed: Installed,
    /// Between machines and the API server.
    pub relay: Relay,
    /// What nodes download from.
    pub mirror: FileServer,
    /// What `osmctl urls` says that they do.
    pub urls: Vec<String>,
    /// What containers are pulled from.
    pub registry: Registry,
    /// What all process lists have shown.
    pub processes: Watcher,
    /// What machines on AWS ask for their names.
    pub metadata: InstanceMetadata,
    _approver: JoinHandle<()>,
}

/// Everything that is built or downloaded beforehand, while there is a network.
pub async fn prepare(releases: &[Release], progress: Progress) -> Result<()> {
    progress.step(
        "etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl: looking for the binaries",
    );
    assets::ensure(&options().components(), |line| progress.step(line)).await?;
    progress.step("kubelet, containerd, runc, CNI plugins: looking for the releases");
    release::mirror(Site::KUBELET_VERSION, |line| progress.step(line)).await?;
    release::images(|line| progress.step(line)).await?;
    for &release in releases {
        progress.step(&format!("{release}: looking for the image"));
        tokio::task::spawn_blocking(move || Image::ensure(release, |line| progress.step(line))).await??;
    }
    Ok(())
}

fn options() -> Options {
    Options { nodes: Some(lab::API), ..Options::default() }
}

impl Site {
    /// The version of the kubelets, which is the control plane's.
    pub const KUBELET_VERSION: &str = "1.34.4";

    /// The domain of machines on AWS.
    pub const AWS_DOMAIN: &str = "eu-west-1.compute.internal";

    /// Sets it up; `binaries` is the folder of the services and of osmctl.
    pub async fn start(binaries: &Path, progress: Progress) -> Result<Self> {
        let lab = Lab::new()?;
        let processes = Watcher::start();
        progress.step("starting the control plane");
        let control_plane = ControlPlane::start(options()).await?;
        let upstream = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), control_plane.port());
        let identities =
            Identities::issue(control_plane.ca_pem(), &control_plane.ca_key_pem()?, &[API.ip()])?;
        let relay = Relay::start(API, upstream, &identities)?;

        progress.step("filling the mirror, as docs/air-gap.md says");
        let releases = release::mirror(Self::KUBELET_VERSION, |line| progress.step(line)).await?;
        let kubectl = control_plane.kubectl()?;
        let air_gap =
            AirGap::follow(lab.directory(), &releases, binaries, &kubectl, MIRROR, REGISTRY).await?;
        let mirror = FileServer::start(MIRROR, &air_gap.mirror())?;
        let images = release::images(|line| progress.step(line)).await?;
        let registry = Registry::start(
            REGISTRY,
            [
                oci::Image::from_binary("pause", "3.10.1", &images.pause, &[])?,
                oci::Image::from_binary("osm/node-test", "1", &images.node_test, &[])?,
            ],
        )?;

        let metadata = InstanceMetadata::start(METADATA, Self::AWS_DOMAIN)?;

        progress.step("installing Operating System Manager");
        let mut installed = Installed::install(&control_plane, Installation::default(), binaries).await?;
        let cluster_info = installation::cluster_info(&control_plane, &format!("https://{API}"));
        installation::apply(&control_plane, &[cluster_info, network_plugin()]).await?;
        air_gap.put_in_force(&control_plane.admin_kubeconfig_path()).await?;
        installed.start_all().await?;
        installed.ready(READY).await?;
        let approver = tokio::spawn(machine_controller::approve_serving_certificates(control_plane.admin()?));
        Ok(Self {
            lab,
            control_plane,
            installed,
            relay,
            mirror,
            urls: air_gap.urls()?,
            registry,
            metadata,
            processes,
            _approver: approver,
        })
    }

    /// The node of a machine, if it has registered.
    pub async fn node(&self, name: &str) -> Result<Option<Node>> {
        Ok(Api::<Node>::all(self.control_plane.admin()?).get_opt(name).await?)
    }

    /// Whether the API server takes a token.
    pub async fn is_valid(&self, token: &str) -> Result<bool> {
        let who = Api::<SelfSubjectReview>::all(self.control_plane.client(token)?);
        match who.create(&PostParams::default(), &SelfSubjectReview::default()).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 401 => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Runs kubectl as the cluster's administrator.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let output = tokio::process::Command::new(self.control_plane.kubectl()?)
            .arg(format!("--kubeconfig={}", self.control_plane.admin_kubeconfig_path().display()))
            .args(arguments)
            .kill_on_drop(true)
            .output()
            .await
            .context("kubectl can't be run")?;
        let said = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "kubectl {}: {}", arguments.join(" "), said.trim_end());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Copies the logs of services and control plane into a folder.
    pub fn save_logs(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("services.log"), self.installed.logs())?;
        let requests = [format!("{:#?}", self.mirror.requests()), format!("{:#?}", self.registry.requests())];
        std::fs::write(folder.join("requests.log"), requests.join("\n"))?;
        std::fs::write(folder.join("relay.log"), format!("{:#?}", self.relay.requests()))?;
        for log in self.control_plane.log_files()? {
            let name = log.file_name().map(PathBuf::from).unwrap_or_default();
            std::fs::copy(&log, folder.join(name))?;
        }
        Ok(())
    }
}

/// A network plugin as clusters have it: a DaemonSet whose pod puts its configuration on the node.
fn network_plugin() -> serde_json::Value {
    let configuration = json!({"cniVersion": "1.0.0", "name": "lab", "plugins": [
        {"type": "bridge", "bridge": "cni0", "isGateway": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.1.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
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
