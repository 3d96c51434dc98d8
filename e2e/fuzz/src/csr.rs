//! The request of a certificate: PEM, or the digits of its bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use csr_approver::pkcs10;

use crate::{bounds, canary, hex};

const REQUESTS: [&str; 2] = [
    include_str!("client-request.pem"),
    include_str!("serving-request.pem"),
];

/// It is read, or denied without repeating a value.
pub fn run(input: &[u8]) {
    read(input);
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    // So that a change of one digit is a change of one byte, whatever Base64 makes of it.
    if let Some(pem) = osm_api::cluster_endpoint::pem(&[hex::bytes(text)]) {
        read(pem.replace(" CERTIFICATE-", " CERTIFICATE REQUEST-").as_bytes());
    }
}

fn read(pem: &[u8]) {
    match bounds::within("a request", || pkcs10::read(pem)) {
        Ok(node) => {
            assert!((1..=253).contains(&node.len()), "the name of no node");
            assert_eq!(pkcs10::read(pem), Ok(node), "differs the second time");
        }
        Err(denial) => canary::check(&denial.to_string()),
    }
}

/// One of each signer, in both forms.
pub fn seeds() -> Vec<String> {
    let digits = REQUESTS.iter().map(|pem| {
        let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        hex::text(&STANDARD.decode(body).unwrap_or_default())
    });
    REQUESTS
        .iter()
        .map(|pem| (*pem).to_owned())
        .chain(digits)
        .collect()
}
