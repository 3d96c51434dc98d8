//! A pool of machines: its MachineDeployment, and what its cloud gives a machine.

use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, TypeMeta};
use osm_api::names;
use osm_lab::machines::Link;
use osm_testkit::{machine_controller, wait_for};
use serde_json::{Value, json};

use super::environment::Environment;

/// Where MachineDeployments are.
const NAMESPACE: &str = "kube-system";

/// Who may log in to machines of Flatcar. Other machines of these tests have no SSH server that would read
/// keys.
pub const SSH_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ7nZk0bXHqQzY3vYw1gkQ5mWbS2oQk8tq1xKb9u3Vdf e2e";

/// How long it may take until a revision is published, also by pods on an emulated machine.
const PUBLISHED: Duration = Duration::from_secs(600);

/// A cloud that machines are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cloud {
    /// Tells a machine its name with the user data, and takes that as it is.
    OpenStack,
    /// Tells it when asked, and takes user data compressed.
    Aws,
}

impl Cloud {
    /// As a MachineDeployment names it.
    pub fn provider(self) -> &'static str {
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

/// What the machines of a pool have in common.
pub struct Template<'a> {
    /// The cloud that they are in.
    pub cloud: Cloud,
    /// Which addresses they have.
    pub link: Link,
    /// As a MachineDeployment names it.
    pub operating_system: &'a str,
    /// The version of their kubelet, without `v`.
    pub kubelet: &'a str,
}

/// A MachineDeployment with a revision.
pub struct Pool {
    cloud: Cloud,
    operating_system: String,
    machine_deployment: DynamicObject,
    revision: u64,
}

impl Pool {
    /// Creates it, with annotations.
    pub async fn create(
        environment: &Environment,
        template: &Template<'_>,
        name: &str,
        annotations: &Value,
    ) -> Result<Self> {
        let manifest = manifest(template, name, annotations);
        let applied = environment
            .control_plane
            .apply_yaml(&manifest.to_string())
            .await?;
        let machine_deployment = applied.into_iter().next().context("the MachineDeployment")?;
        let mut pool = Self {
            cloud: template.cloud,
            operating_system: template.operating_system.to_owned(),
            machine_deployment,
            revision: 0,
        };
        pool.next_revision(environment).await?;
        Ok(pool)
    }

    /// Creates a Machine of the pool, as machine-controller does. `internal_dns` is the name that a cloud
    /// gives it, if it gives one.
    pub async fn machine(
        &self,
        environment: &Environment,
        name: &str,
        internal_dns: Option<&str>,
    ) -> Result<()> {
        const API: &str = "cluster.k8s.io/v1alpha1";
        let create = async |kind: &str, owner: &DynamicObject, spec: Value| -> Result<DynamicObject> {
            let owner_types = owner.types.as_ref().context("an owner's kind")?;
            let manifest = json!({"apiVersion": API, "kind": kind, "spec": spec, "metadata": {"name": name, "namespace": NAMESPACE,
                "ownerReferences": [{"apiVersion": API, "kind": owner_types.kind, "name": owner.metadata.name,
                    "uid": owner.metadata.uid, "controller": true}]}});
            let applied = environment
                .control_plane
                .apply_yaml(&manifest.to_string())
                .await?;
            applied.into_iter().next().context("the object")
        };
        let mut deployment = self.machine_deployment.clone();
        deployment.types = Some(TypeMeta {
            api_version: API.to_owned(),
            kind: "MachineDeployment".to_owned(),
        });
        let set = create("MachineSet", &deployment, json!({})).await?;
        let provider = json!({"value": {"cloudProvider": self.cloud.provider()}});
        let spec = json!({"metadata": {"name": name}, "providerSpec": provider});
        create("Machine", &set, spec).await?;
        if let Some(internal_dns) = internal_dns {
            let addresses = json!([{"type": "InternalDNS", "address": internal_dns}]);
            let resource =
                ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.k8s.io", "v1alpha1", "Machine"));
            let api = Api::<DynamicObject>::namespaced_with(
                environment.control_plane.admin()?,
                NAMESPACE,
                &resource,
            );
            let patch = Patch::Merge(json!({"status": {"addresses": addresses}}));
            api.patch_status(name, &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }

    /// Changes its annotations and its template, as an operator who rolls it out does.
    pub async fn roll(&mut self, environment: &Environment, annotations: &Value) -> Result<()> {
        let change = json!({"metadata": {"annotations": annotations},
            "spec": {"template": {"metadata": {"labels": {"rolled": "yes"}}}}});
        let api = Api::<DynamicObject>::namespaced_with(
            environment.control_plane.admin()?,
            NAMESPACE,
            &machine_controller::machine_deployment(),
        );
        let name = self.machine_deployment.metadata.name.clone().unwrap_or_default();
        self.machine_deployment = api
            .patch(&name, &PatchParams::default(), &Patch::Merge(change))
            .await?;
        self.next_revision(environment).await
    }

    async fn next_revision(&mut self, environment: &Environment) -> Result<()> {
        self.revision += 1;
        let client = environment.control_plane.admin()?;
        self.machine_deployment =
            machine_controller::stamp_revision(&client, &self.machine_deployment, self.revision).await?;
        Ok(())
    }

    /// The user data of a machine, as soon as machine-controller could have it and the settings in force are
    /// in it.
    pub async fn user_data(&self, environment: &Environment, machine: &str) -> Result<UserData> {
        let client = environment.control_plane.admin()?;
        let text = wait_for("the bootstrap Secret", PUBLISHED, async || {
            let revision = self.revision.to_string();
            let name = self
                .machine_deployment
                .metadata
                .name
                .as_deref()
                .unwrap_or_default();
            environment
                .is_published(&names::config_name(name, NAMESPACE), &revision)
                .await?;
            let text =
                machine_controller::fetch_user_data(&client, &self.machine_deployment, &revision, machine)
                    .await;
            Ok(Some(text?))
        })
        .await?;
        // What the cloud's API takes, its metadata service gives back decoded.
        let sent = machine_controller::delivered(self.cloud.provider(), &self.operating_system, &text)?;
        Ok(UserData {
            text,
            delivered: BASE64_STANDARD.decode(sent)?,
        })
    }
}

fn manifest(template: &Template<'_>, name: &str, annotations: &Value) -> Value {
    let Template {
        cloud,
        link,
        operating_system,
        kubelet,
    } = *template;
    let ip_family = match link {
        Link::IPv4 => "IPv4",
        Link::IPv6 => "IPv6",
    };
    let keys: &[&str] = if operating_system == "flatcar" {
        &[SSH_KEY]
    } else {
        &[]
    };
    json!({
        "apiVersion": "cluster.k8s.io/v1alpha1",
        "kind": "MachineDeployment",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"pool": name}},
            "template": {
                "metadata": {"labels": {"pool": name}},
                "spec": {
                    "versions": {"kubelet": kubelet},
                    "providerSpec": {"value": {
                        "cloudProvider": cloud.provider(),
                        "cloudProviderSpec": {"image": "Ubuntu 24.04", "flavor": "m1.large"},
                        "network": {"ipFamily": ip_family},
                        "operatingSystem": operating_system,
                        "operatingSystemSpec": {"distUpgradeOnBoot": false},
                        "sshPublicKeys": keys,
                    }},
                },
            },
        },
    })
}
