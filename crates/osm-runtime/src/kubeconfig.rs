//! Kubeconfig files: read at start, and again whenever they change, as those of a mounted Secret do.
//!
//! One that can't be used at start is waited for, so that whoever mends it need not restart anything. A changed one is used
//! once it has shown that it leads to the cluster that was met first. Until then the one before stays in use, and the service
//! says why it is not ready.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use osm_api::digest;
use osm_api::rbac::Service;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::client;
use crate::connection::{self, Connection};
use crate::readiness::{Gate, Readiness};
use crate::status::brief;

/// How often files are looked at. Kubernetes itself takes up to a minute to bring a changed Secret into a pod.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Where the configuration of a connection is from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// A file that a flag names.
    File {
        /// `--kubeconfig` or `--worker-cluster-kubeconfig`.
        flag: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// What kube finds by itself, and keeps current where it is a pod's ServiceAccount.
    Inferred,
}

impl Origin {
    /// As messages name it.
    pub fn describe(&self) -> String {
        match self {
            Self::File { flag, path } => format!("{flag} {}", path.display()),
            Self::Inferred => "$KUBECONFIG, ~/.kube/config or the pod's ServiceAccount".to_owned(),
        }
    }
}

/// A configuration, and what it was read from.
pub(crate) struct Loaded {
    pub(crate) config: Config,
    /// SHA-256 of everything that was read; empty where nothing is followed.
    digest: String,
}

/// Reads the configuration.
///
/// # Errors
/// A file that is missing or not valid.
pub(crate) async fn load(origin: &Origin, service: Service, timeout: Duration) -> anyhow::Result<Loaded> {
    let (config, digest) = match origin {
        Origin::File { path, .. } => {
            let read = from_file(path).await;
            read.with_context(|| origin.describe())?
        }
        Origin::Inferred => {
            let config = Config::infer().await;
            let config =
                config.context("no API server: give --kubeconfig, or run in a pod with a ServiceAccount")?;
            (config, String::new())
        }
    };
    Ok(Loaded { config: client::complete(config, service, timeout), digest })
}

async fn from_file(path: &Path) -> anyhow::Result<(Config, String)> {
    let text = std::fs::read_to_string(path).context("can't be read")?;
    // Resolves relative names of further files.
    let kubeconfig = Kubeconfig::read_from(path).map_err(without_values)?;
    let mut read = vec![digest::sha256_hex(text.as_bytes())];
    for file in files_of(&kubeconfig) {
        let content =
            std::fs::read(&file).with_context(|| format!("{file}, which it names, can't be read"))?;
        read.push(digest::sha256_hex(&content));
    }
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Ok((config.context("is no kubeconfig that can be used")?, digest::sha256_hex(read.concat().as_bytes())))
}

/// What a parser says may quote what it has read, and that may be a token.
fn without_values(error: KubeconfigError) -> anyhow::Error {
    let KubeconfigError::Parse(error) = error else {
        return anyhow::Error::new(error).context("is no kubeconfig");
    };
    match error.location() {
        Some(at) => anyhow::anyhow!("is no kubeconfig: line {}, column {}", at.line(), at.column()),
        None => anyhow::anyhow!("is no kubeconfig"),
    }
}

/// Files whose content the configuration takes over. A token's file is left out: it is read anew by itself.
fn files_of(kubeconfig: &Kubeconfig) -> Vec<String> {
    let clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
    let users = kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
    let mut files: Vec<String> =
        clusters.filter_map(|cluster| cluster.certificate_authority.clone()).collect();
    files.extend(users.flat_map(|user| [user.client_certificate.clone(), user.client_key.clone()]).flatten());
    files
}

/// Follows the file of a connection, in a task of its own.
pub(crate) struct Follower {
    service: Service,
    timeout: Duration,
    origin: Origin,
    connection: Connection,
    current: watch::Sender<Arc<Config>>,
    /// What is in use.
    digest: String,
}

