//! Deletes the claims that are no longer needed.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, Preconditions};
use osm_runtime::Error;
use osm_runtime::error::{conflict, is_code};
use osm_runtime::request::failed;

use crate::claim;
use crate::context::Context;
use crate::views::ClaimView;

/// Interval of looking for claims to delete. No request waits for that: one that is left only takes room.
const INTERVAL: Duration = Duration::from_secs(60);

/// Claims that one reconcile deletes, with a request for each, so that it ends within its time limit. The
/// next ones delete the rest.
const MAX_DELETED: usize = 100;

/// Deletes claims; returns when to look again.
///
/// # Errors
/// A request that failed.
pub async fn reconcile(context: &Context) -> Result<Option<Duration>, Error> {
    let now = context.cluster.worker.server_time.now();
    let done = context
        .claims
        .select(|claim| claim::is_done(claim, is_awaited(context, claim), now));
    for claim in done.iter().take(MAX_DELETED) {
        delete(context, claim).await?;
    }
    Ok(Some(INTERVAL))
}

/// Whether the object that a claim is for exists, and its node does not.
fn is_awaited(context: &Context, claim: &ClaimView) -> bool {
    let is_machine = context
        .machines
        .get(&claim.joining_identity)
        .is_some_and(|machine| machine.uid == claim.joins_as_uid && !machine.has_node_ref);
    let pool = context.pools.get(&claim.joining_identity);
    let is_pool = pool.is_some_and(|pool| pool.pool.uid == claim.joins_as_uid);
    (is_machine || is_pool) && context.nodes.get(&claim.node).is_none()
}

async fn delete(context: &Context, claim: &Arc<ClaimView>) -> Result<(), Error> {
    let params = DeleteParams::default().preconditions(Preconditions {
        uid: Some(claim.uid.clone()),
        resource_version: Some(claim.resource_version.clone()),
    });
    match context.leases().delete(&claim.name, &params).await {
        Ok(_) => tracing::debug!(claim = claim.name, node = claim.node, "deleted the claim"),
        Err(error) if is_code(&error, 404) => {}
        // It was replaced in the meantime.
        Err(error) if conflict(&error) => return Ok(()),
        Err(error) => return Err(failed("deleting a claim")(error)),
    }
    let key = format!(
        "{}/{}",
        context.cluster.installation.worker_namespace(),
        claim.name
    );
    context.claims.deleted(&key, &claim.uid);
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::Lease;
    use osm_runtime::cache::Version;
    use osm_sim::memory::Calm;

    use crate::context::tests::context;

    use super::*;

    #[tokio::test]
    async fn many_claims_are_deleted_in_portions() {
        let context = context(Calm);
        for i in 0..=MAX_DELETED {
            let mut lease = Lease::default();
            lease.metadata.name = Some(format!("claim-{i}"));
            lease.metadata.uid = Some(i.to_string());
            let claim = ClaimView {
                since: jiff::Timestamp::UNIX_EPOCH,
                ..ClaimView::of(&lease).unwrap()
            };
            let key = format!("records/claim-{i}");
            drop(context.claims.wrote(&key, Version::of(&lease.metadata), claim));
        }
        for left in [1, 0] {
            assert_eq!(reconcile(&context).await.unwrap(), Some(INTERVAL));
            assert_eq!(context.claims.len(), left);
        }
    }
}
