//! Status by server-side apply: each controller sends only the fields and conditions that it owns.

use std::fmt::Debug;

use kube::api::{PartialObjectMeta, Patch, PatchParams};
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

/// Applies `status` as the fields of `manager`; what this manager owned and leaves out is removed.
///
/// The resourceVersion makes a write to anything but the state that was seen, such as a successor of the same name, fail
/// with 409. (A uid does not: the API server ignores it here.)
///
/// # Errors
/// Those of the request; 404 where the object is gone.
pub async fn apply<K>(
    api: &Api<K>,
    manager: &str,
    name: &str,
    resource_version: &str,
    status: &impl Serialize,
) -> Result<K, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let patch = json!({
        "apiVersion": K::api_version(&()), "kind": K::kind(&()),
        "metadata": {"name": name, "resourceVersion": resource_version},
        "status": status,
    });
    api.patch_status(name, &PatchParams::apply(manager).force(), &Patch::Apply(&patch)).await
}

/// An error of the API client in a line that people can read: what the server said, else the chain of causes.
pub fn brief(error: &kube::Error) -> String {
    crate::request::chain(error)
}

/// Whether the server answered with this HTTP status code.
pub fn is_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// Reads an object's metadata from the API server itself. `None` only where the server says that there is none of this
/// name: a missing CustomResourceDefinition or namespace answers 404 as well, and proves nothing.
///
/// # Errors
/// Those of the request, and every other 404.
pub async fn live<K>(api: &Api<K>, name: &str) -> Result<Option<PartialObjectMeta<K>>, kube::Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    match api.get_metadata(name).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status))
            if status.code == 404 && status.details.as_ref().is_some_and(|details| details.name == name) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Whether a create was refused because the name is taken. Both this and a failed precondition are 409.
pub fn already_exists(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == "AlreadyExists")
}

/// Whether a write failed on its precondition: somebody else has written, or the object is another one.
pub fn conflict(error: &kube::Error) -> bool {
    is_code(error, 409) && !already_exists(error)
}

/// Whether a request failed because the namespace is not there, or is going away and takes nothing new.
pub fn namespace_missing(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    status.details.as_ref().is_some_and(|details| match status.code {
        403 => details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating"),
        404 => details.kind == "namespaces",
        _ => false,
    })
}
