//! The implementations that are compared: the services of this repository, a command, and bare clients.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use osm_api::names;
use osm_api::rbac::{ClusterKind, Service};
use osm_testkit::installation::{self, Installed};
use osm_testkit::process::{self, ScratchDir};
use osm_testkit::{ControlPlane, procfs, wait_for};
use serde_json::{Value, json};

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

/// An implementation to compare with, as `--compare` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// A client that sends the writes of the services.
    BareOwn,
    /// A client that sends the writes of the Go implementation.
    BareGo,
    /// A command.
    Command {
        /// Name in the tables.
        name: String,
        /// For `sh -c`.
        command: String,
    },
}

/// Names of the bare clients.
pub const BARE_OWN: &str = "bare-own";
pub const BARE_GO: &str = "bare-go";

impl FromStr for Comparison {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.split_once('=') {
            None if text == BARE_OWN => Ok(Self::BareOwn),
            None if text == BARE_GO => Ok(Self::BareGo),
            Some((name, command)) if !name.is_empty() && !command.is_empty() => Ok(Self::Command {
                name: name.to_owned(),
                command: command.to_owned(),
            }),
            _ => Err(format!(
                "expected `bare`, `{BARE_OWN}`, `{BARE_GO}` or NAME=COMMAND, such as `other=./other --kubeconfig $KUBECONFIG`"
            )),
        }
    }
}

/// An implementation that can be started.
#[derive(Clone, Debug)]
pub enum Contender {
    /// The services in this folder.
    Services(PathBuf),
    /// A program of any kind.
    Program(Program),
}

/// A program that serves pools.
#[derive(Clone, Debug)]
pub struct Program {
    /// Name in the tables.
    pub name: String,
    /// For `sh -c`.
    pub command: String,
    /// It only sends writes: it needs no profile, and can't continue after a restart.
    pub bare: bool,
    /// OperatingSystemConfigs have neither rules nor a status.
    pub plain_configs: bool,
}

impl Contender {
    /// Name in the tables.
    pub fn name(&self) -> &str {
        match self {
            Self::Services(_) => "this commit",
            Self::Program(program) => &program.name,
        }
    }

    /// Whether it reads the settings of the installation.
    pub fn reads_settings(&self) -> bool {
        match self {
            Self::Services(_) => true,
            Self::Program(program) => program.bare,
        }
    }

    /// Whether it serves existing pools after a restart.
    pub fn can_restart(&self) -> bool {
        match self {
            Self::Services(_) => true,
            Self::Program(program) => !program.bare,
        }
    }

    /// Starts it on a new control plane, and waits until it has published a pool.
    ///
    /// # Errors
    /// An implementation that does not start, or does not publish the pool in time: what is missing, and its log.
    pub async fn start(&self, plane: &ControlPlane, replicas: usize) -> Result<Running> {
        let mut running = match self {
            Self::Services(binaries) => {
                let mut installed =
                    Installed::install(plane, installation::as_by_the_chart(), binaries).await?;
                installed.environment.extend(environment_of_images());
                Running::Services {
                    installed: Box::new(installed),
                    replicas,
                }
            }
            Self::Program(program) => {
                installation::prepare(plane, &installation::as_by_the_chart(), &ClusterKind::ALL).await?;
                if program.plain_configs {
                    plain_configs(plane).await?;
                }
                let directory = ScratchDir::new("osm-bench-")?;
                Running::Program {
                    environment: environment(plane, directory.path()).await?,
                    program: program.clone(),
                    replicas,
                    processes: Vec::new(),
                    directory,
                }
            }
        };
        running.start().await?;
        let served = tokio::select! {
            served = self.serve_a_pool(plane) => served,
            ended = running.ended() => Err(ended),
        };
        served.map_err(|error| error.context(running.logs()))?;
        Ok(running)
    }

