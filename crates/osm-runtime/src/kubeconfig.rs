//! Reads kubeconfig files at start, and restarts the service when one changes, as those of a mounted Secret do.
//!
//! A service waits for a kubeconfig that is not valid at start, so that correcting the file needs no restart. While a changed one is not
//! valid, the previous one stays in use, and `/readyz` has the reason.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::Config;
use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig, KubeconfigError};
use osm_api::digest;
use osm_api::rbac::Service;

use crate::connection_role::ConnectionRole;
use crate::readiness::{ProblemGate, SETTINGS};
use crate::supervisor::Supervisor;
use crate::{Connection, Process, client, proxy};

/// Interval between two looks at a file. Kubernetes itself takes up to a minute to bring a changed Secret into a pod.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// A restart comes within this time after a change, at a random moment, so that replicas seldom restart together.
const MAX_RESTART_DELAY: Duration = Duration::from_secs(60);

/// A token of a kubeconfig lives for a day or longer, and is renewed after a quarter of that.
const LONGEST_WAIT_FOR_SETTINGS: Duration = Duration::from_hours(6);

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

struct Loaded {
    config: Config,
    /// SHA-256 of all files that were read; empty for a configuration that is not followed.
    digest: String,
}

async fn load(origin: &Origin, service: Service, timeout: Duration) -> anyhow::Result<Loaded> {
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
    let kubeconfig = Kubeconfig::read_from(path).map_err(without_values)?;
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

/// Connects as soon as the kubeconfig is valid; `None`: shutdown came first. The process restarts when the file changes. An inferred
/// configuration is neither waited for nor followed.
///
/// # Errors
/// No configuration can be inferred.
pub(crate) async fn connect(
    origin: Origin,
    role: ConnectionRole,
    process: &Arc<Process>,
    open: impl Fn(Config) -> anyhow::Result<Connection>,
) -> anyhow::Result<Option<Connection>> {
    let read = async || {
        let Loaded { config, digest } =
            load(&origin, process.service, process.args.request_timeout()).await?;
        let connection = open(config).with_context(|| origin.describe())?;
        anyhow::Ok((connection, digest))
    };
    let Origin::File { flag, .. } = origin else {
        return Ok(Some(read().await?.0));
    };
    let mut gate = ProblemGate::new(process.readiness.gate(flag), role.label());
    let (connection, digest) = loop {
        match read().await {
            Ok(read) => break read,
            Err(problem) => gate.report(format!("{problem:#}. Correct it; no restart is needed")),
        }
        let pause = tokio::time::sleep(POLL_INTERVAL);
        if process.shutdown.run_until_cancelled(pause).await.is_none() {
            return Ok(None);
        }
    };
    gate.resolve();
    let follow = restart_on_change(origin, digest, gate, process.clone());
    Supervisor::new(&process.readiness, &process.shutdown).spawn(flag, &process.shutdown, follow);
    Ok(Some(connection))
}

/// Ends the process some time after the files have another valid content, so that Kubernetes restarts it with that. It waits for valid
/// settings, because the last valid ones would be lost, but not until credentials expire.
async fn restart_on_change(origin: Origin, digest: String, mut gate: ProblemGate, process: Arc<Process>) {
    let read = || load(&origin, process.service, process.args.request_timeout());
    let restart = async {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            match read().await {
                Ok(loaded) if loaded.digest == digest => {
                    gate.resolve();
                    continue;
                }
                Ok(_) => {}
                Err(problem) => {
                    gate.report(format!("{problem:#}. The previous kubeconfig stays in use"));
                    continue;
                }
            }
            tracing::info!(from = origin.describe(), "the kubeconfig has changed");
            let settings = process
                .readiness
                .until(|closed| !closed.iter().any(|gate| gate.starts_with(SETTINGS)));
            // An error means that they are still not valid.
            let _ = tokio::time::timeout(LONGEST_WAIT_FOR_SETTINGS, settings).await;
            let delay = MAX_RESTART_DELAY.mul_f64(process.environment.fraction());
            tracing::info!(?delay, "the service restarts with the new kubeconfig");
            tokio::time::sleep(delay).await;
            if read().await.is_ok() {
                return process.shutdown.cancel();
            }
        }
    };
    process.shutdown.run_until_cancelled(restart).await;
    process.shutdown.cancelled().await;
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
