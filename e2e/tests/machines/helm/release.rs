//! A release of the chart.

use std::io::Write;

use anyhow::{Context, Result};
use osm_testkit::ControlPlane;
use osm_testkit::helm::{self, Helm};
use serde_json::Value;
use tempfile::NamedTempFile;

/// How long anything may take that Helm waits for.
const TIMEOUT: &str = "--timeout=600s";

/// A release in a namespace of a cluster.
#[derive(Debug)]
pub struct Release {
    helm: Helm,
    name: &'static str,
    namespace: &'static str,
}

impl Release {
    /// Of an administrator of the cluster; nothing is installed yet.
    ///
    /// # Errors
    /// When Helm can't be built.
    pub async fn new(
        control_plane: &ControlPlane,
        name: &'static str,
        namespace: &'static str,
    ) -> Result<Self> {
        Ok(Self {
            helm: Helm::new(control_plane).await?,
            name,
            namespace,
        })
    }

    /// Installs the chart, and waits until its pods are ready. Gives what the chart tells people.
    ///
    /// # Errors
    /// What Helm says.
    pub async fn install(&self, values: &Value) -> Result<String> {
        self.with_values(&["install", self.name, "--create-namespace"], values)
            .await
    }

    /// The same chart with other values.
    ///
    /// # Errors
    /// What Helm says.
    pub async fn upgrade(&self, values: &Value) -> Result<String> {
        self.with_values(&["upgrade", self.name], values).await
    }

    /// Back to what a revision of the release was.
    ///
    /// # Errors
    /// What Helm says.
    pub async fn rollback(&self, revision: u32) -> Result<String> {
        self.run(&["rollback", self.name, &revision.to_string()]).await
    }

    /// Takes everything away that the chart does not keep, and waits until it is gone.
    ///
    /// # Errors
    /// What Helm says.
    pub async fn uninstall(&self) -> Result<String> {
        self.run(&["uninstall", self.name]).await
    }

    async fn with_values(&self, command: &[&str], values: &Value) -> Result<String> {
        let mut file = NamedTempFile::new()?;
        file.write_all(values.to_string().as_bytes())?;
        let (chart, file) = (
            helm::chart().display().to_string(),
            file.path().display().to_string(),
        );
        let registry = format!("--set=image.registry={}", helm::REGISTRY);
        self.run(&[command, &[&chart, "--values", &file, &registry]].concat())
            .await
    }

    async fn run(&self, arguments: &[&str]) -> Result<String> {
        let more = ["--namespace", self.namespace, "--wait", TIMEOUT];
        let run = self.helm.run([arguments, &more].concat());
        run.await
            .with_context(|| format!("{} of release {}", arguments.first().unwrap_or(&""), self.name))
    }
}
