//! The binaries of the control plane: from `KUBEBUILDER_ASSETS`, else built from the Go module in `e2e/`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use osm_judges::go_module::{Flags, GoModule, required_version};

/// A program of the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// The store behind the API server.
    Etcd,
    KubeApiserver,
    /// The built-in controllers; not among what `setup-envtest` installs.
    KubeControllerManager,
    /// What gives pods their nodes; not among what `setup-envtest` installs.
    KubeScheduler,
    /// The command line, for tests that look at a cluster as people do.
    Kubectl,
}

impl Component {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kubectl => "kubectl",
        }
    }

    fn go_package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::KubeApiserver => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::KubeControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Self::KubeScheduler => "k8s.io/kubernetes/cmd/kube-scheduler",
            Self::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Assets(BTreeMap<Component, PathBuf>);

impl Assets {
    /// The binary of `component`.
    ///
    /// # Errors
    /// When [`ensure`] was not asked for it.
    pub fn path(&self, component: Component) -> Result<&Path> {
        let path = self.0.get(&component).map(PathBuf::as_path);
        path.with_context(|| format!("{} was not asked for", component.name()))
    }
}

/// Makes sure that the components' binaries exist; builds only what is asked for and not there yet. A cold
/// build of etcd and kube-apiserver takes minutes, so `progress` is told what happens, a line at a time.
///
/// # Errors
/// When Go is missing or a build fails.
pub async fn ensure(components: &[Component], progress: impl Fn(&str)) -> Result<Assets> {
    let given = std::env::var_os("KUBEBUILDER_ASSETS")
        .filter(|directory| !directory.is_empty())
        .map(PathBuf::from);
    let mut paths = BTreeMap::new();
    for &component in components {
        let name = component.name();
        let given = given
            .as_ref()
            .map(|directory| directory.join(name))
            .filter(|path| path.is_file());
        let path = match given {
            Some(path) => path,
            None => {
                go_module()?
                    .build(name, component.go_package(), &progress)
                    .await?
            }
        };
        paths.insert(component, path);
    }
    Ok(Assets(paths))
}

/// [`ensure`] for the terminal: progress goes to standard error.
///
/// # Errors
/// As [`ensure`].
pub async fn ensure_verbosely(components: &[Component]) -> Result<Assets> {
    ensure(components, |line| eprintln!("{line}")).await
}

/// The module of all Kubernetes programs.
///
/// # Errors
/// When its go.mod or go.sum cannot be read, or names no version of Kubernetes.
pub fn go_module() -> Result<GoModule> {
    let flags = kubernetes_flags(&kubernetes_version()?);
    GoModule::new(&go_module_directory(), "control-plane", flags)
}

/// How programs of Kubernetes are compiled, so that they name this version (`v1.36.3`).
#[must_use]
pub fn kubernetes_flags(version: &str) -> Flags {
    Flags {
        ldflags: ldflags(version),
        ..Flags::default()
    }
}

/// The version of Kubernetes in go.mod, such as `v1.36.3`.
///
/// # Errors
/// When go.mod cannot be read, or does not require Kubernetes.
pub fn kubernetes_version() -> Result<String> {
    required_version(&go_module_directory(), "k8s.io/kubernetes")
}

/// The folder `e2e`, which has the go.mod of Kubernetes.
#[must_use]
pub fn go_module_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e")
}

/// Without these a program would call itself v0.0.0.
fn ldflags(version: &str) -> String {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (
        numbers.next().unwrap_or_default(),
        numbers.next().unwrap_or_default(),
    );
    let variable = "k8s.io/component-base/version.git";
    format!("-s -w -X {variable}Version={version} -X {variable}Major={major} -X {variable}Minor={minor}")
}
