//! Single objects, read from the API server. An object that can't be decoded is not a failed request.

use kube::api::GetParams;
use kube::core::{Request, Status};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::object::{self, Unreadable};

/// Reads the object of this name and reduces it, as [`crate::watch::Projection`] does. `None` only if the 404
/// is about this very object: a missing CustomResourceDefinition or a proxy also leads to 404, and does not
/// prove that the object is deleted.
///
/// # Errors
/// Those of the request, and every other 404.
pub async fn get<K: Resource<DynamicType = ()> + Clone + DeserializeOwned, V>(
    api: &Api<K>,
    name: &str,
    project: impl FnOnce(K) -> V,
    unreadable: impl FnOnce(&Unreadable) -> V,
) -> Result<Option<V>, kube::Error> {
    let request = Request::new(api.resource_url()).get(name, &GetParams::default());
    let request = request.map_err(kube::Error::BuildRequest)?;
    let is_about = |status: &Status| {
        let details = status.details.as_ref();
        details.is_some_and(|details| details.name == name && details.kind == K::plural(&()))
    };
    match send(api, request, project, unreadable).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 && is_about(&status) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sends a request whose answer is an object, and reduces the object.
///
/// # Errors
/// Those of the request.
pub(crate) async fn send<K: Resource<DynamicType = ()> + Clone + DeserializeOwned, V>(
    api: &Api<K>,
    request: http::Request<Vec<u8>>,
    project: impl FnOnce(K) -> V,
    unreadable: impl FnOnce(&Unreadable) -> V,
) -> Result<V, kube::Error> {
    let text = api.clone().into_client().request_text(request).await?;
    let object = object::decode(&text).map_err(kube::Error::SerdeError)?;
    Ok(match object {
        Ok(object) => project(object),
        Err(cannot) => unreadable(&cannot),
    })
}
