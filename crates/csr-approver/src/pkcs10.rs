//! Reads a certificate request as strictly as kubelets write it: one PEM block, a subject of two attributes.
//!
//! The API server has checked the signature (Kubernetes, `pkg/apis/certificates/validation`: `validateCSR`). The signer copies the subject
//! and the alternative names of the request into the certificate, so everything in the subject is judged, and there may be no such names.

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

/// The longest name of a node.
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

/// The bytes of the only PEM block. Text around it, headers and a second block are refused: readers may differ about them.
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
mod tests {
    use rcgen::{CertificateParams, CustomExtension, DistinguishedName, DnType, DnValue, KeyPair, SanType};

    use super::*;

    fn with_subject<V: Into<DnValue>>(
        attributes: impl IntoIterator<Item = (DnType, V)>,
    ) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (attribute, value) in attributes {
            params.distinguished_name.push(attribute, value);
        }
        params
    }

    fn params(organization: &str, common_name: &str) -> CertificateParams {
        with_subject([
            (DnType::OrganizationName, organization),
            (DnType::CommonName, common_name),
        ])
    }

    fn pem(params: &CertificateParams) -> String {
        let key = KeyPair::generate().unwrap();
        params.serialize_request(&key).unwrap().pem().unwrap()
    }

    fn good() -> CertificateParams {
        params("system:nodes", "system:node:a-b.c")
    }

    fn denied(params: &CertificateParams) -> Denial {
        read(pem(params).as_bytes()).unwrap_err()
    }

    #[test]
    fn the_request_of_a_kubelet_is_read() {
        let read = |params: &CertificateParams| read(pem(params).as_bytes());
        assert_eq!(read(&good()), Ok("a-b.c".to_owned()));
        // In the other order, and as PrintableString.
        let printable = |text: &str| DnValue::PrintableString(text.try_into().unwrap());
        let other = with_subject([
            (DnType::CommonName, printable("system:node:b")),
            (DnType::OrganizationName, printable("system:nodes")),
        ]);
        assert_eq!(read(&other), Ok("b".to_owned()));
    }

    #[test]
    fn every_other_subject_is_denied() {
        for (organization, common_name) in [
            ("system:masters", "system:node:a"),
            ("System:nodes", "system:node:a"),
            ("system:nodes ", "system:node:a"),
            ("system:nodes", "system:node:"),
            ("system:nodes", "system:nod:a"),
            ("system:nodes", "admin"),
            ("system:nodes", &format!("system:node:{}", "a".repeat(254))),
            ("system:node:a", "system:nodes"),
        ] {
            let denial = denied(&params(organization, common_name));
            assert!(
                matches!(denial, Denial::Subject),
                "{organization} {common_name}: {denial}"
            );
        }
        let node = (DnType::CommonName, "system:node:a");
        let nodes = |attribute| (attribute, "system:nodes");
        for attributes in [
            vec![],
            vec![node.clone()],
            vec![node.clone(), nodes(DnType::LocalityName)],
            vec![
                node.clone(),
                nodes(DnType::OrganizationName),
                nodes(DnType::OrganizationalUnitName),
            ],
        ] {
            let denial = denied(&with_subject(attributes.clone()));
            assert!(matches!(denial, Denial::Subject), "{attributes:?}: {denial}");
        }
        // A type that readers may decode in different ways.
        let organization = DnValue::TeletexString("system:nodes".try_into().unwrap());
        let mut teletex = with_subject([node]);
        teletex
            .distinguished_name
            .push(DnType::OrganizationName, organization);
        assert!(matches!(denied(&teletex), Denial::Subject));
    }

    #[test]
    fn attributes_that_no_client_certificate_needs_are_denied() {
        let (mut named, mut extended, mut authority) = (good(), good(), good());
        named.subject_alt_names = vec![SanType::DnsName("a".try_into().unwrap())];
        extended.custom_extensions = vec![CustomExtension::from_oid_content(&[1, 2, 3], vec![5, 0])];
        authority.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
        for params in [named, extended, authority] {
            assert!(matches!(denied(&params), Denial::Unreadable(_)));
        }
    }

    #[test]
    fn only_one_pem_block_is_read() {
        let one = pem(&good());
        let with_spaces = format!("\n{}\r\n", one.replace('\n', "\r\n"));
        assert!(read(with_spaces.as_bytes()).is_ok());
        let other = one.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST");
        let body: String = one.lines().filter(|line| !line.starts_with('-')).collect();
        for text in [
            String::new(),
            body.clone(),
            format!("{one}{one}"),
            format!("x\n{one}"),
            format!("{one}x"),
            one.replace("REQUEST-----\n", "REQUEST-----\nProc-Type: 4,ENCRYPTED\n\n"),
            other,
            format!("{BEGIN}\n{}\n{END}", &body[..body.len() - 8]),
            format!("{BEGIN}\n{END}"),
            format!("{BEGIN}\n{body}{}\n{END}", "\n".repeat(MAX_BYTES)),
        ] {
            let denial = read(text.as_bytes()).unwrap_err();
            assert!(matches!(denial, Denial::Unreadable(_)), "{text}");
        }
        let mut longer = STANDARD.decode(&body).unwrap();
        longer.push(0);
        let longer = format!("{BEGIN}\n{}\n{END}", STANDARD.encode(longer));
        assert_eq!(
            read(longer.as_bytes()),
            Err(Denial::Unreadable("it has bytes after its end"))
        );
        assert!(read(&[0xff; 9]).is_err());
    }
}
