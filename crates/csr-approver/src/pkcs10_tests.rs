use rcgen::{CertificateParams, CustomExtension, DistinguishedName, DnType, DnValue, KeyPair, SanType};

use super::*;

fn with_subject<V: Into<DnValue>>(attributes: impl IntoIterator<Item = (DnType, V)>) -> CertificateParams {
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

/// The request of a kubelet, in PEM.
pub fn request_of(node: &str) -> String {
    pem(&params("system:nodes", &format!("system:node:{node}")))
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