    async fn serve_a_pool(&self, plane: &ControlPlane) -> Result<()> {
        let client = plane.admin()?;
        let spec = match self {
            Self::Program(Program { bare: true, .. }) => profile_of_this_repository()?,
            _ => {
                let profiles = pools::profiles(&client);
                let what = format!(
                    "{} to install the profile {DEFAULT_PROFILE} in {NAMESPACE}",
                    self.name()
                );
                let found = wait_for(&what, READY_TIMEOUT, async || {
                    Ok(Some(profiles.get(DEFAULT_PROFILE).await?))
                });
                found
                    .await?
                    .data
                    .get("spec")
                    .cloned()
                    .context("a profile without spec")?
            }
        };
        pools::create_profile(&client, &spec).await?;
        let secrets =
            SecretWatch::start(kube::Api::namespaced(client.clone(), names::CLOUD_INIT_SETTINGS)).await?;
        let probe = Pools::single(client.clone(), PROBE);
        let started = probe.create(1).await?;
        let published = secrets.revision(1, &started, READY_TIMEOUT).await;
        published.with_context(|| {
            format!(
                "{} is not ready: it must publish the MachineDeployment {NAMESPACE}/{PROBE}, which names the profile {PROFILE}, \
                 in {}, with the annotation {}",
                self.name(),
                names::CLOUD_INIT_SETTINGS,
                names::MACHINE_DEPLOYMENT_REVISION
            )
        })?;
        probe.delete().await?;
        let what = format!("{} to delete the Secrets of {PROBE}", self.name());
        wait_for(&what, READY_TIMEOUT, async || {
            Ok(secrets.none_left().then_some(()))
        })
        .await
    }
}

/// An implementation that runs. Dropping it ends it.
pub enum Running {
    /// The services.
    #[allow(missing_docs)]
    Services {
        installed: Box<Installed>,
        replicas: usize,
    },
    /// A program, once for each replica.
    #[allow(missing_docs)]
    Program {
        program: Program,
        replicas: usize,
        environment: BTreeMap<&'static str, String>,
        processes: Vec<process::Service>,
        directory: ScratchDir,
    },
}

impl Running {
    async fn start(&mut self) -> Result<()> {
        match self {
            Self::Services { installed, replicas } => {
                for number in 0..*replicas {
                    for service in Service::ALL {
                        installed.start((service, number)).await?;
                    }
                }
                installed.ready(READY_TIMEOUT).await
            }
            Self::Program {
                program,
                replicas,
                environment,
                processes,
                directory,
            } => {
                for number in 0..*replicas {
                    let mut environment = environment.clone();
                    environment.insert("OSM_BENCH_REPLICA", number.to_string());
                    let log = directory.path().join(format!("{number}.log"));
                    let shell = Path::new("/bin/sh");
                    processes.push(process::Service::spawn(
                        shell,
                        ["-c", &program.command],
                        environment,
                        &log,
                    )?);
                }
                Ok(())
            }
        }
    }

