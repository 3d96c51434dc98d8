//! The implementations that are compared: the services of this repository, and commands.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use osm_api::names;
use osm_api::rbac::{ClusterKind, Service};
use osm_testkit::installation::{self, Installed};
use osm_testkit::process::{self, ScratchDir};
use osm_testkit::{ControlPlane, procfs, wait_for};
use serde_json::json;

use super::pools::{self, NAMESPACE, PROFILE, Pools};
use super::secret_watch::SecretWatch;

/// Time in which an implementation publishes the Secret of its first pool.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Default profile that an implementation installs, from which the profile of the benchmark is copied.
const DEFAULT_PROFILE: &str = "osp-ubuntu";

/// The pool that an implementation must serve to be ready.
const PROBE: &str = "bench-probe";

/// ServiceAccount of commands, which may do everything.
const ACCOUNT: &str = "bench-contender";

/// Name and command of `--compare`.
///
/// # Errors
/// What is expected.
pub fn parse(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, command)) if !name.is_empty() && !command.is_empty() => {
            Ok((name.to_owned(), command.to_owned()))
        }
        _ => Err("expected NAME=COMMAND, such as `other=./other --kubeconfig $KUBECONFIG`".to_owned()),
    }
}

/// An implementation that can be started.
pub enum Contender {
    /// The services in this folder.
    Services(PathBuf),
    /// A command for `sh -c`, with its name in the tables.
    #[allow(missing_docs)]
    Command { name: String, command: String },
}

impl Contender {
    /// Name in the tables.
    pub fn name(&self) -> &str {
        match self {
            Self::Services(_) => "this commit",
            Self::Command { name, .. } => name,
        }
    }

    /// Starts it on a new control plane, and waits until it has published a pool.
    ///
    /// # Errors
    /// An implementation that does not start, or does not publish the pool in time: what is missing, and its log.
    pub async fn start(&self, plane: &ControlPlane) -> Result<Running> {
        let mut running = match self {
            Self::Services(binaries) => {
                let mut installed =
                    Installed::install(plane, installation::as_by_the_chart(), binaries).await?;
                installed.environment.extend(environment_of_images());
                Running::Services(Box::new(installed))
            }
            Self::Command { command, .. } => {
                installation::prepare(plane, &installation::as_by_the_chart(), &ClusterKind::ALL).await?;
                let directory = ScratchDir::new("osm-bench-")?;
                Running::Command {
                    environment: environment(plane, directory.path()).await?,
                    command: command.clone(),
                    process: None,
                    directory,
                }
            }
        };
        running.start().await?;
        let served = self.serve_a_pool(plane).await;
        served.map_err(|error| error.context(running.logs()))?;
        Ok(running)
    }

    async fn serve_a_pool(&self, plane: &ControlPlane) -> Result<()> {
        let (client, name) = (plane.admin()?, self.name());
        let profiles = pools::profiles(&client);
        let what = format!("{name} to install the profile {DEFAULT_PROFILE} in {NAMESPACE}");
        let profile = wait_for(&what, READY_TIMEOUT, async || {
            Ok(Some(profiles.get(DEFAULT_PROFILE).await?))
        })
        .await?;
        let spec = profile.data.get("spec").context("a profile without spec")?;
        pools::create_profile(&client, spec).await?;
        let secrets =
            SecretWatch::start(kube::Api::namespaced(client.clone(), names::CLOUD_INIT_SETTINGS)).await?;
        let probe = Pools::single(client.clone(), PROBE);
        let started = probe.create(1).await?;
        let published = secrets.revision(1, &started, READY_TIMEOUT).await;
        published.with_context(|| {
            format!(
                "{name} is not ready: it must publish the MachineDeployment {NAMESPACE}/{PROBE}, which names the profile {PROFILE}, \
                 in {}, with the annotation {}",
                names::CLOUD_INIT_SETTINGS,
                names::MACHINE_DEPLOYMENT_REVISION
            )
        })?;
        probe.delete().await?;
        let what = format!("{name} to delete the Secrets of {PROBE}");
        wait_for(&what, READY_TIMEOUT, async || {
            Ok(secrets.none_left().then_some(()))
        })
        .await
    }
}

