//! Status by server-side apply: each controller sends only the fields and conditions that it owns.

use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::read;

/// Applies `status` as the fields of `manager`; what this manager owned and leaves out is removed.
///
/// The resourceVersion makes the write fail with 409 if the object has changed, or was replaced by another
/// one of the same name. A uid would not: the API server ignores it in a server-side apply.
///
/// Returns the object as it is now; `None` if it can't be decoded.
///
/// # Errors
/// Those of the request; 404 if the object no longer exists.
pub async fn apply<K>(
    api: &Api<K>,
    manager: &str,
    name: &str,
    resource_version: &str,
    status: &(impl Serialize + Debug),
) -> Result<Option<K>, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned,
{
    let patch = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {"name": name, "resourceVersion": resource_version},
        "status": status,
    });
    let params = PatchParams::apply(manager).force();
    send(api, name, &params, &Patch::Apply(patch)).await
}

/// Replaces all conditions by `conditions`, as [`apply`] with a resourceVersion, and whoever owns fields of
/// those that are left out.
///
/// A server-side apply can't remove a condition of which another manager owns a field: the rest of it would
/// stay, and be invalid.
///
/// # Errors
/// Those of the request; 404 if the object no longer exists.
pub async fn replace_conditions<K>(
    api: &Api<K>,
    name: &str,
    resource_version: &str,
    conditions: &[Condition],
) -> Result<Option<K>, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned,
{
    let metadata = json!({"resourceVersion": resource_version});
    let patch = Patch::Merge(json!({"metadata": metadata, "status": {"conditions": conditions}}));
    send(api, name, &PatchParams::default(), &patch).await
}

async fn send<K>(
    api: &Api<K>,
    name: &str,
    params: &PatchParams,
    patch: &Patch<Value>,
) -> Result<Option<K>, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned,
{
    let request = Request::new(api.resource_url()).patch_subresource("status", name, params, patch);
    let request = request.map_err(kube::Error::BuildRequest)?;
    read::send(api, request, Some, |_| None).await
}
