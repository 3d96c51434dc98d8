//! Warns if a binding of someone else lets kube-controller-manager approve the certificate of any node for
//! the token of a pool. csr-approver is then not asked, and protects nothing.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::PostParams;
use osm_api::Reason;
use osm_api::names::CLOUD_INIT_SETTINGS;
use osm_runtime::request::failed;
use osm_runtime::{Api, Error};

use crate::context::Context;

/// Interval of asking who else may approve nodes: one request, because no watch shows the answer.
const INTERVAL: Duration = Duration::from_secs(300);

/// A ServiceAccount of the namespace that no pool has, so that the answer holds for all pools. A binding for
/// a single pool is not found.
const ANY_ACCOUNT: &str = "any-pool";

const FOUND: &str = "insecure binding: ServiceAccounts in cloud-init-settings may obtain the certificate of any node; remove the binding that \
                     grants them `create certificatesigningrequests/nodeclient`, which `kubectl get clusterrolebindings -o wide | grep -E \
                     'system:(serviceaccounts|authenticated)|cloud-init-settings'` lists";

/// Asks the API server; returns when to ask again.
///
/// # Errors
/// A request that failed. The last answer is kept.
pub async fn reconcile(context: &Context) -> Result<Option<Duration>, Error> {
    let reviews: Api<SubjectAccessReview> = Api::all(context.cluster.worker.client.clone());
    let answer = reviews.create(&PostParams::default(), &review()).await;
    let answer = answer.map_err(failed("asking what tokens of pools may do"))?;
    report(context, answer.status.is_some_and(|status| status.allowed)).await;
    Ok(Some(INTERVAL))
}

/// The question that kube-controller-manager asks about the requester before it approves the client
/// certificate of a kubelet
/// ([source](https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/controller/certificates/approver/sarapprove.go)).
pub fn review() -> SubjectAccessReview {
    let own_group = format!("system:serviceaccounts:{CLOUD_INIT_SETTINGS}");
    let groups = [&own_group, "system:serviceaccounts", "system:authenticated"];
    let nodeclient = ResourceAttributes {
        group: Some("certificates.k8s.io".to_owned()),
        resource: Some("certificatesigningrequests".to_owned()),
        subresource: Some("nodeclient".to_owned()),
        verb: Some("create".to_owned()),
        version: Some("*".to_owned()),
        ..ResourceAttributes::default()
    };
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!(
                "system:serviceaccount:{CLOUD_INIT_SETTINGS}:{ANY_ACCOUNT}"
            )),
            groups: Some(groups.map(str::to_owned).to_vec()),
            resource_attributes: Some(nodeclient),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

async fn report(context: &Context, is_found: bool) {
    let reporting = &context.reporting;
    let was_found = reporting.nodeclient_binding_found.count(is_found.into()) == Some(1);
    let reason = Reason::NodeclientBindingFound;
    if is_found && reporting.is_due(ANY_ACCOUNT, reason.as_str()) {
        tracing::warn!(%reason, "{FOUND}");
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Namespace".to_owned()),
            name: Some(CLOUD_INIT_SETTINGS.to_owned()),
            ..ObjectReference::default()
        };
        context.cluster.worker.events.warning(&about, reason, FOUND).await;
    } else if was_found && !is_found {
        tracing::info!("kube-controller-manager approves no certificate for tokens of pools any more");
    }
}
