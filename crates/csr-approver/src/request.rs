//! Requests, reduced to what decisions need: those that wait for a decision, and those that were approved.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use osm_api::rbac::CLIENT_SIGNER;

use crate::pkcs10::{self, NODE_USER};
use crate::requester::Requester;
use crate::verdict::Denial;

/// The longest name of a request that is read, as of most objects. The API server takes any length for this
/// kind, and kubelets send short names.
const MAX_NAME_BYTES: usize = 253;

/// What is kept of a CertificateSigningRequest.
#[derive(Debug)]
pub enum RequestView {
    Pending(Arc<Request>),
    Approved(Arc<Granted>),
}

impl RequestView {
    /// `None`: it is of no interest, or no kubelet generates such a name. The API server accepts any string.
    /// `known`: what is kept under this name.
    pub fn of(object: CertificateSigningRequest, known: Option<&Self>) -> Option<Self> {
        if !object.metadata.name.as_deref().is_some_and(is_plain) {
            return None;
        }
        if let Some(granted) = Granted::of(&object) {
            return Some(Self::Approved(Arc::new(granted)));
        }
        let mut request = Request::of(object)?;
        // A list or an update shows the same request again.
        if let Some(known) = known
            .and_then(Self::pending)
            .filter(|known| known.uid == request.uid)
        {
            request.order = known.order;
        }
        Some(Self::Pending(Arc::new(request)))
    }

    pub fn pending(&self) -> Option<&Arc<Request>> {
        match self {
            Self::Pending(request) => Some(request),
            Self::Approved(_) => None,
        }
    }

    pub fn approved(&self) -> Option<&Arc<Granted>> {
        match self {
            Self::Pending(_) => None,
            Self::Approved(granted) => Some(granted),
        }
    }

    /// The node that it is about.
    pub fn node(&self) -> Option<&str> {
        match self {
            Self::Pending(request) => request.node(),
            Self::Approved(granted) => Some(&granted.node),
        }
    }
}

/// A request that was approved, by csr-approver or someone else, so that its requester has a certificate with
/// which a machine joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    pub uid: String,
    pub node: String,
    pub created: Timestamp,
    pub at: Timestamp,
}

impl Granted {
    /// `None`: it was not approved, or is for another certificate. A node that renews its certificate does
    /// not join.
    fn of(object: &CertificateSigningRequest) -> Option<Self> {
        let conditions = object.status.as_ref()?.conditions.as_ref()?;
        let approved = conditions
            .iter()
            .find(|condition| condition.type_ == "Approved")?;
        let username = object.spec.username.as_deref().unwrap_or_default();
        if object.spec.signer_name != CLIENT_SIGNER || username.starts_with(NODE_USER) {
            return None;
        }
        let created = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let at = [&approved.last_update_time, &approved.last_transition_time];
        let at = at.into_iter().flatten().next().map(|time| time.0);
        Some(Self {
            uid: object.metadata.uid.clone()?,
            node: pkcs10::read(&object.spec.request.0).ok()?,
            created: created.unwrap_or_default(),
            at: at.or(created).unwrap_or(Timestamp::MAX),
        })
    }
}

/// A pending request of one of our requesters.
#[derive(Debug)]
pub struct Request {
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    pub created: Timestamp,
    /// The resourceVersion with which this process first saw it; `None`: it is not a number. It is that of
    /// the creation, unless someone who may update requests did so before: no token of a pool may.
    pub order: Option<u64>,
    pub requester: Requester,
    /// The name of the node that it asks for, if a kubelet may ask so. The request itself is not kept.
    pub asked: Result<String, Denial>,
}

impl Request {
    /// `None`: it is decided, being deleted, or none of ours.
    fn of(object: CertificateSigningRequest) -> Option<Self> {
        let name = object.metadata.name?;
        if object.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let status = object.status.unwrap_or_default();
        if status.conditions.is_some_and(|conditions| !conditions.is_empty()) || status.certificate.is_some()
        {
            return None;
        }
        let spec = object.spec;
        if spec.signer_name != CLIENT_SIGNER {
            return None;
        }
        let requester = Requester::of(spec.username.as_deref().unwrap_or_default())?;
        let usages = judge_usages(&spec.usages.unwrap_or_default());
        let created = object.metadata.creation_timestamp.map(|time| time.0);
        let resource_version = object.metadata.resource_version?;
        Some(Self {
            name,
            uid: object.metadata.uid?,
            order: resource_version.parse().ok(),
            resource_version,
            created: created.unwrap_or_default(),
            requester,
            asked: usages.and_then(|()| pkcs10::read(&spec.request.0)),
        })
    }

