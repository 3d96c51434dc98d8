//! Kubeconfig files: read at start, and again whenever they change, as those of a mounted Secret do.
//!
//! A service waits for a kubeconfig that does not work at start, so that correcting the file needs no restart. A changed
//! kubeconfig is used once a request has shown that it leads to the same cluster as before. Until then the previous one
//! stays in use, and `/readyz` has the reason.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::Config;
use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig, KubeconfigError};
use osm_api::digest;
use osm_api::rbac::Service;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::apart::apart;
use crate::client;
use crate::connection::{self, Connection};
use crate::connection_role::ConnectionRole;
use crate::error::brief;
use crate::proxy;
use crate::readiness::{Gates, ProblemGate};
use crate::supervisor::Supervisor;

/// Interval between two looks at a file. Kubernetes itself takes up to a minute to bring a changed Secret into a pod.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The flag of the kubeconfig of another cluster than the service's own.
pub const WORKER_CLUSTER_FLAG: &str = "--worker-cluster-kubeconfig";

/// Where the configuration of a connection comes from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// A file that a flag names.
    File {
        /// `--kubeconfig` or `--worker-cluster-kubeconfig`.
        flag: &'static str,
        path: PathBuf,
        /// Whether the owner of another cluster may have written it.
        is_foreign: bool,
    },
    /// What kube finds by itself. It renews the token of a pod's ServiceAccount by itself, too.
    Inferred,
}

impl Origin {
    pub fn describe(&self) -> String {
        match self {
            Self::File { flag, path, .. } => format!("{flag} {}", path.display()),
            Self::Inferred => "$KUBECONFIG, ~/.kube/config or the pod's ServiceAccount".to_owned(),
        }
    }
}

pub(crate) struct Loaded {
    pub(crate) config: Config,
    /// SHA-256 of all files that were read; empty for a configuration that is not followed.
    digest: String,
}

pub(crate) async fn load(origin: &Origin, service: Service, timeout: Duration) -> anyhow::Result<Loaded> {
    let (config, digest) = match origin {
        Origin::File { path, is_foreign, .. } => {
            let read = from_file(path, *is_foreign).await;
            read.with_context(|| origin.describe())?
        }
        Origin::Inferred => {
            let config = Config::infer().await;
            let config = config.context(
                "no API server is configured; set --kubeconfig or the variable KUBECONFIG, or run in a pod with a ServiceAccount",
            )?;
            (config, String::new())
        }
    };
    let mut config = client::complete(config, service, timeout);
    proxy::except(&mut config, |name| std::env::var(name).ok());
    Ok(Loaded { config, digest })
}

async fn from_file(path: &Path, is_foreign: bool) -> anyhow::Result<(Config, String)> {
    let text = std::fs::read_to_string(path).context("can't be read")?;
    // `read_from` resolves the relative names of further files.
    let kubeconfig = apart(|| Kubeconfig::read_from(path)).map_err(without_values)?;
    if is_foreign {
        refuse_to_reach_out(&kubeconfig)?;
    }
    let mut read = vec![digest::sha256_hex(text.as_bytes())];
    for file in files_of(&kubeconfig) {
        let content =
            std::fs::read(&file).with_context(|| format!("it refers to {file}, which can't be read"))?;
        read.push(digest::sha256_hex(&content));
    }
    Ok((
        configuration(kubeconfig).await?,
        digest::sha256_hex(read.concat().as_bytes()),
    ))
}

/// The configuration in the text of a kubeconfig that the owner of another cluster may have written.
///
/// # Errors
/// It is not valid, or would run a program or read a file.
pub async fn of_foreign(text: &str) -> anyhow::Result<Config> {
    let kubeconfig = apart(|| Kubeconfig::from_yaml(text)).map_err(without_values)?;
    refuse_to_reach_out(&kubeconfig)?;
    configuration(kubeconfig).await
}

async fn configuration(kubeconfig: Kubeconfig) -> anyhow::Result<Config> {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    config.context("is not a valid kubeconfig")
}

fn refuse_to_reach_out(kubeconfig: &Kubeconfig) -> anyhow::Result<()> {
    if let Some(field) = reaches_out(kubeconfig) {
        bail!(
            "the kubeconfig of another cluster must not have the field {field}; put the data into the kubeconfig itself"
        );
    }
    Ok(())
}

fn clusters(kubeconfig: &Kubeconfig) -> impl Iterator<Item = &Cluster> {
    kubeconfig
        .clusters
        .iter()
        .filter_map(|named| named.cluster.as_ref())
}

fn users(kubeconfig: &Kubeconfig) -> impl Iterator<Item = &AuthInfo> {
    kubeconfig
        .auth_infos
        .iter()
        .filter_map(|named| named.auth_info.as_ref())
}

