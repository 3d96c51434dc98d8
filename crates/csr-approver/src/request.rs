//! A request that waits for a decision, reduced to what the decision needs.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use osm_api::rbac::{CLIENT_SIGNER, SERVING_SIGNER};
use tokio::time::Instant;

use crate::pkcs10::{self, Asked};
use crate::requester::Requester;
use crate::verdict::Denial;

/// A pending request of one of our requesters.
#[derive(Clone, Debug)]
pub struct Request {
    /// Name of the CertificateSigningRequest.
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    pub created: Timestamp,
    /// When this process first saw it.
    pub seen: Instant,
    pub requester: Requester,
    /// What it asks for, if that is something that a kubelet may ask for.
    pub asked: Result<Asked, Denial>,
}

impl Request {
    /// `None`: it is decided, being deleted, or none of ours.
    pub fn of(object: CertificateSigningRequest) -> Option<Self> {
        if object.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let status = object.status.unwrap_or_default();
        if status.conditions.is_some_and(|conditions| !conditions.is_empty()) || status.certificate.is_some()
        {
            return None;
        }
        let spec = object.spec;
        let requester = Requester::of(spec.username.as_deref().unwrap_or_default())?;
        // A node renews its client certificate itself: kube-controller-manager approves that.
        let is_serving = match (spec.signer_name.as_str(), &requester) {
            (CLIENT_SIGNER, Requester::Pool(_) | Requester::AnyPool) => false,
            (SERVING_SIGNER, Requester::Node(_)) => true,
            _ => return None,
        };
        let usages = spec.usages.unwrap_or_default();
        let asked = match is_serving {
            false => client(&spec.request.0, &usages),
            true => serving(&spec.request.0, &usages, &requester),
        };
        let created = object.metadata.creation_timestamp.map(|time| time.0);
        Some(Self {
            name: object.metadata.name?,
            uid: object.metadata.uid?,
            resource_version: object.metadata.resource_version?,
            created: created.unwrap_or_default(),
            seen: Instant::now(),
            requester,
            asked,
        })
    }

    /// The name of the node that it asks for.
    pub fn node(&self) -> Option<&str> {
        self.asked.as_ref().ok().map(|asked| asked.node.as_str())
    }
}

/// As kube-controller-manager judges it (Kubernetes, `pkg/apis/certificates/helpers.go`: `ValidateKubeletClientCSR`), and no more.
fn client(pem: &[u8], usages: &[String]) -> Result<Asked, Denial> {
    judge_usages(usages, "client auth")?;
    let asked = pkcs10::read(pem)?;
    match asked.names.is_empty() {
        true => Ok(asked),
        false => Err(Denial::Subject("has alternative names")),
    }
}

/// As `ValidateKubeletServingCSR` of the same file.
fn serving(pem: &[u8], usages: &[String], requester: &Requester) -> Result<Asked, Denial> {
    judge_usages(usages, "server auth")?;
    let asked = pkcs10::read(pem)?;
    if *requester != Requester::Node(asked.node.clone()) {
        return Err(Denial::Subject("is not the node that asks"));
    }
    match asked.names.is_empty() {
        true => Err(Denial::Subject("has no alternative names")),
        false => Ok(asked),
    }
}

fn judge_usages(usages: &[String], auth: &'static str) -> Result<(), Denial> {
    let asked: BTreeSet<&str> = usages.iter().map(String::as_str).collect();
    let least = BTreeSet::from(["digital signature", auth]);
    let most = BTreeSet::from(["digital signature", "key encipherment", auth]);
    match asked == least || asked == most {
        true => Ok(()),
        false => Err(Denial::Usages(auth)),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
    use serde_json::{Value, json};

    use super::*;

    const POOL: &str = "system:serviceaccount:cloud-init-settings:osm-node-0123456789abcdef0123";

    fn pem(node: &str, names: &[&str]) -> ByteString {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "system:nodes");
        params
            .distinguished_name
            .push(DnType::CommonName, format!("system:node:{node}"));
        let key = KeyPair::generate().unwrap();
        ByteString(
            params
                .serialize_request(&key)
                .unwrap()
                .pem()
                .unwrap()
                .into_bytes(),
        )
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
    ) -> Option<Result<Asked, Denial>> {
        Request::of(object(signer, username, usages, request, json!({}))).map(|request| request.asked)
    }

    const CLIENT: [&str; 2] = ["digital signature", "client auth"];
    const SERVING: [&str; 2] = ["digital signature", "server auth"];

    #[tokio::test]
    async fn the_usages_of_a_kubelet_client_are_those_that_the_signer_takes() {
        let request = pem("a", &[]);
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
            match good {
                true => assert_eq!(asked.unwrap().node, "a"),
                false => assert_eq!(asked, Err(Denial::Usages("client auth")), "{usages:?}"),
            }
        }
    }

    #[tokio::test]
    async fn a_client_certificate_has_no_alternative_names_and_a_serving_certificate_has_some() {
        let (plain, named) = (pem("a", &[]), pem("a", &["a", "10.0.0.1"]));
        let client = |request: &ByteString| asked(CLIENT_SIGNER, POOL, &CLIENT, request).unwrap();
        assert!(client(&plain).is_ok());
        assert!(matches!(client(&named), Err(Denial::Subject(_))));
        let serving =
            |user: &str, request: &ByteString| asked(SERVING_SIGNER, user, &SERVING, request).unwrap();
        assert_eq!(serving("system:node:a", &named).unwrap().names.len(), 2);
        assert!(matches!(
            serving("system:node:a", &plain),
            Err(Denial::Subject(_))
        ));
        assert!(matches!(
            serving("system:node:b", &named),
            Err(Denial::Subject(_))
        ));
        let wrong = asked(SERVING_SIGNER, "system:node:a", &CLIENT, &named).unwrap();
        assert_eq!(wrong, Err(Denial::Usages("server auth")));
    }

    #[tokio::test]
    async fn requests_of_others_and_decided_ones_are_none_of_ours() {
        let request = pem("a", &[]);
        for (signer, user) in [
            (
                CLIENT_SIGNER,
                "system:serviceaccount:cloud-init-settings:cloud-init-getter",
            ),
            (CLIENT_SIGNER, "system:bootstrap:abcdef"),
            (CLIENT_SIGNER, "system:node:a"),
            (SERVING_SIGNER, POOL),
            ("example.com/signer", POOL),
        ] {
            assert_eq!(asked(signer, user, &CLIENT, &request), None, "{signer} {user}");
        }
        for status in [
            json!({"conditions": [{"type": "Approved", "status": "True"}]}),
            json!({"conditions": [{"type": "Failed", "status": "True"}]}),
            json!({"certificate": ByteString(vec![1])}),
        ] {
            let object = object(CLIENT_SIGNER, POOL, &CLIENT, &request, status.clone());
            assert!(Request::of(object).is_none(), "{status}");
        }
        let object = object(CLIENT_SIGNER, POOL, &CLIENT, &request, json!({"conditions": []}));
        let kept = Request::of(object).unwrap();
        assert_eq!(
            (
                kept.name.as_str(),
                kept.uid.as_str(),
                kept.resource_version.as_str()
            ),
            ("csr", "1", "5")
        );
        assert_eq!(kept.node(), Some("a"));
    }
}
