//! What a token permits, and what a kubelet does with the token that it joins with.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::SelfSubjectRulesReview;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::PostParams;
use kube::{Api, Client};
use osm_testkit::wait_for;
use serde_json::json;

use crate::world::{DEADLINE, World};

/// The controllers that approve and sign what kubelets ask for.
pub const CONTROLLERS: [&str; 2] = ["csrapproving", "csrsigning"];

/// The signer of kubelets' client certificates.
pub const KUBELET_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// Everything that a token may do in a namespace, as a SelfSubjectRulesReview lists it. One right a line.
pub async fn rights(client: Client, namespace: &str) -> Result<BTreeSet<String>> {
    let review: SelfSubjectRulesReview = serde_json::from_value(json!({"spec": {"namespace": namespace}}))?;
    let answer = Api::<SelfSubjectRulesReview>::all(client)
        .create(&PostParams::default(), &review)
        .await?;
    let status = answer.status.context("a review without status")?;
    ensure!(
        status
            .evaluation_error
            .is_none_or(|error| error.is_empty() || error.contains("node"))
    );
    let (mut all, any) = (BTreeSet::new(), || vec!["(any)".to_owned()]);
    for rule in status.resource_rules {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for name in rule
                    .resource_names
                    .clone()
                    .filter(|names| !names.is_empty())
                    .unwrap_or_else(any)
                {
                    for verb in &rule.verbs {
                        all.insert(format!("{verb} {group}/{resource} {name}"));
                    }
                }
            }
        }
    }
    for rule in status.non_resource_rules {
        for path in rule.non_resource_urls.iter().flatten() {
            all.extend(rule.verbs.iter().map(|verb| format!("{verb} {path}")));
        }
    }
    Ok(all)
}

/// A key, and what is asked for with it.
pub struct Wish {
    pub key: rcgen::KeyPair,
    pub request: CertificateSigningRequest,
}

/// A request for a certificate for this name, organization and further names.
pub fn wish(
    object: &str,
    signer: &str,
    common_name: &str,
    organization: &str,
    names: &[&str],
) -> Result<Wish> {
    let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let mut params = rcgen::CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(rcgen::DnType::OrganizationName, organization);
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, common_name);
    let key = rcgen::KeyPair::generate()?;
    let text = params.serialize_request(&key)?.pem()?;
    let request = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": object},
        "spec": {
            "signerName": signer, "usages": ["digital signature", "client auth"],
            "request": ByteString(text.into_bytes()),
        },
    });
    Ok(Wish {
        key,
        request: serde_json::from_value(request)?,
    })
}

/// What a kubelet of this name asks for.
pub fn node_wish(node: &str) -> Result<Wish> {
    wish(
        node,
        KUBELET_SIGNER,
        &format!("system:node:{node}"),
        "system:nodes",
        &[],
    )
}

/// Asks as a kubelet does, and waits until the certificate is issued and opens the API server; gives whom
/// that takes it for.
pub async fn join(world: &World, token: &str, node: &str) -> Result<String> {
    let Wish { key, request } = node_wish(node)?;
    let requests = Api::<CertificateSigningRequest>::all(world.plane.client(token)?);
    requests.create(&PostParams::default(), &request).await?;
    let certificate = wait_for(&format!("the certificate of {node}"), DEADLINE, async || {
        Ok(requests
            .get(node)
            .await?
            .status
            .and_then(|status| status.certificate))
    })
    .await?;
    let base64 = |bytes: &[u8]| serde_json::to_value(ByteString(bytes.to_vec()));
    let mut auth = json!({"client-certificate-data": base64(&certificate.0)?});
    auth["client-key-data"] = base64(key.serialize_pem().as_bytes())?;
    let reviews = Api::<SelfSubjectReview>::all(world.plane.client_with(serde_json::from_value(auth)?)?);
    let who = reviews
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await?;
    let user = who.status.and_then(|status| status.user_info).context("nobody")?;
    Ok(format!(
        "{} of {}",
        user.username.unwrap_or_default(),
        user.groups
            .unwrap_or_default()
            .first()
            .cloned()
            .unwrap_or_default()
    ))
}
