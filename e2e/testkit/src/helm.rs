//! Builds Helm from the Go module in `e2e/helm`, and the chart of this repository.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::process::Command;

use crate::ControlPlane;
use crate::control_plane::assets;
use crate::process::ScratchDir;
use osm_judges::go_module::{Flags, GoModule, required_version};

#[must_use]
pub fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/operating-system-manager")
}

/// The values of the chart's `ci` directory, in the order of their names: each a topology, or a way of
/// installing.
///
/// # Errors
/// When the directory can't be read.
pub fn ci_values() -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(chart().join("ci"))?;
    let mut files = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

/// The registry in the names of images that `cargo xtask image` does not push. Nothing is ever pulled from
/// it.
pub const REGISTRY: &str = "registry.example.com/osm";

/// The binary of Helm 3, from the cache, else built.
///
/// # Errors
/// When Go is missing or the build fails.
pub async fn program(progress: impl Fn(&str)) -> Result<PathBuf> {
    module_3()?
        .build("helm", "helm.sh/helm/v3/cmd/helm", progress)
        .await
}

/// As [`program`], of Helm 4.
///
/// # Errors
/// When Go is missing or the build fails.
pub async fn program_4(progress: impl Fn(&str)) -> Result<PathBuf> {
    let directory = assets::go_module_directory().join("helm/v4");
    let version = required_version(&directory, "helm.sh/helm/v4")?;
    let flags = Flags {
        ldflags: format!("-s -w -X helm.sh/helm/v4/internal/version.version={version}"),
        ..Flags::default()
    };
    GoModule::new(&directory, "helm", flags)?
        .build("helm", "helm.sh/helm/v4/cmd/helm", progress)
        .await
}

/// KubeOne's code that applies the Helm releases of a manifest, as the module in `e2e/helm/kubeone`
/// describes.
///
/// # Errors
/// When Go is missing or the build fails.
pub async fn kubeone(progress: impl Fn(&str)) -> Result<PathBuf> {
    let flags = Flags {
        ldflags: "-s -w".to_owned(),
        ..Flags::default()
    };
    let directory = assets::go_module_directory().join("helm/kubeone");
    GoModule::new(&directory, "kubeone", flags)?
        .build("kubeone", ".", progress)
        .await
}

fn module_3() -> Result<GoModule> {
    let directory = assets::go_module_directory().join("helm");
    let version = required_version(&directory, "helm.sh/helm/v3")?;
    // Without a cluster, Helm renders for the Kubernetes that it was built for, which only its linker flags
    // say.
    let kubernetes = assets::kubernetes_version()?;
    let mut numbers = kubernetes.trim_start_matches('v').split('.');
    let (major, minor) = (
        numbers.next().unwrap_or_default(),
        numbers.next().unwrap_or_default(),
    );
    let of = |package: &str| {
        let variable = format!("helm.sh/helm/v3/pkg/{package}.k8sVersion");
        format!("-X {variable}Major={major} -X {variable}Minor={minor}")
    };
    let (capabilities, lint) = (of("chartutil"), of("lint/rules"));
    let ldflags =
        format!("-s -w -X helm.sh/helm/v3/internal/version.version={version} {capabilities} {lint}");
    GoModule::new(
        &directory,
        "helm",
        Flags {
            ldflags,
            ..Flags::default()
        },
    )
}

/// Helm, with files of its own, for one cluster or none.
#[derive(Debug)]
pub struct Helm {
    program: PathBuf,
    kubeconfig: PathBuf,
    scratch: ScratchDir,
}

impl Helm {
    /// For a control plane, as who may do everything.
    ///
    /// # Errors
    /// When helm can't be built.
    pub async fn new(control_plane: &ControlPlane) -> Result<Self> {
        Ok(Self {
            kubeconfig: control_plane.admin_kubeconfig_path(),
            ..Self::without_cluster().await?
        })
    }

    /// As [`Self::new`], of Helm 4.
    ///
    /// # Errors
    /// When helm can't be built.
    pub async fn version_4(control_plane: &ControlPlane) -> Result<Self> {
        Ok(Self {
            program: program_4(|line| eprintln!("{line}")).await?,
            ..Self::new(control_plane).await?
        })
    }

    /// Under another name, under which Helm 4 applies objects (`getManagedFieldsManager` in its
    /// pkg/kube/client.go).
    ///
    /// # Errors
    /// When no link can be made.
    pub fn named(mut self, name: &str) -> Result<Self> {
        let link = self.scratch.path().join(name);
        std::os::unix::fs::symlink(&self.program, &link)?;
        self.program = link;
        Ok(self)
    }

    /// For rendering.
    ///
    /// # Errors
    /// When helm can't be built.
    pub async fn without_cluster() -> Result<Self> {
        let program = program(|line| eprintln!("{line}")).await?;
        Ok(Self {
            program,
            kubeconfig: "/dev/null".into(),
            scratch: ScratchDir::new("osm-helm-")?,
        })
    }

    /// The command with these arguments.
    pub fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let mut command = self.prepared(Command::new(&self.program));
        command.args(arguments);
        command
    }

    /// A shell whose `helm` is this one.
    pub fn shell(&self, script: &str) -> Command {
        let mut path = self
            .program
            .parent()
            .map(Path::to_owned)
            .unwrap_or_default()
            .into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let mut command = self.prepared(Command::new("sh"));
        command.args(["-eu", "-c", script]).env("PATH", path);
        command
    }

    fn prepared(&self, mut command: Command) -> Command {
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HELM_CACHE_HOME", self.scratch.path())
            .env("HELM_CONFIG_HOME", self.scratch.path())
            .env("HELM_DATA_HOME", self.scratch.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs it, whatever comes of it.
    ///
    /// # Errors
    /// When it can't be run.
    pub async fn output<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<Output> {
        self.command(arguments)
            .output()
            .await
            .context("helm can't be run")
    }

    /// Runs it; gives what it prints.
    ///
    /// # Errors
    /// When it fails, with its words.
    pub async fn run<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Result<String> {
        let output = self.output(arguments).await?;
        let (stdout, stderr) = (
            String::from_utf8(output.stdout)?,
            String::from_utf8_lossy(&output.stderr).into_owned(),
        );
        ensure!(
            output.status.success(),
            "helm failed ({}):\n{stdout}{stderr}",
            output.status
        );
        Ok(stdout)
    }

    /// Renders the chart for a release in a namespace, with images from [`REGISTRY`]; gives its objects.
    ///
    /// # Errors
    /// When helm refuses, or what it renders is not YAML.
    pub async fn template(&self, release: &str, namespace: &str, more: &[&str]) -> Result<Vec<Value>> {
        let chart = chart().display().to_string();
        let registry = format!("--set=image.registry={REGISTRY}");
        let mut arguments = vec!["template", release, &chart, "--namespace", namespace, &registry];
        arguments.extend(more);
        let documents: Vec<Value> = serde_saphyr::from_multiple(&self.run(arguments).await?)?;
        Ok(documents
            .into_iter()
            .filter(|document| !document.is_null())
            .collect())
    }
}
