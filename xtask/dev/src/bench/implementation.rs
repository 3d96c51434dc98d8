//! Starts the implementations that are measured: the services of this commit, and commands.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use osm_api::rbac::{ClusterKind, Installation, Service};
use osm_testkit::ControlPlane;
use osm_testkit::installation::{self, Installed};
use osm_testkit::process::{self, ScratchDir};
use serde_json::json;

use super::pools::{NAMESPACE, PROFILE};

/// ServiceAccount of commands, which may do everything.
const ACCOUNT: &str = "bench-command";

#[derive(Clone)]
pub enum Implementation {
    /// The services in this folder.
    Services(PathBuf),
    /// A command for `sh -c`.
    Command { name: String, command: String },
}

/// Parses the value of `--compare`.
pub fn parse(text: &str) -> std::result::Result<Implementation, String> {
    match text.split_once('=') {
        Some((name, command)) if !name.is_empty() && !command.is_empty() => Ok(Implementation::Command {
            name: name.to_owned(),
            command: command.to_owned(),
        }),
        _ => Err("expected NAME=COMMAND, such as `other=./other --kubeconfig $KUBECONFIG`".to_owned()),
    }
}

impl Implementation {
    pub fn name(&self) -> &str {
        match self {
            Self::Services(_) => "this commit",
            Self::Command { name, .. } => name,
        }
    }

    /// Starts it on a new control plane.
    pub async fn start(&self, plane: &ControlPlane, timeout: Duration) -> Result<Running> {
        let installation = Installation::default();
        let mut running = match self {
            Self::Services(binaries) => {
                let installed = Installed::install(plane, installation, binaries).await?;
                Running::Services(Box::new(installed))
            }
            Self::Command { command, .. } => {
                installation::prepare(plane, &installation, &ClusterKind::ALL).await?;
                let directory = ScratchDir::new("osm-bench-")?;
                Running::Command {
                    environment: environment(plane, directory.path()).await?,
                    command: command.clone(),
                    process: None,
                    directory,
                }
            }
        };
        running.start(timeout).await?;
        Ok(running)
    }
}

/// An implementation that runs. Dropping it ends it.
pub enum Running {
    Services(Box<Installed>),
    /// A command. Its process is dropped before the directory that it writes to.
    Command {
        command: String,
        environment: BTreeMap<&'static str, String>,
        process: Option<process::Service>,
        directory: ScratchDir,
    },
}

impl Running {
    async fn start(&mut self, timeout: Duration) -> Result<()> {
        match self {
            Self::Services(installed) => {
                installed.start_all().await?;
                installed.ready(timeout).await
            }
            Self::Command {
                command,
                environment,
                process,
                directory,
            } => {
                let (shell, log) = (Path::new("/bin/sh"), directory.path().join("log"));
                let arguments = ["-c", command.as_str()];
                *process = Some(process::Service::spawn(shell, arguments, &*environment, &log)?);
                Ok(())
            }
        }
    }

    /// Kills all processes, and starts them again.
    pub async fn restart(&mut self, timeout: Duration) -> Result<()> {
        match self {
            Self::Services(installed) => Service::ALL
                .into_iter()
                .try_for_each(|service| installed.kill9(service))?,
            Self::Command { process, .. } => drop(process.take()),
        }
        self.start(timeout).await
    }

    /// Ids of its processes. What a command starts belongs to it, as long as it stays in its process group.
    pub fn processes(&self) -> Result<Vec<u32>> {
        match self {
            Self::Services(installed) => Service::ALL
                .into_iter()
                .map(|service| Ok(installed.process(service)?.pid()))
                .collect(),
            Self::Command { process, .. } => {
                let group = process.as_ref().context("the command was not started")?.group()?;
                ensure!(!group.is_empty(), "the command ended by itself");
                Ok(group)
            }
        }
    }

    /// The end of what it has logged.
    pub fn log_tails(&self) -> String {
        match self {
            Self::Services(installed) => {
                let tail = |service: Service| {
                    let tail = installed.process(service).map(|process| process.log_tail(20));
                    format!("== {}\n{}", service.name(), tail.unwrap_or_default())
                };
                Service::ALL.map(tail).join("\n")
            }
            Self::Command { process, .. } => {
                let tail = process.as_ref().map(|process| process.log_tail(40));
                tail.unwrap_or_default()
            }
        }
    }
}

/// What a command finds in its environment.
async fn environment(plane: &ControlPlane, directory: &Path) -> Result<BTreeMap<&'static str, String>> {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": NAMESPACE}});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}]});
    installation::apply(plane, &[account, binding]).await?;
    let kubeconfig = plane.identity(NAMESPACE, ACCOUNT).await?;
    Ok(BTreeMap::from([
        ("KUBECONFIG", kubeconfig.display().to_string()),
        ("OSM_BENCH_NAMESPACE", NAMESPACE.to_owned()),
        ("OSM_BENCH_PROFILE", PROFILE.to_owned()),
        ("OSM_BENCH_DIRECTORY", directory.display().to_string()),
    ]))
}