/// An implementation that runs. Dropping it ends it.
pub enum Running {
    /// The services.
    Services(Box<Installed>),
    /// A command.
    #[allow(missing_docs)]
    Command {
        command: String,
        environment: BTreeMap<&'static str, String>,
        process: Option<process::Service>,
        directory: ScratchDir,
    },
}

impl Running {
    async fn start(&mut self) -> Result<()> {
        match self {
            Self::Services(installed) => {
                for service in Service::ALL {
                    installed.start(service).await?;
                }
                installed.ready(READY_TIMEOUT).await
            }
            Self::Command {
                command,
                environment,
                process,
                directory,
            } => {
                let log = directory.path().join("log");
                let started = process::Service::spawn(
                    Path::new("/bin/sh"),
                    ["-c", command.as_str()],
                    environment.clone(),
                    &log,
                )?;
                *process = Some(started);
                Ok(())
            }
        }
    }

    /// Kills all processes, and starts them again.
    ///
    /// # Errors
    /// Processes that can't be started, or services that are not ready in time.
    pub async fn restart(&mut self) -> Result<()> {
        match self {
            Self::Services(installed) => {
                for service in Service::ALL {
                    installed.kill9(service)?;
                }
            }
            Self::Command { process, .. } => {
                if let Some(mut process) = process.take() {
                    process.kill9()?;
                }
            }
        }
        self.start().await
    }

    /// Ids of its processes by name. Children of a command belong to it.
    ///
    /// # Errors
    /// A process that does not run.
    pub fn processes(&self) -> Result<BTreeMap<String, Vec<u32>>> {
        match self {
            Self::Services(installed) => Service::ALL
                .into_iter()
                .map(|service| Ok((service.name().to_owned(), vec![installed.process(service)?.pid()])))
                .collect(),
            Self::Command { process, .. } => {
                let process = process.as_ref().context("the command was not started")?;
                let pids = procfs::group(process.pid())?;
                ensure!(
                    !pids.is_empty(),
                    "the command ended by itself; its log has the reason"
                );
                Ok(BTreeMap::from([("command".to_owned(), pids)]))
            }
        }
    }

    /// The end of what it has logged.
    pub fn logs(&self) -> String {
        match self {
            Self::Services(installed) => {
                let logged = Service::ALL.map(|service| {
                    let tail = installed.process(service).map(|process| process.log_tail(20));
                    format!("== {}\n{}", service.name(), tail.unwrap_or_default())
                });
                logged.join("\n")
            }
            Self::Command { process, .. } => process
                .as_ref()
                .map(|process| process.log_tail(40))
                .unwrap_or_default(),
        }
    }
}

/// What the images set. It decides how much memory a service keeps.
fn environment_of_images() -> impl Iterator<Item = (String, String)> {
    const DOCKERFILE: &str = include_str!("../../../../Dockerfile");
    let set = DOCKERFILE.lines().filter_map(|line| line.strip_prefix("ENV "));
    set.flat_map(str::split_whitespace)
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
}

/// What a command finds in its environment.
async fn environment(plane: &ControlPlane, directory: &Path) -> Result<BTreeMap<&'static str, String>> {
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}]});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": NAMESPACE}});
    installation::apply(plane, &[account, binding]).await?;
    let kubeconfig = plane.identity(NAMESPACE, ACCOUNT).await?;
    Ok(BTreeMap::from([
        ("KUBECONFIG", kubeconfig.display().to_string()),
        ("OSM_BENCH_NAMESPACE", NAMESPACE.to_owned()),
        ("OSM_BENCH_PROFILE", PROFILE.to_owned()),
        ("OSM_BENCH_DIRECTORY", directory.display().to_string()),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_is_a_named_command() {
        assert_eq!(
            parse("go=A=b ./osm"),
            Ok(("go".to_owned(), "A=b ./osm".to_owned()))
        );
        for wrong in ["go", "=x", "x=", ""] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn services_run_as_in_their_images() {
        let names: Vec<String> = environment_of_images().map(|(name, _)| name).collect();
        assert_eq!(names, ["MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_"]);
    }
}
