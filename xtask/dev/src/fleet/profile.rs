//! The profile of all pools: a copy of a default one, which can be changed.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use osm_api::names;
use osm_testkit::{check, wait_for};
use serde_json::{Value, json};

/// Namespace of the release.
pub const NAMESPACE: &str = "osm";

/// Its name.
pub const PROFILE: &str = "osp-fleet";

/// The default profile that it is a copy of.
const DEFAULT_PROFILE: &str = "osp-ubuntu";

/// OperatingSystemProfiles as they are stored.
fn profiles(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(names::GROUP, "v1alpha1", "OperatingSystemProfile");
    Api::namespaced_with(client.clone(), NAMESPACE, &ApiResource::from_gvk(&kind))
}

/// Creates it as soon as the default one is installed, and waits until it is accepted.
pub async fn create(client: &Client, deadline: Duration) -> Result<()> {
    let profiles = profiles(client);
    let what = format!("the profile {DEFAULT_PROFILE} in {NAMESPACE}");
    let default = wait_for(&what, deadline, async || {
        Ok(Some(profiles.get(DEFAULT_PROFILE).await?))
    })
    .await?;
    let profile = json!({"apiVersion": format!("{}/v1alpha1", names::GROUP), "kind": "OperatingSystemProfile",
        "metadata": {"name": PROFILE, "namespace": NAMESPACE}, "spec": default.data.get("spec")});
    profiles
        .create(&PostParams::default(), &serde_json::from_value(profile)?)
        .await?;
    wait_for("the profile to be accepted", deadline, async || {
        let found = profiles.get(PROFILE).await?;
        check(found.data.pointer("/status/accepted").is_some())
    })
    .await
}

/// Changes its content and version.
pub async fn change(client: &Client) -> Result<()> {
    let profiles = profiles(client);
    let mut profile = profiles.get(PROFILE).await?;
    let spec = profile.data.get_mut("spec").context("spec")?;
    let files = spec
        .pointer_mut("/provisioningConfig/files")
        .and_then(Value::as_array_mut);
    files.context("the profile has no file in its provisioningConfig")?.push(
        json!({"path": "/etc/osm-fleet", "permissions": 644, "content": {"inline": {"data": "changed\n"}}}),
    );
    *spec.get_mut("version").context("spec.version")? = json!("v99.0.0");
    profiles
        .replace(PROFILE, &PostParams::default(), &profile)
        .await?;
    Ok(())
}
