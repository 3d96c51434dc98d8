//! Requests about objects by name.
//!
//! kube puts a name into the path of a request as it is. A name that comes from the spec of an object can be any text: `a/../b` would lead to
//! another object, and `a?b` to another request. So [`Api`] is the only way to name an object, and refuses such a name for every kind.

use std::fmt::Debug;

use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::{DeleteParams, ListParams, ObjectList, PartialObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Whether a text can be a segment of a path as it is. Roles have names with `:`, and old kubelets use capitals and `_`.
pub fn is_segment(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"/?#%\\".contains(&byte);
    !matches!(name, "" | "." | "..") && name.bytes().all(is_plain)
}

/// As kube's `Api`, with checked names.
#[derive(Clone)]
#[allow(clippy::disallowed_types)] // This is what the others use instead.
pub struct Api<K>(kube::Api<K>);

#[allow(clippy::disallowed_types)]
impl<K: Resource<DynamicType = ()>> Api<K> {
    /// Objects of the cluster, which belong to no namespace.
    pub fn all(client: Client) -> Self
    where
        K: Resource<Scope = ClusterResourceScope>,
    {
        Self(kube::Api::all(client))
    }

    pub fn namespaced(client: Client, namespace: &str) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
    {
        Self(kube::Api::namespaced(client, namespace))
    }

    pub fn resource_url(&self) -> &str {
        self.0.resource_url()
    }

    pub fn into_client(self) -> Client {
        self.0.into_client()
    }

    /// kube's `Api`, if the name of the namespace can be in a path.
    fn checked(&self) -> Result<&kube::Api<K>, kube::Error> {
        match self.0.namespace().is_none_or(is_segment) {
            true => Ok(&self.0),
            false => Err(refused("namespace", K::kind(&()).as_ref())),
        }
    }

    /// As [`Self::checked`], if the name of the object can be as well.
    pub(crate) fn about(&self, name: &str) -> Result<&kube::Api<K>, kube::Error> {
        match is_segment(name) {
            true => self.checked(),
            false => Err(refused("object", K::kind(&()).as_ref())),
        }
    }
}

/// The message does not contain the name, which can be any text.
pub(crate) fn refused(what: &str, kind: &str) -> kube::Error {
    kube::Error::BuildRequest(kube::core::request::Error::Validation(format!(
        "the name of the {what} can't be in the path of a request for a {kind}: it is empty, `.` or `..`, or contains a blank or one of `/?#%\\`; \
         correct the name where it is referred to"
    )))
}

/// Whether the request was never sent, because of a name in it.
pub(crate) fn is_refused(error: &kube::Error) -> bool {
    matches!(
        error,
        kube::Error::BuildRequest(kube::core::request::Error::Validation(_))
    )
}

impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug> Api<K> {
    pub async fn get(&self, name: &str) -> Result<K, kube::Error> {
        self.about(name)?.get(name).await
    }

    pub async fn get_opt(&self, name: &str) -> Result<Option<K>, kube::Error> {
        self.about(name)?.get_opt(name).await
    }

    pub async fn get_metadata(&self, name: &str) -> Result<PartialObjectMeta<K>, kube::Error> {
        self.about(name)?.get_metadata(name).await
    }

    pub async fn get_metadata_opt(&self, name: &str) -> Result<Option<PartialObjectMeta<K>>, kube::Error> {
        self.about(name)?.get_metadata_opt(name).await
    }

    pub async fn list(&self, params: &ListParams) -> Result<ObjectList<K>, kube::Error> {
        self.checked()?.list(params).await
    }

    pub async fn create(&self, params: &PostParams, object: &K) -> Result<K, kube::Error>
    where
        K: Serialize,
    {
        self.checked()?.create(params, object).await
    }

    pub async fn replace(&self, name: &str, params: &PostParams, object: &K) -> Result<K, kube::Error>
    where
        K: Serialize,
    {
        self.about(name)?.replace(name, params, object).await
    }

    pub async fn patch<P: Serialize + Debug>(
        &self,
        name: &str,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K, kube::Error> {
        self.about(name)?.patch(name, params, patch).await
    }

    pub async fn patch_subresource<P: Serialize + Debug>(
        &self,
        subresource: &str,
        name: &str,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K, kube::Error> {
        let api = self.about(name)?;
        api.patch_subresource(subresource, name, params, patch).await
    }

    pub async fn delete(&self, name: &str, params: &DeleteParams) -> Result<(), kube::Error> {
        self.about(name)?.delete(name, params).await.map(drop)
    }
}

impl Api<ServiceAccount> {
    pub async fn create_token_request(
        &self,
        name: &str,
        params: &PostParams,
        request: &TokenRequest,
    ) -> Result<TokenRequest, kube::Error> {
        self.about(name)?
            .create_token_request(name, params, request)
            .await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use k8s_openapi::api::core::v1::{Node, Secret};
    use kube::client::Body;
    use tower::BoxError;

    use super::*;

    /// A client that counts its requests, and finds nothing.
    fn counting() -> (Client, Arc<AtomicUsize>) {
        let sent = Arc::new(AtomicUsize::new(0));
        let count = sent.clone();
        let answer = tower::service_fn(move |_: Request<Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            async {
                let not_found = r#"{"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "", "code": 404}"#;
                Response::builder()
                    .status(404)
                    .body(Body::from(not_found.as_bytes().to_vec()))
                    .map_err(BoxError::from)
            }
        });
        (Client::new(answer, "default"), sent)
    }

    const BAD: [&str; 13] = [
        "",
        ".",
        "..",
        "a/b",
        "odd/../existing",
        "/a",
        "a/status",
        "a?b",
        "a#b",
        "a%2fb",
        "x y",
        "a\\b",
        "ü",
    ];

    /// One call for each method that takes a name.
    async fn failures(client: &Client, name: &str) -> Vec<kube::Error> {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), "n");
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "n");
        let (new, change) = (PostParams::default(), PatchParams::default());
        let patch = Patch::Merge(serde_json::json!({}));
        let failed = [
            secrets.get(name).await.err(),
            secrets.get_metadata(name).await.err(),
            secrets.replace(name, &new, &Secret::default()).await.err(),
            secrets.patch(name, &change, &patch).await.err(),
            secrets
                .patch_subresource("status", name, &change, &patch)
                .await
                .err(),
            secrets.delete(name, &DeleteParams::default()).await.err(),
            accounts
                .create_token_request(name, &new, &TokenRequest::default())
                .await
                .err(),
            secrets.get_opt(name).await.err(),
            secrets.get_metadata_opt(name).await.err(),
            crate::read::get(&secrets, name, drop, |_| ()).await.err(),
            crate::status::live(&secrets, name).await.err(),
            crate::status::apply(&secrets, "m", name, "1", &()).await.err(),
        ];
        failed.into_iter().flatten().collect()
    }

    #[tokio::test]
    async fn no_request_has_a_name_in_its_path_that_means_something_else() {
        let (client, sent) = counting();
        for name in BAD {
            let failures = failures(&client, name).await;
            assert_eq!(failures.len(), 12, "{name}");
            for failure in failures {
                assert!(is_refused(&failure), "{name}: {failure}");
                let message = crate::error::brief(&failure);
                assert!(
                    message.contains("the name of the object can't be in the path"),
                    "{message}"
                );
                assert!(name.len() < 3 || !message.contains(name), "{message}");
            }
            let elsewhere: Api<Secret> = Api::namespaced(client.clone(), name);
            let listed = elsewhere.list(&ListParams::default()).await.unwrap_err();
            let read = elsewhere.get("a").await.unwrap_err();
            let created = elsewhere
                .create(&PostParams::default(), &Secret::default())
                .await
                .unwrap_err();
            assert!(
                is_refused(&listed) && is_refused(&read) && is_refused(&created),
                "{name}"
            );
            let of_cluster = Api::<Node>::all(client.clone()).get(name).await.unwrap_err();
            assert!(is_refused(&of_cluster), "{name}");
        }
        assert_eq!(sent.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn names_of_objects_are_sent() {
        let (client, sent) = counting();
        for name in ["a", "a.b-1", "osm:kube-system:osm", "node-csr-Ab_9", "a..b"] {
            // Of the twelve, those that take an object that is missing for an answer do not fail.
            let failures = failures(&client, name).await;
            assert!(!failures.iter().any(is_refused), "{name}: {failures:?}");
            assert_eq!(sent.swap(0, Ordering::Relaxed), 12, "{name}");
        }
    }
}
