//! Executes a plan: reads the Machine and the Node, makes the claim, writes the decision. Live reads decide where the watches have shown
//! something else.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Patch, PatchParams};
use osm_api::{PoolRef, Reason};
use osm_runtime::RequestError;
use osm_runtime::cache::Version;
use osm_runtime::error::is_code;
use osm_runtime::request::failed;
use osm_runtime::watch;
use serde_json::json;

use crate::context::Context;
use crate::hold::{self, Hold};
use crate::live;
use crate::plan::{self, Approval, Decided, Decision, Plan};
use crate::request::{Request, Seen};
use crate::verdict::{Denial, Refusal, Wait};
use crate::views::ClaimView;

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
    /// `namespace/name` of the Machine, or of the MachineDeployment of an edge pool; the node's name for a serving certificate.
    pub joins_as: String,
    /// The same object, if another request was approved for it before. That approval led to no Node.
    pub again: Option<ObjectReference>,
}

impl Approved {
    pub fn reason(&self) -> Reason {
        match self.again {
            Some(_) => Reason::ApprovedAgain,
            None => Reason::PoolMachine,
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
    pub failure: Option<RequestError>,
}

/// Does what the plan says. A request that the API server refuses stops no other one; an API server that does not answer stops all.
pub async fn apply(context: &Context, now: Timestamp, plan: Plan) -> Results {
    let mut results = Results {
        applied: Vec::new(),
        failure: None,
    };
    for Decided {
        request,
        pool,
        decision,
    } in plan.decided
    {
        match act(context, &request, decision, now).await {
            Ok(outcome) => results.applied.push(Applied {
                request,
                pool,
                outcome,
            }),
            Err(error) => {
                let is_unanswered = match &error {
                    RequestError::Failed { source, .. } => {
                        matches!(**source, kube::Error::Service(_) | kube::Error::HyperError(_))
                    }
                    _ => false,
                };
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
) -> Result<Outcome, RequestError> {
    match decision {
        Decision::Wait(wait) => Ok(Outcome::Waiting(wait)),
        Decision::Deny(denial) => deny(context, request, denial).await,
        Decision::ApproveServing => {
            let node = request.node().unwrap_or_default().to_owned();
            let message = "machine-controller has recorded these addresses for the Machine of the node";
            let is_written = write(context, request, "Approved", Reason::PoolMachine, message).await?;
            Ok(if is_written {
                Outcome::Approved(Approved {
                    joins_as: node.clone(),
                    node,
                    again: None,
                })
            } else {
                Outcome::Gone
            })
        }
        Decision::Approve(approval) | Decision::ConfirmDenial(approval) => {
            let live = live::bearer(context, &approval.bearer).await?;
            match plan::confirm(request, &approval, live.as_ref()) {
                Ok(()) => approve(context, request, *approval, now).await,
                Err(Refusal::Deny(denial)) => deny(context, request, denial).await,
                Err(Refusal::Wait(wait)) => Ok(Outcome::Waiting(wait)),
            }
        }
    }
}

async fn deny(context: &Context, request: &Request, denial: Denial) -> Result<Outcome, RequestError> {
    let is_written = write(context, request, "Denied", denial.reason(), &denial.to_string()).await?;
    Ok(if is_written {
        Outcome::Denied(denial)
    } else {
        Outcome::Gone
    })
}

async fn approve(
    context: &Context,
    request: &Request,
    approval: Approval,
    now: Timestamp,
) -> Result<Outcome, RequestError> {
    let Approval {
        claim,
        bearer,
        is_again,
        ..
    } = approval;
    let (leases, nodes) = (context.leases(), context.live_nodes());
    let (hold, lease) = hold::hold_unless_joined(&leases, &nodes, &claim, now).await?;
    remember(context, &lease);
    let before = match hold {
        Hold::Held { before } => before,
        Hold::Taken { until } => {
            let node = claim.node;
            return Ok(Outcome::Waiting(Wait::AlreadyApproved { node, until }));
        }
        Hold::Joined => return Ok(Outcome::Waiting(Wait::NodeExists(claim.node))),
    };
    let approved = Approved {
        node: claim.node,
        joins_as: claim.joins_as,
        again: (before > 0 || is_again).then(|| bearer.reference()),
    };
    let mut message = format!(
        "the node of {} has this name and has not joined yet",
        approved.joins_as
    );
    if approved.again.is_some() {
        message.push_str(", although another request was approved before");
    }
    let is_written = write(context, request, "Approved", approved.reason(), &message).await?;
    Ok(match is_written {
        true => Outcome::Approved(approved),
        false => Outcome::Gone,
    })
}

fn remember(context: &Context, lease: &Lease) {
    if let Some(claim) = ClaimView::of(lease) {
        let (key, version) = (watch::key(&lease.metadata), Version::of(&lease.metadata));
        // A claim that was made or seen lets no request through, so nothing has to be decided again.
        let _ = context.claims.wrote(&key, version, claim);
    }
}

/// Writes the decision into the request as it was decided on; returns `false` if it no longer exists.
async fn write(
    context: &Context,
    request: &Request,
    type_: &str,
    reason: Reason,
    message: &str,
) -> Result<bool, RequestError> {
    // A pending request has no other conditions, or the resourceVersion would differ.
    let patch = json!({
        "metadata": {"uid": request.uid, "resourceVersion": request.resource_version},
        "status": {"conditions": [{"type": type_, "status": "True", "reason": reason.as_str(), "message": message}]},
    });
    let written = context
        .signing_requests()
        .patch_subresource(
            "approval",
            &request.name,
            &PatchParams::default(),
            &Patch::Merge(&patch),
        )
        .await;
    match written {
        Ok(object) => {
            let version = Version::of(&object.metadata);
            match Seen::of(object, None) {
                // The requester has no other reason to be queued.
                Some(approved @ Seen::Approved(_)) => {
                    drop(context.requests.wrote(&request.name, version, approved));
                }
                _ => context.requests.deleted(&request.name, &request.uid),
            }
            Ok(true)
        }
        Err(error) if is_code(&error, 404) => {
            context.requests.deleted(&request.name, &request.uid);
            Ok(false)
        }
        Err(error) => Err(failed("writing the decision into the CertificateSigningRequest")(
            error,
        )),
    }
}
