//! A whole cluster on this machine: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and a node that runs pods.
//!
//! The node does not boot from our user data: its image contains its programs and their configuration. It has no kube-proxy, and the cluster
//! has no DNS. Pods only need the API server at its service address. That is an address of the host, which the default route of the node
//! reaches.

mod node;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

pub use self::node::NODE;
use crate::machines::{self, Accelerator, Image, Lab, Machine, Release, System};
use crate::release;
use crate::serve::oci;
use crate::serve::relay::Relay;
use osm_testkit::control_plane::{SERVICE_ADDRESS, assets};
use osm_testkit::{ControlPlane, Options, wait_for};

/// How long the node may take from its boot until it is Ready.
const READY: Duration = Duration::from_secs(180);

/// How long the node may take until it runs commands.
const RUNS_COMMANDS: Duration = Duration::from_secs(60);

/// How long containerd may take until it takes images.
const SERVES: Duration = Duration::from_secs(120);

/// How often it is looked whether the node has booted.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// What the node runs.
const SYSTEM: System = System::Debian(Release::Debian12);

/// A cluster. Its parts end when it is dropped.
pub struct Cluster {
    // In the order in which they are dropped.
    node: Machine,
    _service: Relay,
    /// What pods and people talk to.
    pub control_plane: ControlPlane,
    /// The network that it is on. [`machines::HOST`] is how pods reach servers of this process.
    pub lab: Lab,
}

/// Everything that is built or downloaded beforehand, while there is a network.
///
/// # Errors
/// What can't be built, with its reason.
pub async fn prepare(progress: impl Fn(&str)) -> Result<()> {
    assets::ensure(&options().components(), &progress).await?;
    release::programs(&progress).await?;
    release::images(&progress).await?;
    // Making an image blocks; nobody else waits for this thread.
    tokio::task::block_in_place(|| Image::ensure(&SYSTEM, &progress).map(drop))
}

fn options() -> Options {
    Options {
        nodes: Some(machines::HOST),
        ..Options::default()
    }
}

impl Cluster {
    /// Starts it, and waits until the node is Ready. Only within [`machines::isolation::enter`]; programs log to `logs`, which must be there.
    ///
    /// # Errors
    /// What does not start, or a node that does not become Ready, which leaves its console and journal in `logs`.
    pub async fn start(accelerator: Accelerator, logs: &Path) -> Result<Self> {
        let lab = Lab::new(accelerator)?;
        let control_plane = ControlPlane::start(Options {
            logs: Some(logs.to_owned()),
            ..options()
        })
        .await?;
        let service: Ipv4Addr = SERVICE_ADDRESS.parse()?;
        lab.add_address(service)?;
        let apiserver = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), control_plane.port());
        let relay = Relay::start(&[SocketAddr::new(service.into(), 443)], apiserver)?;
        let programs = release::programs(|_| ()).await?;
        let image = tokio::task::block_in_place(|| Image::ensure(&SYSTEM, |_| ()))?;
        let node = node::boot(&lab, &control_plane, &programs, &image)?;
        let mut cluster = Self {
            node,
            _service: relay,
            control_plane,
            lab,
        };
        if let Err(error) = cluster.come_up().await {
            return Err(match cluster.node.save_logs(logs) {
                Ok(()) => error,
                Err(unsaved) => error.context(format!("the logs of the node are not saved: {unsaved:#}")),
            });
        }
        Ok(cluster)
    }

    async fn come_up(&mut self) -> Result<()> {
        let started = Instant::now();
        while let Err(error) = tokio::task::block_in_place(|| self.node.run(&["true"])) {
            self.node.lives()?;
            if started.elapsed() > self.patience(RUNS_COMMANDS) {
                return Err(error.context("the node does not boot"));
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        let pause = release::images(|_| ()).await?.pause;
        self.import(&oci::archive(node::PAUSE, &pause)?).await?;
        self.ready().await
    }

    /// How long something may take on the node that takes `time` on the host itself.
    #[must_use]
    pub fn patience(&self, time: Duration) -> Duration {
        time * self.lab.accelerator.slowness()
    }

    async fn ready(&self) -> Result<()> {
        let timeout = format!("--timeout={}s", self.patience(READY).as_secs());
        for condition in ["--for=create", "--for=condition=Ready"] {
            self.kubectl(&["wait", condition, &timeout, &format!("node/{NODE}")])
                .await?;
        }
        Ok(())
    }

    /// Gives the node an image from an archive, with the name that it has in it.
    ///
    /// # Errors
    /// When containerd does not take it.
    pub async fn import(&self, archive: &[u8]) -> Result<()> {
        let path = "/root/image.tar";
        self.node.write(path, archive).context("the node's disk")?;
        let import = ["/opt/bin/ctr", "--namespace=k8s.io", "images", "import", path];
        wait_for("containerd to take an image", self.patience(SERVES), async || {
            tokio::task::block_in_place(|| self.node.run(&import)).map(Some)
        })
        .await?;
        self.node.run(&["rm", path]).map(drop)
    }

    /// Runs kubectl as the cluster's administrator, and gives what it prints.
    ///
    /// # Errors
    /// When it fails, with what it says.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        kubectl(&self.control_plane, arguments).await
    }

    /// A kubeconfig of the cluster's administrator, for programs of the host.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.control_plane.admin_kubeconfig_path()
    }

    /// Copies what the node tells into a folder: console, journal, and the logs of all containers that are not removed yet.
    ///
    /// # Errors
    /// When a file can't be written.
    pub fn save_node_logs(&self, folder: &Path) -> Result<()> {
        self.node.save_logs(folder)?;
        // A link of a container that is gone leads nowhere.
        let logs = self.node.run(&[
            "sh",
            "-c",
            "tail -n +1 /var/log/containers/*.log 2>/dev/null || true",
        ]);
        let logs = logs.unwrap_or_else(|error| format!("{error:#}\n"));
        std::fs::write(folder.join("containers.log"), logs).context("containers.log")
    }
}

/// Runs kubectl as the administrator of a cluster, and gives what it prints.
///
/// # Errors
/// When it fails, with what it says.
pub async fn kubectl(control_plane: &ControlPlane, arguments: &[&str]) -> Result<String> {
    let kubeconfig = control_plane.admin_kubeconfig_path();
    let output = Command::new(control_plane.kubectl()?)
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
