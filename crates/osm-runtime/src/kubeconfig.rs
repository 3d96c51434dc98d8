//! Reads kubeconfig files at start, and restarts the service when one changes, as those of a mounted Secret
//! do.
//!
//! A service does not start with a kubeconfig that is not valid. While a changed one is not valid, the
//! previous one stays in use, so that credentials are still renewed, and `/readyz` has the reason.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use osm_api::rbac::Service;

use crate::process::Process;
use crate::scope::Scope;
use crate::transport::{self, Clients};
use crate::{client, proxy};

/// Interval between two looks at a file. Kubernetes itself takes up to a minute to bring a changed Secret
/// into a pod.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// A restart comes within this time after a change, at a random moment, so that replicas seldom restart
/// together.
const MAX_RESTART_DELAY: Duration = Duration::from_secs(60);

/// The flag of the kubeconfig of another cluster than the service's own.
pub const WORKER_CLUSTER_FLAG: &str = "--worker-kubeconfig";

/// A kubeconfig that a flag names.
#[derive(Clone, Debug)]
pub struct KubeconfigFile {
    /// `--kubeconfig` or `--worker-kubeconfig`.
    pub flag: &'static str,
    pub path: PathBuf,
    /// Whether the owner of another cluster may have written it.
    pub is_foreign: bool,
}

impl KubeconfigFile {
    /// Reads the file, and the certificates and keys that it names. Returns the text as well, by which a
    /// change shows.
    async fn read(&self, service: Service) -> anyhow::Result<(Config, Clients, String)> {
        let read = async {
            let text = std::fs::read_to_string(&self.path).context("can't be read")?;
            // `read_from` resolves the relative names of further files.
            let kubeconfig = Kubeconfig::read_from(&self.path).map_err(without_values)?;
            if let Some(field) = reaches_out(&kubeconfig).filter(|_| self.is_foreign) {
                bail!(
                    "the kubeconfig of another cluster must not have the field {field}; put the data into the kubeconfig itself"
                );
            }
            let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
            let (config, clients) = open(config.context("is not a valid kubeconfig")?, service)?;
            Ok((config, clients, text))
        };
        read.await
            .with_context(|| format!("{} {}", self.flag, self.path.display()))
    }

    /// Whether another valid kubeconfig than this one is there.
    async fn differs(&self, used: &str, service: Service) -> anyhow::Result<bool> {
        if std::fs::read_to_string(&self.path).is_ok_and(|text| text == used) {
            return Ok(false);
        }
        self.read(service).await.map(|_| true)
    }
}

fn open(config: Config, service: Service) -> anyhow::Result<(Config, Clients)> {
    let mut config = client::complete(config, service);
    proxy::except(&mut config, |name| std::env::var(name).ok());
    let clients = transport::connect(&config)?;
    Ok((config, clients))
}

