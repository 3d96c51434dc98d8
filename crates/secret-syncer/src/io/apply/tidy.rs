//! Deletes Secrets that the pool no longer uses, and then narrows the Role.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::io::apply::{identity, provisioning_secret, teardown};
use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::model::gathered::Gathered;
use crate::plan::identity::role_step;
use crate::plan::steps::Keep;

/// # Errors
/// Requests that failed.
pub async fn tidy(context: &Context, gathered: &Gathered, keep: &Keep) -> Result<(), ApplyError> {
    for secret in &keep.outdated {
        teardown::secret(context, secret).await?;
        // True of what no living token may fetch, and of the script of a former edge pool.
        tracing::info!(
            config = gathered.name,
            secret = secret.meta.name,
            "outdated Secret deleted, because its pool no longer uses it"
        );
    }
    if let (Some(narrow), Some(role)) = (&keep.narrow, gathered.existing.role.as_deref()) {
        provisioning_secret::label_again(context, &narrow.ownership, &narrow.out_of_sight).await?;
        let metadata = ObjectMeta {
            name: Some(role.meta.name.clone()),
            labels: Some(role.meta.labels.to_map()),
            annotations: Some(role.meta.annotations.to_map()),
            ..ObjectMeta::default()
        };
        let step = role_step(Some(role), &narrow.secrets);
        identity::put_role(context, step, metadata, &narrow.secrets).await?;
    }
    Ok(())
}
