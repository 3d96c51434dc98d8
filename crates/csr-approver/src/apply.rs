//! Executes a plan: reads the Machine and the Node, makes the claim, writes the decision. Live reads decide
//! where the watches have shown something else.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Patch, PatchParams};
use osm_api::{PoolRef, Reason};
use osm_runtime::cache::Version;
use osm_runtime::error::is_code;
use osm_runtime::request::failed;
use osm_runtime::{Api, Error};
use serde_json::json;

use crate::acquire::{self, Acquired};
use crate::context::Context;
use crate::live;
use crate::plan::{self, Approval, Decision, Plan};
use crate::request::{Request, RequestView};
use crate::verdict::{Denial, Refusal, Wait};

/// What has become of a request.
#[derive(Clone, Debug)]
pub enum Outcome {
    Approved(Approved),
    Denied(Denial),
    Waiting(Wait),
    Gone,
}

#[derive(Clone, Debug)]
pub struct Approved {
    pub node: String,
    /// `namespace/name` of the Machine, or of the MachineDeployment of an edge pool.
    pub joining_identity: String,
    /// The same object, if another request was approved for it before. That approval led to no Node.
    pub again: Option<ObjectReference>,
}

impl Approved {
    pub fn reason(&self) -> Reason {
        match self.again {
            Some(_) => Reason::ApprovedAgain,
            None => Reason::AutoApproved,
        }
    }
}

/// A request with its outcome.
#[derive(Clone, Debug)]
pub struct Applied {
    pub request: Arc<Request>,
    pub pool: Option<PoolRef>,
    pub outcome: Outcome,
}

/// What was done, and the first failure.
pub struct Results {
    pub applied: Vec<Applied>,
    pub failure: Option<Error>,
}

/// Does what the plan says. A request that the API server refuses stops no other one; an API server that does
/// not answer stops all, so that there is time to report what was done.
pub async fn apply(context: &Context, now: Timestamp, plan: Plan) -> Results {
    let mut results = Results {
        applied: Vec::new(),
        failure: None,
    };
    for decided in plan.decided {
        let request = decided.request;
        match act(context, &request, decided.decision, now).await {
            Ok(outcome) => results.applied.push(Applied {
                request,
                pool: decided.pool,
                outcome,
            }),
            Err(error) => {
                let is_unanswered = matches!(&error, Error::Failed { source, .. }
                    if matches!(**source, kube::Error::Service(_) | kube::Error::HyperError(_)));
                results.failure.get_or_insert(error);
                if is_unanswered {
                    break;
                }
            }
        }
    }
    results
}

async fn act(
    context: &Context,
    request: &Request,
    decision: Decision,
    now: Timestamp,
) -> Result<Outcome, Error> {
    match decision {
        Decision::Wait(wait) => Ok(Outcome::Waiting(wait)),
        Decision::Deny(denial) => deny(context, request, denial).await,
        Decision::Approve(approval) | Decision::ConfirmDenial(approval) => {
            let live = live::name_owner(context, &approval.name_owner).await?;
            match plan::confirm(request, &approval, live.as_ref()) {
                Ok(()) => approve(context, request, *approval, now).await,
                Err(Refusal::Deny(denial)) => deny(context, request, denial).await,
                Err(Refusal::Wait(wait)) => Ok(Outcome::Waiting(wait)),
            }
        }
    }
}

async fn deny(context: &Context, request: &Request, denial: Denial) -> Result<Outcome, Error> {
    let message = denial.to_string();
    write(context, request, &message, Outcome::Denied(denial)).await
}

