//! Approves the certificates with which kubelets serve logs and metrics. Kubernetes signs these certificates, but does not decide which
//! names a node may have.

use std::collections::BTreeSet;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::runtime::Controller;
use kube::runtime::controller::Action;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use rcgen::{CertificateSigningRequestParams, DistinguishedName, DnType, DnValue, SanType};
use serde_json::json;
use thiserror::Error;

const SIGNER: &str = "kubernetes.io/kubelet-serving";
const NODES: &str = "system:nodes";
const USER_PREFIX: &str = "system:node:";

/// What a serving certificate is for; `key encipherment` only with RSA keys.
const USAGES: [&str; 3] = ["digital signature", "key encipherment", "server auth"];

/// A request may be seen before its node is, or before the node has told all its addresses.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Why a request is not approved, or not yet. It stays as it is: machine-controller denies nothing.
#[derive(Debug, Error)]
enum NotApproved {
    #[error("requested by {user:?} in {groups:?}, which is no node")]
    NoNode { user: String, groups: Vec<String> },
    #[error("there is no node {0:?}")]
    UnknownNode(String),
    #[error("usages are {0:?}")]
    Usages(Vec<String>),
    #[error("the PKCS#10 request can't be read: {0}")]
    Unreadable(String),
    #[error("its subject is not the node: {0}")]
    Subject(String),
    #[error("not a name or address of the node: {0}")]
    ForeignName(String),
    #[error("API server: {0}")]
    Api(#[from] kube::Error),
}

/// Approves requests for serving certificates, as machine-controller does, until it is dropped. What is not approved is told at debug
/// level, and looked at again: nodes come later than their requests.
///
/// machine-controller approves a request when all of this holds: its user is `system:node:<name>`, in the groups `system:nodes` and
/// `system:authenticated`; its usages are those of a server; its subject has the user as common name and `system:nodes` as the only
/// organization; a Machine has that node as its `nodeRef`; and each DNS name and IP address is the node's name, or one that the cloud says
/// the Machine has. There are no Machines here: the Node itself says which addresses it has. Requests for other signers are
/// left alone.
pub async fn approve_serving_certificates(client: Client) {
    let requests = Api::<CertificateSigningRequest>::all(client.clone());
    let config = watcher::Config::default().fields(&format!("spec.signerName={SIGNER}"));
    Controller::new(requests, config)
        .run(
            async |request, client| approve(&request, &client).await,
            |request, why, _| {
                tracing::debug!(request = request.name_any(), %why, "serving certificate not approved");
                Action::requeue(POLL_INTERVAL)
            },
            Arc::new(client),
        )
        .for_each(|_| ready(()))
        .await;
}

async fn approve(request: &CertificateSigningRequest, client: &Client) -> Result<Action, NotApproved> {
    if is_decided(request) {
        return Ok(Action::await_change());
    }
    let name = requesting_node(request)?;
    let node = Api::<Node>::all(client.clone()).get_opt(name).await?;
    let node = node.ok_or_else(|| NotApproved::UnknownNode(name.to_owned()))?;
    judge(request, &names(&node))?;
    let approval = json!({
        "metadata": {"resourceVersion": request.resource_version()},
        "status": {"conditions": [{
            "type": "Approved", "status": "True", "reason": "ServingCertificateOfNode",
            "message": "its names and addresses are the node's",
        }]},
    });
    Api::<CertificateSigningRequest>::all(client.clone())
        .patch_approval(
            &request.name_any(),
            &PatchParams::default(),
            &Patch::Merge(approval),
        )
        .await?;
    Ok(Action::await_change())
}

/// Approved, denied or failed.
fn is_decided(request: &CertificateSigningRequest) -> bool {
    let status = request.status.as_ref();
    status.is_some_and(|status| {
        status
            .conditions
            .as_ref()
            .is_some_and(|conditions| !conditions.is_empty())
    })
}

/// The name of the node that asks. The API server vouches for user and groups.
fn requesting_node(request: &CertificateSigningRequest) -> Result<&str, NotApproved> {
    let user = request.spec.username.as_deref().unwrap_or_default();
    let groups = request.spec.groups.as_deref().unwrap_or_default();
    user.strip_prefix(USER_PREFIX)
        .filter(|name| !name.is_empty())
        .filter(|_| {
            [NODES, "system:authenticated"]
                .iter()
                .all(|group| groups.iter().any(|is| is == group))
        })
        .ok_or_else(|| NotApproved::NoNode {
            user: user.to_owned(),
            groups: groups.to_vec(),
        })
}

/// Everything that a node may be called.
fn names(node: &Node) -> BTreeSet<String> {
    let addresses = node
        .status
        .iter()
        .filter_map(|status| status.addresses.as_ref())
        .flatten();
    let mut names: BTreeSet<String> = addresses.map(|address| address.address.clone()).collect();
    names.insert(node.name_any());
    names
}

/// Whether a node with these names may have what it asks for.
fn judge(request: &CertificateSigningRequest, names: &BTreeSet<String>) -> Result<(), NotApproved> {
    let usages = request.spec.usages.clone().unwrap_or_default();
    let known = usages.iter().all(|usage| USAGES.contains(&usage.as_str()));
    if !known || !usages.iter().any(|usage| usage == "server auth") {
        return Err(NotApproved::Usages(usages));
    }
    let pem = String::from_utf8_lossy(&request.spec.request.0);
    let parsed = CertificateSigningRequestParams::from_pem(&pem)
        .map_err(|error| NotApproved::Unreadable(error.to_string()))?;
    let subject = &parsed.params.distinguished_name;
    let user = request.spec.username.as_deref().unwrap_or_default();
    if text(subject, &DnType::CommonName) != Some(user)
        || text(subject, &DnType::OrganizationName) != Some(NODES)
        || subject.iter().count() != 2
    {
        return Err(NotApproved::Subject(format!("{subject:?}")));
    }
    for name in &parsed.params.subject_alt_names {
        let called = match name {
            SanType::DnsName(dns) => dns.to_string(),
            SanType::IpAddress(address) => address.to_string(),
            other => return Err(NotApproved::ForeignName(format!("{other:?}"))),
        };
        if !names.contains(&called) {
            return Err(NotApproved::ForeignName(called));
        }
    }
    Ok(())
}

fn text<'a>(subject: &'a DistinguishedName, part: &DnType) -> Option<&'a str> {
    match subject.get(part)? {
        DnValue::Utf8String(text) => Some(text),
        DnValue::PrintableString(text) => Some(text.as_str()),
        _ => None,
    }
}
