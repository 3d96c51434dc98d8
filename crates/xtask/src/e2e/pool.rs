//! A pool of machines: its MachineDeployment, and what a machine of it gets from its cloud.

use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use osm_api::names::KUBELET_CONFIG_PREFIX;
use osm_testkit::{machine_controller, wait_for};
use serde_json::{Value, json};

use super::site::Site;

/// How long it may take until a revision is published.
const PUBLISHED: Duration = Duration::from_secs(60);

/// A cloud that machines are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cloud {
    /// Tells a machine its name with the user data, and takes that as it is.
    OpenStack,
    /// Tells it when asked, and takes user data compressed.
    Aws,
}

impl Cloud {
    fn provider(self) -> &'static str {
        match self {
            Self::OpenStack => "openstack",
            Self::Aws => "aws",
        }
    }
}

/// What a machine gets from its cloud.
pub struct UserData {
    /// The document.
    pub text: String,
    /// As the cloud's metadata service hands it out.
    pub delivered: Vec<u8>,
}

impl From<String> for UserData {
    fn from(text: String) -> Self {
        Self { delivered: text.clone().into_bytes(), text }
    }
}

/// A MachineDeployment with a revision.
pub struct Pool {
    cloud: Cloud,
    machine_deployment: DynamicObject,
    revision: u64,
}

impl Pool {
    /// Creates it, with annotations.
    pub async fn create(site: &Site, cloud: Cloud, name: &str, annotations: &Value) -> Result<Self> {
        let applied = site.control_plane.apply_yaml(&manifest(cloud, name, annotations).to_string()).await?;
        let machine_deployment = applied.into_iter().next().context("the MachineDeployment")?;
        let mut pool = Self { cloud, machine_deployment, revision: 0 };
        pool.next_revision(site).await?;
        Ok(pool)
    }

    /// Changes its annotations and its template, as an operator who rolls it out does.
    pub async fn roll(&mut self, site: &Site, annotations: &Value) -> Result<()> {
        let change = json!({"metadata": {"annotations": annotations},
            "spec": {"template": {"metadata": {"labels": {"rolled": "yes"}}}}});
        let api = Api::<DynamicObject>::namespaced_with(
            site.control_plane.admin()?,
            "kube-system",
            &machine_controller::machine_deployment(),
        );
        let name = self.machine_deployment.metadata.name.clone().unwrap_or_default();
        self.machine_deployment = api.patch(&name, &PatchParams::default(), &Patch::Merge(change)).await?;
        self.next_revision(site).await
    }

    async fn next_revision(&mut self, site: &Site) -> Result<()> {
        self.revision += 1;
        let client = site.control_plane.admin()?;
        self.machine_deployment =
            machine_controller::stamp_revision(&client, &self.machine_deployment, self.revision).await?;
        Ok(())
    }

    /// The user data of a machine, as soon as machine-controller could have it.
    pub async fn user_data(&self, site: &Site, machine: &str) -> Result<UserData> {
        let client = site.control_plane.admin()?;
        let text = wait_for("the bootstrap Secret", PUBLISHED, async || {
            let revision = self.revision.to_string();
            let text =
                machine_controller::fetch_user_data(&client, &self.machine_deployment, &revision, machine)
                    .await;
            Ok(Some(text?))
        })
        .await?;
        // What the cloud's API takes, its metadata service gives back decoded.
        let sent = machine_controller::delivered(self.cloud.provider(), "ubuntu", &text)?;
        Ok(UserData { text, delivered: BASE64_STANDARD.decode(sent)? })
    }
}

fn manifest(cloud: Cloud, name: &str, annotations: &Value) -> Value {
    // Machines share a disk with whoever runs them: how full it is says nothing of a node.
    let mut all = json!({format!("{KUBELET_CONFIG_PREFIX}EvictionHard"): "memory.available<50Mi"});
    if let (Some(all), Some(annotations)) = (all.as_object_mut(), annotations.as_object()) {
        all.extend(annotations.clone());
    }
    json!({
        "apiVersion": "cluster.k8s.io/v1alpha1",
        "kind": "MachineDeployment",
        "metadata": {"name": name, "namespace": "kube-system", "annotations": all},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"pool": name}},
            "template": {
                "metadata": {"labels": {"pool": name}},
                "spec": {
                    "versions": {"kubelet": Site::KUBELET_VERSION},
                    "providerSpec": {"value": {
                        "cloudProvider": cloud.provider(),
                        "cloudProviderSpec": {"image": "Ubuntu 24.04", "flavor": "m1.large"},
                        "operatingSystem": "ubuntu",
                        "operatingSystemSpec": {"distUpgradeOnBoot": false},
                    }},
                },
            },
        },
    })
}
