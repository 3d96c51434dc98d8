//! A request that waits for a decision, reduced to what the decision needs.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use osm_api::rbac::{CLIENT_SIGNER, SERVING_SIGNER};
use tokio::time::Instant;

use crate::pkcs10::{self, Asked, SubjectName};
use crate::requester::Requester;
use crate::verdict::Denial;

/// Where the API server records the id of the token that a request was created with (Kubernetes,
/// `staging/src/k8s.io/apiserver/pkg/authentication/user/user.go`: `CredentialIDKey`).
const TOKEN_ID: &str = "authentication.kubernetes.io/credential-id";

/// The longest name of a request in bytes, as of other objects.
const MAX_NAME_BYTES: usize = 253;

/// What a request takes besides its texts: itself, and its places in the cache.
const BYTES_OF_REQUEST: usize = 512;

/// What a name in a certificate takes besides its text.
const BYTES_OF_NAME: usize = size_of::<SubjectName>() + 16;

/// A pending request of one of our requesters.
#[derive(Debug)]
pub struct Request {
    /// Name of the CertificateSigningRequest.
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    pub created: Timestamp,
    /// When this process first saw it.
    pub seen: Instant,
    pub requester: Requester,
    /// What it asks for, if that is something that a kubelet may ask for. The request itself is not kept.
    pub asked: Result<Asked, Denial>,
}

impl Request {
    /// `None`: it is decided, being deleted, or none of ours. Nor is one whose name no kubelet gives: the API server takes every text.
    pub fn of(object: CertificateSigningRequest) -> Option<Self> {
        let name = object.metadata.name.filter(|name| is_plain(name))?;
        if object.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let status = object.status.unwrap_or_default();
        if status.conditions.is_some_and(|conditions| !conditions.is_empty()) || status.certificate.is_some()
        {
            return None;
        }
        let spec = object.spec;
        let token = spec.extra.as_ref().and_then(|extra| extra.get(TOKEN_ID));
        let requester = Requester::of(
            spec.username.as_deref().unwrap_or_default(),
            token.and_then(|ids| ids.first()).map_or("", String::as_str),
        )?;
        if requester.to_string().len() > 2 * MAX_NAME_BYTES {
            return None;
        }
        // A node renews its client certificate itself: kube-controller-manager approves that.
        match (spec.signer_name.as_str(), &requester) {
            (CLIENT_SIGNER, Requester::Pool(_) | Requester::AnyPool(_))
            | (SERVING_SIGNER, Requester::Node(_)) => {}
            _ => return None,
        }
        let (usages, pem) = (spec.usages.unwrap_or_default(), &spec.request.0);
        let asked = match &requester {
            Requester::Pool(_) | Requester::AnyPool(_) => client(pem, &usages),
            Requester::Node(node) => serving(pem, &usages, node),
        };
        let created = object.metadata.creation_timestamp.map(|time| time.0);
        Some(Self {
            name,
            uid: object.metadata.uid?,
            resource_version: object.metadata.resource_version?,
            created: created.unwrap_or_default(),
            seen: Instant::now(),
            requester,
            asked,
        })
    }

    /// One of these, for tests.
    #[cfg(test)]
    pub fn for_test(name: &str, created: Timestamp, asked: Result<Asked, Denial>) -> Self {
        Self {
            name: name.to_owned(),
            uid: format!("uid-of-{name}"),
            resource_version: "1".to_owned(),
            created,
            seen: Instant::now(),
            requester: Requester::AnyPool(String::new()),
            asked,
        }
    }

    /// About how many bytes of memory it takes. The cache has its name in two further places, and its uid in another one.
    pub fn bytes(&self) -> usize {
        let asked = self.asked.as_ref().map_or(0, |asked| {
            let names = asked.names.iter().map(|name| match name {
                SubjectName::Dns(name) => BYTES_OF_NAME + name.len(),
                SubjectName::Ip(_) => BYTES_OF_NAME,
            });
            asked.node.len() + names.sum::<usize>()
        });
        BYTES_OF_REQUEST
            + 3 * self.name.len()
            + 2 * self.uid.len()
            + self.resource_version.len()
            + self.requester.name().len()
            + asked
    }

    /// Takes over since when the same request is known, which a list shows again.
    #[must_use]
    pub fn as_known(mut self, known: &Self) -> Self {
        if self.uid == known.uid {
            self.seen = known.seen;
        }
        self
    }

    /// The name of the node that it asks for.
    pub fn node(&self) -> Option<&str> {
        self.asked.as_ref().ok().map(|asked| asked.node.as_str())
    }
}