    /// Waits for the end of a process, which should not end.
    async fn ended(&self) -> anyhow::Error {
        loop {
            if let Err(error) = self.processes() {
                return error;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Kills all processes, and starts them again.
    ///
    /// # Errors
    /// Processes that can't be started, or services that are not ready in time.
    pub async fn restart(&mut self) -> Result<()> {
        match self {
            Self::Services { installed, replicas } => {
                for number in 0..*replicas {
                    for service in Service::ALL {
                        installed.kill9((service, number))?;
                    }
                }
            }
            Self::Program { processes, .. } => {
                for mut process in processes.drain(..) {
                    process.kill9()?;
                }
            }
        }
        self.start().await
    }

    /// Ids of its processes by name. Replicas have the same name, and children of a command belong to it.
    ///
    /// # Errors
    /// A service that does not run.
    pub fn processes(&self) -> Result<BTreeMap<String, Vec<u32>>> {
        let mut all = BTreeMap::<String, Vec<u32>>::new();
        match self {
            Self::Services { installed, replicas } => {
                for number in 0..*replicas {
                    for service in Service::ALL {
                        let pid = installed.process((service, number))?.pid();
                        all.entry(service.name().to_owned()).or_default().push(pid);
                    }
                }
            }
            Self::Program {
                program, processes, ..
            } => {
                let mut pids = Vec::new();
                for process in processes {
                    pids.extend(procfs::group(process.pid())?);
                }
                if pids.is_empty() {
                    bail!("{} ended by itself; its log has the reason", program.name);
                }
                all.insert(program.name.clone(), pids);
            }
        }
        Ok(all)
    }

    /// The end of what it has logged.
    pub fn logs(&self) -> String {
        match self {
            Self::Services { installed, .. } => {
                let logged = Service::ALL.map(|service| {
                    let tail = installed.process(service).map(|process| process.log_tail(20));
                    format!("== {}\n{}", service.name(), tail.unwrap_or_default())
                });
                logged.join("\n")
            }
            Self::Program {
                program, processes, ..
            } => {
                let tails = processes.iter().map(|process| process.log_tail(40));
                format!("== {}\n{}", program.name, tails.collect::<Vec<_>>().join("\n"))
            }
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
        ("OSM_BENCH_API_SERVER", plane.url()),
        ("OSM_BENCH_NAMESPACE", NAMESPACE.to_owned()),
        (
            "OSM_BENCH_SECRETS_NAMESPACE",
            names::CLOUD_INIT_SETTINGS.to_owned(),
        ),
        ("OSM_BENCH_PROFILE", PROFILE.to_owned()),
        ("OSM_BENCH_DIRECTORY", directory.display().to_string()),
    ]))
}

/// The default profile as this repository has it.
fn profile_of_this_repository() -> Result<Value> {
    let path = crate::root().join(format!("profiles/{DEFAULT_PROFILE}.yaml"));
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let profile: Value = serde_saphyr::from_str(&text).with_context(|| path.display().to_string())?;
    profile.get("spec").cloned().context("a profile without spec")
}

/// Replaces the CustomResourceDefinition of OperatingSystemConfigs by one as the Go implementation has it: the same fields of the spec,
/// but no rules, no status and no columns.
async fn plain_configs(plane: &ControlPlane) -> Result<()> {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    let api = kube::Api::<CustomResourceDefinition>::all(plane.admin()?);
    let name = format!("operatingsystemconfigs.{}", names::GROUP);
    let mut definition = serde_json::to_value(api.get(&name).await?)?;
    let versions = definition
        .pointer_mut("/spec/versions")
        .and_then(Value::as_array_mut);
    for version in versions.context("versions")? {
        let version = version.as_object_mut().context("version")?;
        version.remove("subresources");
        version.remove("additionalPrinterColumns");
        version.get_mut("schema").map(without_rules);
    }
    let definition = serde_json::from_value(definition)?;
    api.replace(&name, &Default::default(), &definition).await?;
    let configs = pools_configs(plane)?;
    wait_for(
        "the plain OperatingSystemConfigs to be served",
        READY_TIMEOUT,
        async || {
            let answer = configs.list(&Default::default()).await;
            ensure!(answer.is_ok(), "{answer:?}");
            Ok(Some(()))
        },
    )
    .await
}

fn pools_configs(plane: &ControlPlane) -> Result<kube::Api<osm_api::OperatingSystemConfig>> {
    Ok(kube::Api::namespaced(plane.admin()?, NAMESPACE))
}

fn without_rules(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("x-kubernetes-validations");
            fields.values_mut().for_each(without_rules);
        }
        Value::Array(items) => items.iter_mut().for_each(without_rules),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_is_a_bare_client_or_a_named_command() {
        assert_eq!("bare-go".parse(), Ok(Comparison::BareGo));
        let other = Comparison::Command {
            name: "go".to_owned(),
            command: "A=b ./osm".to_owned(),
        };
        assert_eq!("go=A=b ./osm".parse(), Ok(other));
        for wrong in ["go", "=x", "x=", ""] {
            assert!(wrong.parse::<Comparison>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn services_run_as_in_their_images() {
        let names: Vec<String> = environment_of_images().map(|(name, _)| name).collect();
        assert_eq!(names, ["MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_"]);
    }

    #[test]
    fn rules_are_removed_at_every_depth() {
        let mut schema = json!({"x-kubernetes-validations": [], "properties": {"a": {"x-kubernetes-validations": [1], "type": "string"}}});
        without_rules(&mut schema);
        assert_eq!(schema, json!({"properties": {"a": {"type": "string"}}}));
    }
}