impl Follower {
    /// Connects as soon as there is something to connect by, and follows that until shutdown; `None`: that came first. A
    /// configuration that was inferred is neither waited for nor followed.
    ///
    /// # Errors
    /// Nothing that a configuration can be inferred from.
    pub(crate) async fn start(
        origin: Origin,
        (service, timeout): (Service, Duration),
        open: impl Fn(watch::Receiver<Arc<Config>>) -> anyhow::Result<Connection>,
        readiness: &Readiness,
        shutdown: &CancellationToken,
    ) -> anyhow::Result<Option<Connection>> {
        let Origin::File { flag, .. } = origin else {
            let follower = Self::connect(&origin, (service, timeout), open).await?;
            let (connection, shutdown) = (follower.connection.clone(), shutdown.clone());
            // The connection goes by what was last sent for as long as anybody could send.
            tokio::spawn(async move {
                shutdown.cancelled().await;
                drop(follower)
            });
            return Ok(Some(connection));
        };
        let mut told = Told { gate: readiness.gate(flag), problem: String::new() };
        let follower = loop {
            match Self::connect(&origin, (service, timeout), &open).await {
                Ok(follower) => break follower,
                Err(problem) => told.problem(format!("{problem:#}. Correct it; no restart is needed")),
            }
            if shutdown.run_until_cancelled(tokio::time::sleep(LOOK_AGAIN)).await.is_none() {
                return Ok(None);
            }
        };
        told.well();
        let connection = follower.connection.clone();
        tokio::spawn(follower.follow(told, shutdown.clone()));
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
        Ok(Self { service, timeout, origin: origin.clone(), connection, current, digest })
    }

    async fn follow(mut self, mut told: Told, shutdown: CancellationToken) {
        loop {
            match self.look().await {
                Ok(news) => {
                    if news {
                        tracing::info!(
                            from = self.origin.describe(),
                            "the kubeconfig has changed and is in use"
                        );
                    }
                    told.well();
                }
                Err(problem) => {
                    told.problem(format!("{problem:#}. The one that was read before stays in use"));
                }
            }
            if shutdown.run_until_cancelled(tokio::time::sleep(LOOK_AGAIN)).await.is_none() {
                return;
            }
        }
    }

    /// Takes over what has changed; returns whether anything has.
    async fn look(&mut self) -> anyhow::Result<bool> {
        if self.connection.known_uid().is_none() {
            // As long as the cluster can't be reached, nothing is known to compare another with.
            let _ = self.connection.uid().await;
        }
        let loaded = load(&self.origin, self.service, self.timeout).await?;
        if loaded.digest == self.digest {
            return Ok(false);
        }
        self.try_out(&loaded.config)
            .await
            .with_context(|| format!("{} has changed", self.origin.describe()))?;
        self.digest = loaded.digest;
        self.current.send_replace(Arc::new(loaded.config));
        Ok(true)
    }

    async fn try_out(&self, config: &Config) -> anyhow::Result<()> {
        let name = self.connection.part().name();
        let client = self.connection.candidate(config)?;
        let uid = connection::uid_of(&client)
            .await
            .map_err(|error| anyhow::anyhow!("but what it says now does not work: {}", brief(&error)))?;
        match self.connection.known_uid().filter(|known| **known != uid) {
            None => Ok(()),
            Some(known) => anyhow::bail!(
                "but leads to another cluster: the uid of its namespace kube-system is {uid}, and that of {name} as this \
                 service met it {known}. Put the right kubeconfig there, or restart the service if the move is meant"
            ),
        }
    }
}

/// What is wrong with a kubeconfig, told once.
struct Told {
    gate: Gate,
    problem: String,
}

impl Told {
    fn problem(&mut self, problem: String) {
        if problem != self.problem {
            tracing::error!("{problem}");
            self.gate.close(&problem);
            self.problem = problem;
        }
    }

    fn well(&mut self) {
        self.problem.clear();
        self.gate.open();
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
    async fn what_a_kubeconfig_refers_to_counts_and_mistakes_are_one_sentence() {
        const CA: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let folder = std::env::temp_dir().join(format!("osm-kubeconfig-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("config");
        let origin = Origin::File { flag: "--kubeconfig", path: path.clone() };
        let read = async || load(&origin, Service::OscController, Duration::from_secs(1)).await;
        let problem = format!("{:#}", read().await.err().unwrap());
        assert!(problem.starts_with("--kubeconfig ") && problem.contains("can't be read"), "{problem}");
        for text in ["nothing: [hunter2", "users: hunter2", "users: [{name: c, user: hunter2}]"] {
            std::fs::write(&path, text).unwrap();
            let problem = format!("{:#}", read().await.err().unwrap());
            assert!(problem.contains(": is no kubeconfig: line 1, column "), "{problem}");
            assert!(!problem.contains("hunter2"), "{problem}");
        }
        std::fs::write(&path, kubeconfig("{token: a}")).unwrap();
        let problem = format!("{:#}", read().await.err().unwrap());
        assert!(problem.contains("ca.pem, which it names, can't be read"), "{problem}");
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
