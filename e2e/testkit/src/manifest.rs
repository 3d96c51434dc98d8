//! The files in `deploy`: what the chart renders with its defaults, for installations without Helm, and its
//! alerts for a Prometheus without Prometheus Operator.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::helm::Helm;

const HEAD: &str = "# Generated from the chart by `cargo xtask manifest`. Don't edit: docs/install.md says how to change it.\n";

const HEAD_OF_RULES: &str = "# Generated from the chart by `cargo xtask manifest`. Don't edit: docs/monitor.md describes how to render other thresholds.\n";

/// Labels and annotations by which Helm knows what it has installed.
const OF_HELM: [&str; 3] = [
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
    "helm.sh/resource-policy",
];

/// The folder with the manifest and the kustomize base.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

#[must_use]
pub fn file() -> PathBuf {
    folder().join("operating-system-manager.yaml")
}

#[must_use]
pub fn rules_file() -> PathBuf {
    folder().join("prometheus-rules.yaml")
}

/// Renders the alerts, as a file of rules.
///
/// # Errors
/// When Helm can't be built or refuses.
pub async fn render_rules() -> Result<String> {
    let values = ["--set=metrics.prometheusRule.enabled=true,metrics.prometheusRule.allNamespaces=true"];
    let objects = Helm::without_cluster()
        .await?
        .template("osm", "kube-system", &values)
        .await?;
    let rule = objects.iter().find(|object| object["kind"] == "PrometheusRule");
    let rules = &rule.context("the chart renders no alerts")?["spec"];
    Ok(format!(
        "{HEAD_OF_RULES}{}\n",
        serde_saphyr::to_string(rules)?.trim_end()
    ))
}

/// Renders the manifest.
///
/// # Errors
/// When Helm can't be built or refuses.
pub async fn render() -> Result<String> {
    let mut text = HEAD.to_owned();
    let objects = Helm::without_cluster()
        .await?
        .template("osm", "kube-system", &[])
        .await?;
    for mut object in objects {
        forget_helm(&mut object);
        text += &format!("---\n{}\n", serde_saphyr::to_string(&object)?.trim_end());
    }
    Ok(text)
}

/// Removes the marks of Helm at any depth.
fn forget_helm(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !OF_HELM.contains(&name.as_str()));
            fields.values_mut().for_each(forget_helm);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_helm),
        _ => {}
    }
}
