//! Certificates and keys of a control plane that lives for minutes.

use std::path::Path;

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use super::private_file;

/// A name that the API server's certificate is valid for, besides 127.0.0.1.
const SERVER_NAMES: [&str; 5] =
    ["127.0.0.1", super::ADVERTISED_ADDRESS, super::SERVICE_ADDRESS, "kubernetes.default.svc", "localhost"];

/// The CA, the API server's certificate and the ServiceAccount key, as files in one directory.
#[derive(Debug)]
pub(super) struct Pki {
    /// The CA's certificate, PEM.
    pub(super) ca_pem: String,
    /// The same, DER.
    pub(super) ca_der: Vec<u8>,
}

impl Pki {
    /// Writes `ca.crt`, `ca.key`, `apiserver.crt`, `apiserver.key`, `sa.key` and `sa.pub`, all ECDSA P-256.
    pub(super) fn create(directory: &Path) -> Result<Self> {
        let mut params = named("osm-testkit-ca")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let ca_pem = ca.pem();
        private_file(&directory.join("ca.crt"), &ca_pem)?;
        private_file(&directory.join("ca.key"), &ca.key().serialize_pem())?;

        let mut params = named("kube-apiserver")?;
        params.subject_alt_names = CertificateParams::new(SERVER_NAMES.map(str::to_owned))?.subject_alt_names;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        private_file(&directory.join("apiserver.crt"), &params.signed_by(&key, &ca)?.pem())?;
        private_file(&directory.join("apiserver.key"), &key.serialize_pem())?;

        let key = KeyPair::generate()?;
        private_file(&directory.join("sa.key"), &key.serialize_pem())?;
        private_file(&directory.join("sa.pub"), &key.public_key_pem())?;
        Ok(Self { ca_pem, ca_der: ca.der().to_vec() })
    }
}

fn named(common_name: &str) -> Result<CertificateParams> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}
