//! The MachineDeployments of the benchmark and their profile.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use osm_api::names;
use osm_testkit::{fixtures, machine_controller};
use serde_json::{Value, json};

/// Number of concurrent requests.
const CONCURRENCY: usize = 32;

/// Namespace of the MachineDeployments.
pub const NAMESPACE: &str = "kube-system";

/// Names of all MachineDeployments of the benchmark begin with it.
pub const PREFIX: &str = "bench-";

/// The profile of all pools.
pub const PROFILE: &str = "osp-bench";

/// The time from which each bootstrap Secret, by name, is waited for.
pub type StartTimes = BTreeMap<String, Instant>;

/// The MachineDeployments.
pub struct Pools {
    client: Client,
    names: Vec<String>,
}

impl Pools {
    /// Pools that are not created yet, `bench-0000` and so on.
    pub fn new(client: Client, count: usize) -> Self {
        let names = (0..count).map(|i| format!("{PREFIX}{i:04}")).collect();
        Self { client, names }
    }

    /// One pool that is not created yet.
    pub fn single(client: Client, name: &str) -> Self {
        Self {
            client,
            names: vec![name.to_owned()],
        }
    }

    /// Creates all, with this revision. Times start when the server has created an object.
    ///
    /// # Errors
    /// An error of the server.
    pub async fn create(&self, revision: u64) -> Result<StartTimes> {
        self.each(async |api, name| {
            let object = serde_json::from_value(fixtures::example(name, PROFILE, revision)?)?;
            api.create(&PostParams::default(), &object).await?;
            Ok(())
        })
        .await
    }

    /// Changes the template of each, and sets another revision, in one request.
    ///
    /// # Errors
    /// An error of the server.
    pub async fn rotate(&self, revision: u64) -> Result<StartTimes> {
        let kubelet =
            json!({"template": {"spec": {"versions": {"kubelet": format!("1.34.{}", revision + 10)}}}});
        self.patch(json!({"metadata": annotation(revision), "spec": kubelet}))
            .await
    }

    /// Deletes all.
    ///
    /// # Errors
    /// An error of the server.
    pub async fn delete(&self) -> Result<StartTimes> {
        self.each(async |api, name| {
            api.delete(name, &DeleteParams::default()).await?;
            Ok(())
        })
        .await
    }

    /// Changes content and version of the profile of all pools.
    ///
    /// # Errors
    /// An error of the server.
    pub async fn change_profile(&self) -> Result<StartTimes> {
        let profiles = profiles(&self.client);
        let mut profile = profiles.get(PROFILE).await?;
        let spec = profile.data.get_mut("spec").context("spec")?;
        let files = spec
            .pointer_mut("/provisioningConfig/files")
            .and_then(Value::as_array_mut);
        files.context("the profile has no file in its provisioningConfig")?.push(
            json!({"path": "/etc/osm-bench", "permissions": 644, "content": {"inline": {"data": "changed\n"}}}),
        );
        *spec.get_mut("version").context("spec.version")? = json!("v99.0.0");
        profiles
            .replace(PROFILE, &PostParams::default(), &profile)
            .await?;
        Ok(self.all_since_now())
    }

    async fn patch(&self, patch: Value) -> Result<StartTimes> {
        self.each(async |api, name| {
            api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
                .await?;
            Ok(())
        })
        .await
    }

    async fn each(
        &self,
        change: impl AsyncFn(&Api<DynamicObject>, &str) -> Result<()>,
    ) -> Result<StartTimes> {
        let resource = machine_controller::machine_deployment();
        let api = Api::namespaced_with(self.client.clone(), NAMESPACE, &resource);
        let work = stream::iter(&self.names).map(async |name| {
            change(&api, name).await.with_context(|| name.clone())?;
            anyhow::Ok((secret_name(name), Instant::now()))
        });
        work.buffer_unordered(CONCURRENCY).try_collect().await
    }

    fn all_since_now(&self) -> StartTimes {
        let now = Instant::now();
        self.names.iter().map(|name| (secret_name(name), now)).collect()
    }
}

fn annotation(revision: u64) -> Value {
    json!({"annotations": {names::REVISION: revision.to_string()}})
}

fn secret_name(pool: &str) -> String {
    machine_controller::bootstrap_secret_name(NAMESPACE, pool)
}

/// OperatingSystemProfiles as they are stored, so that nothing that another implementation wrote is lost.
pub fn profiles(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(names::GROUP, "v1alpha1", "OperatingSystemProfile");
    Api::namespaced_with(client.clone(), NAMESPACE, &ApiResource::from_gvk(&kind))
}

/// Creates the profile of all pools with this `spec`.
///
/// # Errors
/// An error of the server.
pub async fn create_profile(client: &Client, spec: &Value) -> Result<()> {
    let profile = json!({"apiVersion": format!("{}/v1alpha1", names::GROUP), "kind": "OperatingSystemProfile",
        "metadata": {"name": PROFILE, "namespace": NAMESPACE}, "spec": spec});
    let profile: DynamicObject = serde_json::from_value(profile)?;
    profiles(client)
        .create(&PostParams::default(), &profile)
        .await
        .with_context(|| format!("profile {}", profile.name_any()))?;
    Ok(())
}
