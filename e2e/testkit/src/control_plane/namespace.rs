//! Deletes a namespace where no namespace controller runs.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::Discovery;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use kube::discovery::{Scope, verbs};

use super::ControlPlane;

impl ControlPlane {
    /// Does to a namespace that is terminating what the namespace controller of a real cluster would: deletes everything in it, then lets it
    /// go. Until this is called the namespace stays `Terminating`, so that a test can look at that state at leisure.
    ///
    /// # Errors
    /// When there is no such namespace, it is not being deleted, or the server refuses.
    pub async fn finish_namespace(&self, name: &str) -> Result<()> {
        let client = self.admin()?;
        let namespaces = Api::<Namespace>::all(client.clone());
        let deleted = namespaces.get(name).await?.metadata.deletion_timestamp;
        deleted.with_context(|| format!("namespace {name} is not being deleted"))?;
        for group in Discovery::new(client.clone()).run().await?.groups() {
            for (resource, capabilities) in group.recommended_resources() {
                if capabilities.scope == Scope::Namespaced
                    && capabilities.supports_operation(verbs::DELETE_COLLECTION)
                {
                    let objects = Api::<DynamicObject>::namespaced_with(client.clone(), name, &resource);
                    objects
                        .delete_collection(&DeleteParams::default(), &ListParams::default())
                        .await
                        .with_context(|| format!("{} in namespace {name}", resource.plural))?;
                }
            }
        }
        let mut namespace = namespaces.get(name).await?;
        namespace.spec.get_or_insert_default().finalizers = None;
        let request = http::Request::put(format!("/api/v1/namespaces/{name}/finalize"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(serde_json::to_vec(&namespace)?)?;
        client.request::<Namespace>(request).await?;
        Ok(())
    }
}
