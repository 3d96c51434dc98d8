//! Reads a certificate request as strictly as kubelets write it: one PEM block, a subject of two attributes.
//!
//! The API server has checked the signature (Kubernetes, `pkg/apis/certificates/validation`: `validateCSR`).
//! The signer copies the subject and the alternative names of the request into the certificate, so everything
//! in the subject is judged, and there may be no such names.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509_parser::asn1_rs::Tag;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::prelude::FromDer;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use crate::verdict::Denial;

/// The largest request that is read, in bytes of PEM. One with an RSA key of 16,384 bits has 6 KiB.
const MAX_BYTES: usize = 8 * 1024;

/// What the API server calls a node.
pub const NODE_USER: &str = "system:node:";

/// The longest name of a Node: the API server takes no longer DNS subdomain.
const MAX_NODE_NAME: usize = 253;

const ORGANIZATION: &str = "system:nodes";

const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----";
const END: &str = "-----END CERTIFICATE REQUEST-----";

/// The name of the node for whose client certificate a request is.
///
/// # Errors
/// It is not one that a kubelet writes.
pub fn read(pem: &[u8]) -> Result<String, Denial> {
    let der = decode(pem)?;
    let not_pkcs10 = |_| Denial::Unreadable("it is not PKCS#10");
    let (rest, request) = X509CertificationRequest::from_der(&der).map_err(not_pkcs10)?;
    if !rest.is_empty() {
        return Err(Denial::Unreadable("it has bytes after its end"));
    }
    let info = &request.certification_request_info;
    let node = node(&info.subject)?;
    // Alternative names, which kubelets request only for a serving certificate, are in an attribute.
    match info.iter_attributes().next() {
        None => Ok(node),
        Some(_) => Err(Denial::Unreadable("it has attributes, such as alternative names")),
    }
}

/// The bytes of the only PEM block. Text around it, headers and a second block are refused: readers may
/// differ about them.
fn decode(pem: &[u8]) -> Result<Vec<u8>, Denial> {
    if pem.len() > MAX_BYTES {
        return Err(Denial::Unreadable("it is larger than 8 KiB"));
    }
    let not_pem = || Denial::Unreadable("it is not one PEM block");
    let text = std::str::from_utf8(pem).map_err(|_| not_pem())?;
    let body = text
        .trim()
        .strip_prefix(BEGIN)
        .and_then(|text| text.strip_suffix(END));
    let base64: String = body.ok_or_else(not_pem)?.lines().map(str::trim).collect();
    STANDARD.decode(base64).map_err(|_| not_pem())
}

/// The NAME of O=system:nodes, CN=system:node:NAME, in either order.
fn node(subject: &X509Name<'_>) -> Result<String, Denial> {
    let attributes = subject.iter_attributes();
    let attributes = attributes.map(|attribute| Some((attribute.attr_type(), text(attribute)?)));
    let attributes: Vec<_> = attributes.collect::<Option<_>>().unwrap_or_default();
    let ([(organization, ORGANIZATION), (common_name, name)]
    | [(common_name, name), (organization, ORGANIZATION)]) = attributes[..]
    else {
        return Err(Denial::Subject);
    };
    let is_subject = *organization == OID_X509_ORGANIZATION_NAME && *common_name == OID_X509_COMMON_NAME;
    match name.strip_prefix(NODE_USER) {
        Some(name) if is_subject && (1..=MAX_NODE_NAME).contains(&name.len()) => Ok(name.to_owned()),
        _ => Err(Denial::Subject),
    }
}

/// The text of an attribute, in one of the two types that Go writes.
fn text<'a>(attribute: &AttributeTypeAndValue<'a>) -> Option<&'a str> {
    let value = attribute.attr_value();
    let is_text = matches!(value.tag(), Tag::PrintableString | Tag::Utf8String);
    is_text.then(|| std::str::from_utf8(value.data).ok()).flatten()
}

#[cfg(test)]
#[path = "pkcs10_tests.rs"]
pub mod tests;