/// A field by which the kubeconfig would run a program, or send a file of this pod to its API server.
fn reaches_out(kubeconfig: &Kubeconfig) -> Option<&'static str> {
    let of_clusters = clusters(kubeconfig)
        .map(|cluster| [("certificate-authority", cluster.certificate_authority.is_some())]);
    let of_users = users(kubeconfig).map(|user| {
        [
            ("exec", user.exec.is_some()),
            ("auth-provider", user.auth_provider.is_some()),
            ("tokenFile", user.token_file.is_some()),
            ("client-certificate", user.client_certificate.is_some()),
            ("client-key", user.client_key.is_some()),
        ]
    });
    let mut found = of_clusters.flatten().chain(of_users.flatten());
    found.find_map(|(field, is_there)| is_there.then_some(field))
}

/// A parser's message may quote the file, and so a token. Only the place of the error is kept.
fn without_values(error: KubeconfigError) -> anyhow::Error {
    let KubeconfigError::Parse(error) = error else {
        return anyhow::Error::new(error).context("is not a valid kubeconfig");
    };
    match error.location() {
        Some(at) => anyhow::anyhow!(
            "is not a valid kubeconfig: line {}, column {}",
            at.line(),
            at.column()
        ),
        None => anyhow::anyhow!("is not a valid kubeconfig"),
    }
}

/// Files whose content becomes part of the configuration. Token files are left out: kube reads them again by itself.
fn files_of(kubeconfig: &Kubeconfig) -> Vec<String> {
    let mut files: Vec<String> = clusters(kubeconfig)
        .filter_map(|cluster| cluster.certificate_authority.clone())
        .collect();
    files.extend(
        users(kubeconfig)
            .flat_map(|user| [user.client_certificate.clone(), user.client_key.clone()])
            .flatten(),
    );
    files
}

/// Follows the kubeconfig file of a connection.
pub(crate) struct Follower {
    service: Service,
    timeout: Duration,
    origin: Origin,
    connection: Connection,
    current: watch::Sender<Arc<Config>>,
    /// Digest of the configuration in use.
    digest: String,
}

impl Follower {
    /// Connects as soon as the kubeconfig is valid, and follows it until shutdown; `None`: shutdown came first. An inferred
    /// configuration is neither waited for nor followed.
    ///
    /// # Errors
    /// No configuration can be inferred.
    pub(crate) async fn start(
        origin: Origin,
        role: ConnectionRole,
        (service, timeout): (Service, Duration),
        open: impl Fn(watch::Receiver<Arc<Config>>) -> anyhow::Result<Connection>,
        gates: &Gates,
        shutdown: &CancellationToken,
    ) -> anyhow::Result<Option<Connection>> {
        let Origin::File { flag, .. } = origin else {
            let follower = Self::connect(&origin, (service, timeout), open).await?;
            let (connection, shutdown) = (follower.connection.clone(), shutdown.clone());
            // The connection needs the sender to live as long as the service.
            tokio::spawn(async move {
                shutdown.cancelled().await;
                drop(follower)
            });
            return Ok(Some(connection));
        };
        let mut gate = ProblemGate::new(gates.gate(flag), role.label());
        let follower = loop {
            match Self::connect(&origin, (service, timeout), &open).await {
                Ok(follower) => break follower,
                Err(problem) => gate.report(format!("{problem:#}. Correct it; no restart is needed")),
            }
            if shutdown
                .run_until_cancelled(tokio::time::sleep(POLL_INTERVAL))
                .await
                .is_none()
            {
                return Ok(None);
            }
        };
        gate.resolve();
        let connection = follower.connection.clone();
        let follow = follower.follow(gate, shutdown.clone());
        Supervisor::new(gates, shutdown).spawn(flag, shutdown, follow);
        Ok(Some(connection))
    }

    async fn connect(
        origin: &Origin,
        (service, timeout): (Service, Duration),
        open: impl Fn(watch::Receiver<Arc<Config>>) -> anyhow::Result<Connection>,
    ) -> anyhow::Result<Self> {
        let Loaded { config, digest } = load(origin, service, timeout).await?;
        let (current, receiver) = watch::channel(Arc::new(config));
        let connection = open(receiver).with_context(|| origin.describe())?;
        Ok(Self {
            service,
            timeout,
            origin: origin.clone(),
            connection,
            current,
            digest,
        })
    }

    async fn follow(mut self, mut gate: ProblemGate, shutdown: CancellationToken) {
        loop {
            match self.look().await {
                Ok(changed) => {
                    if changed {
                        tracing::info!(from = self.origin.describe(), "the new kubeconfig is in use");
                    }
                    gate.resolve();
                }
                Err(problem) => {
                    gate.report(format!("{problem:#}. The previous kubeconfig stays in use"));
                }
            }
            if shutdown
                .run_until_cancelled(tokio::time::sleep(POLL_INTERVAL))
                .await
                .is_none()
            {
                return;
            }
        }
    }

