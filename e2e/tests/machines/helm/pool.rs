//! Pools, and what new machines of them get.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use osm_api::config::OperatingSystemConfig;
use osm_api::content::ContentView;
use osm_api::names::{self, KUBE_SYSTEM};
use osm_testkit::{fixtures, machine_controller, wait_for};
use serde_json::{Value, json};

/// How long anything may take until it is published.
const PUBLISHED: Duration = Duration::from_secs(300);

/// A MachineDeployment with the revision that machine-controller has given it.
pub struct Pool {
    client: Client,
    machine_deployment: DynamicObject,
    revision: u64,
}

impl Pool {
    /// Creates it with its first revision.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn create(client: &Client, name: &str, profile: &str) -> Result<Self> {
        let mut manifest = fixtures::machine_deployment(name, profile);
        let annotations = manifest
            .pointer_mut("/metadata/annotations")
            .and_then(Value::as_object_mut);
        annotations
            .context("annotations")?
            .insert(names::REVISION.to_owned(), json!("1"));
        let manifest: DynamicObject = serde_json::from_value(manifest)?;
        let machine_deployment = api(client).create(&PostParams::default(), &manifest).await?;
        Ok(Self {
            client: client.clone(),
            machine_deployment,
            revision: 1,
        })
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.machine_deployment.name_any()
    }

    /// Changes its template and gives it the next revision.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn change(&mut self) -> Result<()> {
        self.revision += 1;
        let labels = json!({"revision": self.revision.to_string()});
        let change = json!({"metadata": {"annotations": {names::REVISION: self.revision.to_string()}},
            "spec": {"template": {"metadata": {"labels": labels}}}});
        self.machine_deployment = api(&self.client)
            .patch(&self.name(), &PatchParams::default(), &Patch::Merge(change))
            .await?;
        Ok(())
    }

    /// Waits until its config, in this namespace of the cluster `management`, is published for its revision; gives that.
    ///
    /// # Errors
    /// When that takes five minutes, with the config's conditions.
    pub async fn published(&self, management: &Client, namespace: &str) -> Result<OperatingSystemConfig> {
        let configs = Api::<OperatingSystemConfig>::namespaced(management.clone(), namespace);
        let (name, revision) = (
            names::config_name(&self.name(), KUBE_SYSTEM),
            self.revision.to_string(),
        );
        wait_for(&format!("{name} to be published"), PUBLISHED, async || {
            let config = configs.get(&name).await?;
            let status = config.status.clone().unwrap_or_default();
            let content = ContentView::of(&config);
            let uid = self.machine_deployment.metadata.uid.as_deref();
            let of_this = uid.is_some_and(|uid| content.belongs_to(uid));
            ensure!(
                of_this && content.is_published(&revision),
                "its conditions: {:?}",
                status.conditions
            );
            Ok(Some(config))
        })
        .await
    }

    /// What a new machine of it boots with.
    ///
    /// # Errors
    /// Whatever keeps machine-controller from making the machine.
    pub async fn user_data(&self) -> Result<String> {
        let revision = self.revision.to_string();
        let text =
            machine_controller::fetch_user_data(&self.client, &self.machine_deployment, &revision, "machine");
        Ok(text.await?)
    }

    /// Deletes it, and waits until nothing keeps it.
    ///
    /// # Errors
    /// When it is still there after five minutes.
    pub async fn delete(self) -> Result<()> {
        let api = api(&self.client);
        api.delete(&self.name(), &DeleteParams::default()).await?;
        wait_for(&format!("{} to be gone", self.name()), PUBLISHED, async || {
            let there = api.get_opt(&self.name()).await?;
            Ok(there
                .is_none_or(|there| there.uid() != self.machine_deployment.uid())
                .then_some(()))
        })
        .await
    }
}

fn api(client: &Client) -> Api<DynamicObject> {
    Api::namespaced_with(
        client.clone(),
        KUBE_SYSTEM,
        &machine_controller::machine_deployment(),
    )
}