    /// One of these, for tests. It is in the order of the times.
    #[cfg(test)]
    pub fn for_test(name: &str, created: Timestamp, asked: Result<String, Denial>) -> Self {
        Self {
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
            resource_version: "1".to_owned(),
            created,
            order: u64::try_from(created.as_second()).ok(),
            requester: Requester("osm-node-0".to_owned()),
            asked,
        }
    }

    /// Whether it was certainly created before the other one. Times have whole seconds, and API servers have
    /// different clocks. The resourceVersion orders all requests, but for one that was updated. Only where
    /// the two agree is the answer certain.
    pub fn is_before(&self, other: &Self) -> bool {
        match (self.order, other.order) {
            (Some(own), Some(others)) => own < others && self.created <= other.created,
            _ => self.created < other.created,
        }
    }

    /// The name of the node that it asks for.
    pub fn node(&self) -> Option<&str> {
        self.asked.as_deref().ok()
    }
}

/// Whether the name is short, and can stand in a path as it is. Old kubelets use capitals and `_`, too.
fn is_plain(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    name.len() <= MAX_NAME_BYTES && name.bytes().all(is_allowed)
}

/// As kube-controller-manager judges them (Kubernetes, `pkg/apis/certificates/helpers.go`:
/// `ValidateKubeletClientCSR`).
fn judge_usages(usages: &[String]) -> Result<(), Denial> {
    let asked: BTreeSet<&str> = usages.iter().map(String::as_str).collect();
    let least = BTreeSet::from(["digital signature", "client auth"]);
    let most = BTreeSet::from(["digital signature", "key encipherment", "client auth"]);
    if asked == least || asked == most {
        Ok(())
    } else {
        Err(Denial::Usages)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::{Value, json};

    use super::*;
    use crate::pkcs10::tests::request_of;

    const POOL: &str = "system:serviceaccount:cloud-init-settings:osm-node-0123456789abcdef0123";

    fn pem(node: &str) -> ByteString {
        ByteString(request_of(node).into_bytes())
    }

    fn object(
        signer: &str,
        username: &str,
        usages: &[&str],
        request: &ByteString,
        status: Value,
    ) -> CertificateSigningRequest {
        serde_json::from_value(json!({
            "metadata": {"name": "csr", "uid": "1", "resourceVersion": "5", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"signerName": signer, "username": username, "usages": usages, "request": request},
            "status": status,
        }))
        .unwrap()
    }

    fn asked(
        signer: &str,
        username: &str,
        usages: &[&str],
        request: &ByteString,
    ) -> Option<Result<String, Denial>> {
        Request::of(object(signer, username, usages, request, json!({}))).map(|request| request.asked)
    }

    const CLIENT: [&str; 2] = ["digital signature", "client auth"];

    #[test]
    fn the_usages_of_a_kubelet_client_are_those_that_the_signer_takes() {
        let request = pem("a");
        for (usages, good) in [
            (CLIENT.as_slice(), true),
            (&["client auth", "key encipherment", "digital signature"], true),
            (&["client auth", "client auth", "digital signature"], true),
            (&["client auth"], false),
            (&["digital signature"], false),
            (&["digital signature", "server auth"], false),
            (&["digital signature", "client auth", "server auth"], false),
            (&["digital signature", "client auth", "cert sign"], false),
            (&[], false),
        ] {
            let asked = asked(CLIENT_SIGNER, POOL, usages, &request).unwrap();
            if good {
                assert_eq!(asked.unwrap(), "a");
            } else {
                assert_eq!(asked, Err(Denial::Usages), "{usages:?}");
            }
        }
    }

    #[test]
    fn what_is_kept_of_a_request_is_bounded() {
        // The usages are not kept, nor is what can't be a request of a kubelet.
        let (usage, request) = ("x".repeat(100_000), ByteString(vec![b'a'; 100_000]));
        for usages in [&[usage.as_str(); 100][..], &CLIENT] {
            let large = Request::of(object(CLIENT_SIGNER, POOL, usages, &request, json!({}))).unwrap();
            assert!(large.asked.is_err() && format!("{large:?}").len() < 2_000);
        }
    }

    #[test]
    fn only_names_that_kubelets_give_are_taken() {
        let (request, longest) = (pem("a"), "n".repeat(MAX_NAME_BYTES));
        for (name, taken) in [
            ("csr-8gk2x", true),
            ("node-csr-Ab_9-", true),
            (longest.as_str(), true),
            (&format!("{longest}n"), false),
            ("x y", false),
            ("x?y", false),
            ("x#y", false),
            ("ü", false),
        ] {
            let mut object = object(CLIENT_SIGNER, POOL, &CLIENT, &request, json!({}));
            object.metadata.name = Some(name.to_owned());
            assert_eq!(RequestView::of(object, None).is_some(), taken, "{name}");
        }
    }

    /// There is a certificate with which a machine can join, no matter who approved it.
    #[test]
    fn of_an_approved_request_its_node_and_its_times_are_kept() {
        let (created, later) = ("2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z");
        let seen = |signer: &str, user: &str, request, updated: Option<&str>, changed: Option<&str>| {
            let condition = json!({"type": "Approved", "status": "True", "lastUpdateTime": updated, "lastTransitionTime": changed});
            let status = json!({"conditions": [condition], "certificate": ByteString(vec![1])});
            RequestView::of(object(signer, user, &CLIENT, request, status), None)
        };
        let (request, other) = (pem("a"), "kubernetes.io/kube-apiserver-client");
        for (user, updated, changed, at) in [
            (POOL, Some(later), None, later),
            (POOL, None, Some(later), later),
            (POOL, None, None, created),
            ("system:bootstrap:abcdef", Some(later), None, later),
            ("admin", Some(later), None, later),
        ] {
            let seen = seen(CLIENT_SIGNER, user, &request, updated, changed).unwrap();
            let expected = Granted {
                uid: "1".to_owned(),
                node: "a".to_owned(),
                created: created.parse().unwrap(),
                at: at.parse().unwrap(),
            };
            assert_eq!(
                seen.approved().map(|granted| &**granted),
                Some(&expected),
                "{user}"
            );
            assert!(seen.node() == Some("a") && seen.pending().is_none());
        }
        for (signer, user, request) in [
            // A node renews its certificate.
            (CLIENT_SIGNER, "system:node:a", &request),
            (other, POOL, &request),
            (CLIENT_SIGNER, "admin", &ByteString(vec![b'a'])),
        ] {
            let seen = seen(signer, user, request, Some(later), None);
            assert!(seen.is_none(), "{signer} {user}");
        }
    }

    #[test]
    fn the_order_is_that_of_the_creation_even_if_someone_updates_the_request() {
        let of = |uid: &str, version: &str, known: Option<&RequestView>| {
            let mut object = object(CLIENT_SIGNER, POOL, &CLIENT, &pem("a"), json!({}));
            object.metadata.uid = Some(uid.to_owned());
            object.metadata.resource_version = Some(version.to_owned());
            RequestView::of(object, known).unwrap()
        };
        let first = of("1", "9", None);
        let order = |seen: &RequestView| seen.pending().unwrap().order;
        let updated = of("1", "20", Some(&first));
        assert_eq!(order(&updated), Some(9));
        assert_eq!(
            updated.pending().unwrap().resource_version,
            "20",
            "which the decision is bound to"
        );
        assert_eq!(
            order(&of("2", "20", Some(&first))),
            Some(20),
            "another object has its name"
        );
        for no_number in ["", "x", "-1", "1.5", "99999999999999999999999"] {
            assert_eq!(order(&of("1", no_number, None)), None, "{no_number}");
        }
    }

    #[test]
    fn requests_of_others_and_decided_ones_are_none_of_ours() {
        let request = pem("a");
        let other_account = "system:serviceaccount:cloud-init-settings:cloud-init-getter";
        for (signer, user) in [
            (CLIENT_SIGNER, other_account),
            (CLIENT_SIGNER, "system:bootstrap:abcdef"),
            (CLIENT_SIGNER, "system:node:a"),
            ("kubernetes.io/kubelet-serving", POOL),
            ("example.com/signer", POOL),
        ] {
            assert_eq!(asked(signer, user, &CLIENT, &request), None, "{signer} {user}");
        }
        for status in [
            json!({"conditions": [{"type": "Denied", "status": "True"}]}),
            json!({"conditions": [{"type": "Failed", "status": "True"}]}),
            json!({"certificate": ByteString(vec![1])}),
        ] {
            let object = object(CLIENT_SIGNER, POOL, &CLIENT, &request, status.clone());
            assert!(RequestView::of(object, None).is_none(), "{status}");
        }
        let object = object(CLIENT_SIGNER, POOL, &CLIENT, &request, json!({"conditions": []}));
        let kept = Request::of(object).unwrap();
        let names = [&kept.name, &kept.uid, &kept.resource_version];
        assert_eq!(names, ["csr", "1", "5"]);
        assert_eq!(kept.node(), Some("a"));
    }
}