/// A field by which the kubeconfig would run a program, or send a file of this pod to its API server.
fn reaches_out(kubeconfig: &Kubeconfig) -> Option<&'static str> {
    let clusters = kubeconfig
        .clusters
        .iter()
        .filter_map(|named| named.cluster.as_ref());
    let users = kubeconfig
        .auth_infos
        .iter()
        .filter_map(|named| named.auth_info.as_ref());
    let of_clusters =
        clusters.map(|cluster| [("certificate-authority", cluster.certificate_authority.is_some())]);
    let of_users = users.map(|user| {
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

/// The configuration of a cluster, and clients by it. The process restarts when the file changes. `None`:
/// kube finds a configuration by itself, which is not followed, and renews the token of a pod's
/// ServiceAccount.
///
/// # Errors
/// No configuration is found, or it is not valid.
pub(crate) async fn connect(
    file: Option<KubeconfigFile>,
    process: &Arc<Process>,
) -> anyhow::Result<(Config, Clients)> {
    let Some(file) = file else {
        let config = Config::infer().await.context(
            "no API server is configured; set --kubeconfig or the variable KUBECONFIG, or run in a pod with a ServiceAccount",
        )?;
        return open(config, process.service)
            .context("$KUBECONFIG, ~/.kube/config or the pod's ServiceAccount");
    };
    let (config, clients, text) = file.read(process.service).await?;
    let flag = file.flag;
    let follow = restart_on_change(file, text, process.clone());
    Scope::of(process).spawn_until(flag, &process.shutdown, follow);
    Ok((config, clients))
}

/// Ends the process some time after the file has another valid content, so that Kubernetes restarts it with
/// that.
async fn restart_on_change(file: KubeconfigFile, used: String, process: Arc<Process>) {
    let gate = process.readiness.gate(file.flag);
    let restart = async {
        loop {
            match file.differs(&used, process.service).await {
                Ok(false) => gate.open(),
                Ok(true) => {
                    let delay = MAX_RESTART_DELAY.mul_f64(process.environment.fraction());
                    tracing::info!(
                        flag = file.flag,
                        ?delay,
                        "the service restarts with the new kubeconfig"
                    );
                    tokio::time::sleep(delay).await;
                    if file.differs(&used, process.service).await.unwrap_or(false) {
                        return process.shutdown.cancel();
                    }
                }
                Err(problem) => gate.report(format!("{problem:#}. The previous kubeconfig stays in use")),
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    process.shutdown.run_until_cancelled(restart).await;
    process.shutdown.cancelled().await;
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: Service = Service::OscController;

    fn kubeconfig(user: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1', certificate-authority: ca.pem}}}}]\n\
             users: [{{name: c, user: {user}}}]\n"
        )
    }

    /// A file that does not exist yet, in a folder that goes with the test.
    fn file(is_foreign: bool) -> (tempfile::TempDir, KubeconfigFile) {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("kubeconfig");
        let flag = "--kubeconfig";
        let file = KubeconfigFile {
            flag,
            path,
            is_foreign,
        };
        (folder, file)
    }

    #[tokio::test]
    async fn a_kubeconfig_of_a_worker_cluster_runs_no_program_and_names_no_file() {
        _ = rustls::crypto::ring::default_provider().install_default();
        let (_folder, file) = file(true);
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
            std::fs::write(&file.path, text).unwrap();
            let problem = file.read(SERVICE).await.err().unwrap();
            let problem = format!("{problem:#}");
            assert!(
                problem.contains(&format!("must not have the field {field}; ")),
                "{problem}"
            );
        }
        std::fs::write(&file.path, inline).unwrap();
        assert!(file.read(SERVICE).await.is_ok());
    }

    #[tokio::test]
    async fn mistakes_are_one_sentence_without_values() {
        let (_folder, file) = file(false);
        let read = async || file.read(SERVICE).await;
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
            std::fs::write(&file.path, text).unwrap();
            let problem = format!("{:#}", read().await.err().unwrap());
            assert!(
                problem.contains(": is not a valid kubeconfig: line 1, column "),
                "{problem}"
            );
            assert!(!problem.contains("hunter2"), "{problem}");
        }
        std::fs::write(&file.path, kubeconfig("{token: a}")).unwrap();
        let problem = format!("{:#}", read().await.err().unwrap());
        assert!(problem.contains("ca.pem"), "{problem}");
    }

    #[tokio::test]
    async fn a_changed_kubeconfig_counts_once_the_files_that_it_names_are_there() {
        _ = rustls::crypto::ring::default_provider().install_default();
        let (_folder, file) = file(false);
        let used = kubeconfig("{token: a}").replace(", certificate-authority: ca.pem", "");
        let user = "client-certificate: /none/c.pem, client-key: /none/k.pem";
        for (text, expected) in [
            (used.clone(), Some(false)),
            (used.replace("token: a", "token: b"), Some(true)),
            (used.replace("token: a", user), None),
        ] {
            std::fs::write(&file.path, &text).unwrap();
            assert_eq!(file.differs(&used, SERVICE).await.ok(), expected, "{text}");
        }
    }
}
