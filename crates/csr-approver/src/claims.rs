//! Deletes the claims that are no longer needed.

use std::sync::Arc;
use std::time::Duration;

use kube::api::{DeleteParams, Preconditions};
use osm_runtime::RequestError;
use osm_runtime::error::{conflict, is_code};
use osm_runtime::request::failed;

use crate::claim::{self, Subject};
use crate::context::Context;
use crate::views::ClaimView;

/// Claims that are deleted at a time.
const MAX_DELETED: usize = 100;
/// Delay until the next ones.
const NEXT: Duration = Duration::from_secs(1);
/// Interval of looking for claims.
const INTERVAL: Duration = Duration::from_secs(300);

/// Deletes claims; returns when to look again.
///
/// # Errors
/// A request that failed.
pub async fn reconcile(context: &Context) -> Result<Option<Duration>, RequestError> {
    let now = context.cluster.worker.server_time.now();
    let done = context
        .claims
        .select(|claim| claim::is_done(claim, subject(context, claim), now));
    let (now, next) = batch(&done);
    for claim in now {
        delete(context, claim).await?;
    }
    Ok(Some(next))
}

/// What is deleted now, and when to look again.
fn batch<T>(done: &[T]) -> (&[T], Duration) {
    match done.split_at_checked(MAX_DELETED) {
        Some((now, later)) if !later.is_empty() => (now, NEXT),
        _ => (done, INTERVAL),
    }
}

fn subject(context: &Context, claim: &ClaimView) -> Subject {
    let machine = context
        .machines
        .get(&claim.joins_as)
        .filter(|machine| machine.uid == claim.joins_as_uid);
    let is_pool = context
        .pools
        .get(&claim.joins_as)
        .is_some_and(|pool| pool.pool.uid == claim.joins_as_uid);
    let has_node_ref = machine.as_ref().is_some_and(|machine| machine.node_ref.is_some());
    match machine.is_some() || is_pool {
        false => Subject::Gone,
        true if has_node_ref || context.nodes.get(&claim.node).is_some() => Subject::Joined,
        true => Subject::Awaited,
    }
}

async fn delete(context: &Context, claim: &Arc<ClaimView>) -> Result<(), RequestError> {
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
    let key = format!("{}/{}", context.cluster.namespace(), claim.name);
    context.claims.deleted(&key, &claim.uid);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_hundred_claims_are_deleted_at_a_time() {
        for (done, deleted, next) in [
            (0, 0, INTERVAL),
            (100, 100, INTERVAL),
            (101, 100, NEXT),
            (1_000, 100, NEXT),
        ] {
            let done = vec![(); done];
            let (now, when) = batch(&done);
            assert_eq!((now.len(), when), (deleted, next));
        }
    }
}