/// Whether the name is short, and can stand in a path as it is. Old kubelets use capitals and `_`, too.
fn is_plain(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    name.len() <= MAX_NAME_BYTES && name.bytes().all(is_allowed)
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
fn serving(pem: &[u8], usages: &[String], node: &str) -> Result<Asked, Denial> {
    judge_usages(usages, "server auth")?;
    let asked = pkcs10::read(pem)?;
    if asked.node != node {
        return Err(Denial::Subject("is for another node than the one that sends it"));
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
    use crate::state::{MAX_BYTES, MAX_BYTES_OF_REQUESTER, MAX_OF_REQUESTER, MAX_REQUESTS};

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
    async fn requests_of_the_common_account_are_told_apart_by_their_tokens() {
        let any = "system:serviceaccount:cloud-init-settings:osm-node-bootstrap";
        let requester = |extra: Value| {
            let mut object = object(CLIENT_SIGNER, any, &CLIENT, &pem("a", &[]), json!({}));
            object.spec.extra = serde_json::from_value(extra).unwrap();
            Request::of(object).unwrap().requester.to_string()
        };
        assert_eq!(
            requester(json!({TOKEN_ID: ["JTI=1"]})),
            "osm-node-bootstrap/JTI=1"
        );
        assert_eq!(requester(json!({TOKEN_ID: []})), "osm-node-bootstrap");
        assert_eq!(requester(json!(null)), "osm-node-bootstrap");
    }

    #[tokio::test]
    async fn a_request_that_a_list_shows_again_is_known() {
        let of = |uid: &str| {
            let mut object = object(CLIENT_SIGNER, POOL, &CLIENT, &pem("a", &[]), json!({}));
            object.metadata.uid = Some(uid.to_owned());
            Request::of(object).unwrap()
        };
        let first = of("1");
        tokio::time::pause();
        tokio::time::advance(std::time::Duration::from_secs(60)).await;
        assert_eq!(of("1").as_known(&first).seen, first.seen);
        assert_ne!(
            of("2").as_known(&first).seen,
            first.seen,
            "another object has its name"
        );
    }

    #[tokio::test]
    async fn what_is_kept_of_a_request_is_what_a_decision_needs_and_its_bytes_count() {
        let of = |name: &str, signer: &str, user: &str, usages: &[&str], request: &ByteString| {
            let mut object = object(signer, user, usages, request, json!({}));
            object.metadata.name = Some(name.to_owned());
            object.metadata.uid = Some("00000000-0000-4000-8000-000000000000".to_owned());
            Request::of(object).unwrap()
        };
        // As many as are remembered fit into the bytes if they are those of kubelets.
        let node = "pool-0123456789-abcdef0123-abcde";
        let usual = of("csr-0a1b2", CLIENT_SIGNER, POOL, &CLIENT, &pem(node, &[]));
        assert_eq!(usual.node(), Some(node));
        assert!(usual.bytes() * MAX_REQUESTS <= MAX_BYTES, "{}", usual.bytes());
        assert!(usual.bytes() * MAX_OF_REQUESTER <= MAX_BYTES_OF_REQUESTER);

        // The bytes of a request that no kubelet sends count, and its usages are not kept.
        let longest = "n".repeat(MAX_NAME_BYTES);
        let usages = vec!["x".repeat(100_000); 100];
        let usages: Vec<&str> = usages.iter().map(String::as_str).collect();
        let large = of(
            &longest,
            CLIENT_SIGNER,
            POOL,
            &usages,
            &ByteString(vec![b'a'; 100_000]),
        );
        assert_eq!(large.asked, Err(Denial::Usages("client auth")));
        assert!(
            (3 * MAX_NAME_BYTES..2_000).contains(&large.bytes()),
            "{}",
            large.bytes()
        );
        let large = of("a", CLIENT_SIGNER, POOL, &CLIENT, &ByteString(vec![b'a'; 9_000]));
        assert_eq!(large.asked, Err(Denial::Unreadable("it is larger than 8 KiB")));

        // So do those of the names in a certificate.
        let names: Vec<String> = (0..20).map(|i| format!("{i:02}{}", "n".repeat(200))).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let serving = of("a", SERVING_SIGNER, "system:node:a", &SERVING, &pem("a", &names));
        assert_eq!(serving.asked.as_ref().unwrap().names.len(), 20);
        assert!(
            (20 * 200..8_000).contains(&serving.bytes()),
            "{}",
            serving.bytes()
        );
    }

    #[tokio::test]
    async fn only_names_that_kubelets_give_are_taken() {
        let (request, longest) = (pem("a", &[]), "n".repeat(MAX_NAME_BYTES));
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
            assert_eq!(Request::of(object).is_some(), taken, "{name}");
        }
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