    /// Reads the files again, and uses what has changed; returns whether anything has.
    async fn look(&mut self) -> anyhow::Result<bool> {
        if self.connection.known_uid().is_none() {
            // Without the uid of this cluster there is nothing to compare a new kubeconfig's cluster with.
            let _ = self.connection.uid().await;
        }
        let loaded = load(&self.origin, self.service, self.timeout).await?;
        if loaded.digest == self.digest {
            return Ok(false);
        }
        self.try_out(&loaded.config)
            .await
            .with_context(|| format!("the new content of {} is not used", self.origin.describe()))?;
        self.digest = loaded.digest;
        self.current.send_replace(Arc::new(loaded.config));
        Ok(true)
    }

    async fn try_out(&self, config: &Config) -> anyhow::Result<()> {
        let name = self.connection.role().name();
        let client = self.connection.candidate(config)?;
        let uid = connection::uid_of(&client)
            .await
            .map_err(|error| anyhow::anyhow!("it does not work: {}", brief(&error)))?;
        match self.connection.known_uid().filter(|known| **known != uid) {
            None => Ok(()),
            Some(known) => anyhow::bail!(
                "it leads to another cluster, whose namespace kube-system has the uid {uid}; in {name} it is {known}. Restore \
                 the right kubeconfig, or restart the service if the move is intended"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1', certificate-authority: ca.pem}}}}]\n\
             users: [{{name: c, user: {user}}}]\n"
        )
    }

    #[tokio::test]
    async fn a_kubeconfig_of_a_worker_cluster_runs_no_program_and_names_no_file() {
        let file = std::env::temp_dir().join(format!("osm-worker-kubeconfig-{}", std::process::id()));
        let origin = Origin::File {
            flag: WORKER_CLUSTER_FLAG,
            path: file.clone(),
            is_foreign: true,
        };
        let inline = kubeconfig("{token: a}").replace(", certificate-authority: ca.pem", "");
        for (text, field) in [
            (
                inline.replace(
                    "token: a",
                    "exec: {command: /bin/sh, apiVersion: client.authentication.k8s.io/v1}",
                ),
                "exec",
            ),
            (
                inline.replace("token: a", "auth-provider: {name: x, config: {}}"),
                "auth-provider",
            ),
            (
                inline.replace("token: a", "tokenFile: /var/run/secrets/token"),
                "tokenFile",
            ),
            (
                inline.replace("token: a", "client-certificate: /c"),
                "client-certificate",
            ),
            (inline.replace("token: a", "client-key: /k"), "client-key"),
            (kubeconfig("{token: a}"), "certificate-authority"),
        ] {
            std::fs::write(&file, text).unwrap();
            let problem = load(&origin, Service::SecretSyncer, Duration::from_secs(1))
                .await
                .err()
                .unwrap();
            let problem = format!("{problem:#}");
            assert!(
                problem.contains(&format!("must not have the field {field}; ")),
                "{problem}"
            );
        }
        std::fs::write(&file, inline).unwrap();
        assert!(
            load(&origin, Service::SecretSyncer, Duration::from_secs(1))
                .await
                .is_ok()
        );
        std::fs::remove_file(&file).unwrap();
    }

    #[tokio::test]
    async fn what_a_kubeconfig_refers_to_counts_and_mistakes_are_one_sentence() {
        const CA: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let folder = std::env::temp_dir().join(format!("osm-kubeconfig-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("config");
        let origin = Origin::File {
            flag: "--kubeconfig",
            path: path.clone(),
            is_foreign: false,
        };
        let read = async || load(&origin, Service::OscController, Duration::from_secs(1)).await;
        let problem = format!("{:#}", read().await.err().unwrap());
        assert!(
            problem.starts_with("--kubeconfig ") && problem.contains("can't be read"),
            "{problem}"
        );
        for text in [
            "nothing: [hunter2",
            "users: hunter2",
            "users: [{name: c, user: hunter2}]",
        ] {
            std::fs::write(&path, text).unwrap();
            let problem = format!("{:#}", read().await.err().unwrap());
            assert!(
                problem.contains(": is not a valid kubeconfig: line 1, column "),
                "{problem}"
            );
            assert!(!problem.contains("hunter2"), "{problem}");
        }
        std::fs::write(&path, kubeconfig("{token: a}")).unwrap();
        let problem = format!("{:#}", read().await.err().unwrap());
        assert!(problem.contains("it refers to "), "{problem}");
        assert!(problem.contains("ca.pem, which can't be read"), "{problem}");
        std::fs::write(folder.join("ca.pem"), CA).unwrap();
        let first = read().await.unwrap();
        assert!(
            first
                .config
                .headers
                .iter()
                .any(|(_, value)| value.to_str().unwrap().starts_with("osc-controller/"))
        );
        assert_eq!(read().await.unwrap().digest, first.digest);
        std::fs::write(folder.join("ca.pem"), format!("{CA}{CA}")).unwrap();
        let second = read().await.unwrap();
        assert_ne!(first.digest, second.digest);
        std::fs::write(&path, kubeconfig("{token: b}")).unwrap();
        assert_ne!(read().await.unwrap().digest, second.digest);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