async fn approve(
    context: &Context,
    request: &Request,
    approval: Approval,
    now: Timestamp,
) -> Result<Outcome, Error> {
    let claim = approval.claim;
    let (leases, nodes) = (context.leases(), Api::all(context.cluster.worker.client.clone()));
    let before = match acquire::acquire_unless_joined(&leases, &nodes, &claim, now).await? {
        Acquired::Held { before } => before,
        Acquired::Taken { until } => {
            let node = claim.node;
            return Ok(Outcome::Waiting(Wait::AlreadyApproved { node, until }));
        }
        Acquired::Joined => return Ok(Outcome::Waiting(Wait::NodeExists(claim.node))),
    };
    let approved = Approved {
        node: claim.node,
        joining_identity: claim.joining_identity,
        again: (before > 0 || approval.is_again).then(|| approval.name_owner.reference()),
    };
    let mut message = format!(
        "node {} belongs to {}, which has no Node yet",
        approved.node, approved.joining_identity
    );
    if approved.again.is_some() {
        message.push_str(", although another request was approved before");
    }
    write(context, request, &message, Outcome::Approved(approved)).await
}

/// Writes a decision into the request as it was decided on. The outcome is another one if the request no
/// longer exists.
async fn write(
    context: &Context,
    request: &Request,
    message: &str,
    decided: Outcome,
) -> Result<Outcome, Error> {
    let (type_, reason) = match &decided {
        Outcome::Approved(approved) => ("Approved", approved.reason()),
        Outcome::Denied(denial) => ("Denied", denial.reason()),
        Outcome::Waiting(_) | Outcome::Gone => return Ok(decided),
    };
    // A pending request has no other conditions, or the resourceVersion would differ.
    let patch = json!({
        "metadata": {"uid": request.uid, "resourceVersion": request.resource_version},
        "status": {"conditions": [{"type": type_, "status": "True", "reason": reason.as_str(), "message": message}]},
    });
    let requests: Api<CertificateSigningRequest> = Api::all(context.cluster.worker.client.clone());
    let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
    match requests
        .patch_subresource("approval", &request.name, &params, &patch)
        .await
    {
        Ok(object) => {
            let version = Version::of(&object.metadata);
            match RequestView::of(object, None) {
                // The requester has no other reason to be queued.
                Some(approved @ RequestView::Approved(_)) => {
                    drop(context.requests.wrote(&request.name, version, approved));
                }
                _ => context.requests.deleted(&request.name, &request.uid),
            }
            Ok(decided)
        }
        Err(error) if is_code(&error, 404) => {
            context.requests.deleted(&request.name, &request.uid);
            Ok(Outcome::Gone)
        }
        Err(error) => Err(failed("writing the decision into the CertificateSigningRequest")(
            error,
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use osm_sim::memory::{Call, Fault, Network, Passage};

    use crate::context::tests::context;
    use crate::plan::Decided;

    use super::*;

    /// Every request fails in this way.
    struct Fails(Fault);

    impl Network for Fails {
        fn passage(&self, _: &Call) -> Passage {
            Passage {
                fault: Some(self.0),
                ..Passage::default()
            }
        }

        fn lag(&self, _: &str, _: u64) -> Duration {
            Duration::ZERO
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_is_refused_stops_no_other_one_and_an_unanswered_one_stops_all() {
        for (fault, done) in [
            (Fault::Refused(500), &["first", "third"][..]),
            (Fault::Silence, &["first"]),
            (Fault::ResetBefore, &["first"]),
        ] {
            let context = context(Fails(fault));
            let denial = Denial::Unreadable("x");
            let decided = [
                ("first", Decision::Wait(Wait::PoolNotFound)),
                ("second", Decision::Deny(denial.clone())),
                ("third", Decision::Wait(Wait::PoolNotFound)),
            ]
            .map(|(name, decision)| Decided {
                request: Arc::new(Request::for_test(
                    name,
                    Timestamp::UNIX_EPOCH,
                    Err(denial.clone()),
                )),
                pool: None,
                decision,
            });
            let plan = Plan {
                decided: decided.into(),
                has_more: false,
            };
            let results = apply(&context, Timestamp::UNIX_EPOCH, plan).await;
            let applied = results
                .applied
                .iter()
                .map(|applied| applied.request.name.as_str());
            assert_eq!(applied.collect::<Vec<_>>(), done, "{fault:?}");
            assert!(results.failure.is_some(), "{fault:?}");
        }
    }
}
