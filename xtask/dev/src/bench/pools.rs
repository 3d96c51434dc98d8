//! The MachineDeployments of the benchmark and their profile.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use osm_api::names;
use osm_testkit::{fixtures, machine_controller, wait_for};
use serde_json::{Value, json};

const CONCURRENCY: usize = 32;

pub const NAMESPACE: &str = "kube-system";

/// The profile of all pools.
pub const PROFILE: &str = "osp-bench";

/// The default profile that it is a copy of.
const DEFAULT_PROFILE: &str = "osp-ubuntu";

/// The time from which each bootstrap Secret, by name, is waited for.
pub type StartTimes = BTreeMap<String, Instant>;

pub struct Pools {
    client: Client,
    names: Vec<String>,
}

impl Pools {
    /// Pools that are not created yet, `bench-0000` and so on.
    pub fn new(client: Client, count: u32) -> Self {
        let names = (0..count).map(|i| format!("bench-{i:04}")).collect();
        Self { client, names }
    }

    /// Creates all, with this revision. Times start when the server has created an object.
    pub async fn create(&self, revision: u64) -> Result<StartTimes> {
        self.each(async |api, name| {
            let object = fixtures::machine_deployment(name, PROFILE);
            let mut object: DynamicObject = serde_json::from_value(object)?;
            object
                .annotations_mut()
                .insert(names::REVISION.to_owned(), revision.to_string());
            api.create(&PostParams::default(), &object).await?;
            Ok(())
        })
        .await
    }

    /// Changes the template of each, and sets another revision, in one request.
    pub async fn rotate(&self, revision: u64) -> Result<StartTimes> {
        let patch = json!({"metadata": {"annotations": {names::REVISION: revision.to_string()}},
            "spec": {"template": {"spec": {"versions": {"kubelet": format!("1.34.{}", revision + 10)}}}}});
        self.each(async |api, name| {
            api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
                .await?;
            Ok(())
        })
        .await
    }

    pub async fn delete(&self) -> Result<StartTimes> {
        self.each(async |api, name| {
            api.delete(name, &DeleteParams::default()).await?;
            Ok(())
        })
        .await
    }

    /// Changes content and version of the profile of all pools.
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
        let now = Instant::now();
        Ok(self.names.iter().map(|name| (secret_name(name), now)).collect())
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
}

fn secret_name(pool: &str) -> String {
    machine_controller::bootstrap_secret_name(NAMESPACE, pool)
}

/// OperatingSystemProfiles as they are stored.
fn profiles(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(names::GROUP, "v1alpha1", "OperatingSystemProfile");
    Api::namespaced_with(client.clone(), NAMESPACE, &ApiResource::from_gvk(&kind))
}

/// Creates the profile of all pools, a copy of a default one as soon as that is installed.
pub async fn create_profile(client: &Client, deadline: Duration) -> Result<()> {
    let profiles = profiles(client);
    let what = format!("the profile {DEFAULT_PROFILE} in {NAMESPACE}");
    let default = wait_for(&what, deadline, async || {
        Ok(Some(profiles.get(DEFAULT_PROFILE).await?))
    })
    .await?;
    let profile = json!({"apiVersion": format!("{}/v1alpha1", names::GROUP), "kind": "OperatingSystemProfile",
        "metadata": {"name": PROFILE, "namespace": NAMESPACE}, "spec": default.data.get("spec")});
    let profile = serde_json::from_value(profile)?;
    profiles.create(&PostParams::default(), &profile).await?;
    Ok(())
}
