//! The smallest profile that uses everything the services publish, a pool with this profile, and a parser for
//! its documents.

use std::fmt;

use anyhow::{Context, Result};
use osm_api::config::OperatingSystemConfig;
use osm_api::names;
use osm_judges::user_data_files;
use serde_json::{Value, json};

/// A profile of twenty lines. Its bootstrap document has `text`, both tokens, and the provisioning Secret's
/// name and SHA-256; its provisioning document the pool's name and registry passwords.
#[must_use]
pub fn profile(namespace: &str, name: &str, version: &str, text: &str) -> Value {
    json!({
        "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemProfile",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "osName": "ubuntu", "osVersion": "24.04", "version": version, "templateEngine": "Handlebars",
            "supportedCloudProviders": [{"name": "aws"}, {"name": "openstack"}],
            "bootstrapConfig": {"files": [
                file("/etc/text", text),
                file("/etc/token", "{{late \"api/token\" as=\"raw\"}}"),
                file("/etc/kubelet-token", "{{late \"kubelet/token\" as=\"raw\"}}"),
                file("/etc/secret", "{{late \"provisioning/secret-name\" as=\"raw\"}} {{late \"provisioning/sha256\" as=\"raw\"}}"),
            ]},
            "provisioningConfig": {"files": [
                file("/etc/node", "{{pool.name}} {{kubelet.version}}\n"),
                file("/etc/registries", "{{#each containerd.registries}}{{#if credentials}}password = {{late (concat \"registry/\" host \"/password\") as=\"toml\"}}\n{{/if}}{{/each}}{{#if proxy.credentials}}proxy = {{late \"proxy/url\" as=\"json\"}}\n{{/if}}"),
            ]},
        },
    })
}

fn file(path: &str, data: &str) -> Value {
    json!({"path": path, "permissions": 600, "content": {"inline": {"data": data}}})
}

/// A MachineDeployment in `kube-system` as users write it.
#[must_use]
pub fn machine_deployment(name: &str, profile: &str) -> Value {
    json!({
        "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": {"name": name, "namespace": "kube-system", "annotations": {names::PROFILE: profile}},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"pool": name}},
            "template": {
                "metadata": {"labels": {"pool": name}},
                "spec": {
                    "versions": {"kubelet": "1.34.2"},
                    "providerSpec": {"value": {
                        "sshPublicKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOperator operator@example"],
                        "cloudProvider": "openstack", "cloudProviderSpec": {},
                        "operatingSystem": "ubuntu", "operatingSystemSpec": {"distUpgradeOnBoot": false},
                    }},
                },
            },
        },
    })
}

/// What a machine of a pool would boot with, taken apart. `Debug` does not show it.
#[derive(Clone)]
#[allow(missing_docs)]
pub struct UserData {
    pub text: String,
    pub api_token: String,
    pub kubelet_token: String,
    pub provisioning_secret: String,
    /// SHA-256 of the provisioning document, 64 hex characters.
    pub provisioning_digest: String,
}

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserData")
            .field("provisioning_secret", &self.provisioning_secret)
            .finish_non_exhaustive()
    }
}

/// An OperatingSystemConfig as JSON, followed by its documents, which are compressed in it.
///
/// # Errors
/// Documents that another client has altered.
pub fn with_documents(config: &OperatingSystemConfig) -> Result<String> {
    let object = serde_json::to_string(config)?;
    let is_rendered = config
        .status
        .as_ref()
        .is_some_and(|status| status.rendered.is_some());
    Ok(if is_rendered {
        format!("{object}\n{}", serde_json::to_string(&config.content()?)?)
    } else {
        object
    })
}

/// Takes apart the bootstrap document that [`profile`] makes.
///
/// # Errors
/// A document that has not all of it.
pub fn parse(text: String) -> Result<UserData> {
    let files = user_data_files(&text).map_err(|complaints| anyhow::anyhow!("{complaints}"))?;
    let content = |path: &str| {
        files
            .iter()
            .find(|file| file.path == path)
            .map(|file| file.content.clone())
            .context(path.to_owned())
    };
    let secret = content("/etc/secret")?;
    let (name, digest) = secret.trim().split_once(' ').context("two words")?;
    Ok(UserData {
        api_token: content("/etc/token")?,
        kubelet_token: content("/etc/kubelet-token")?,
        provisioning_secret: name.to_owned(),
        provisioning_digest: digest.to_owned(),
        text,
    })
}
