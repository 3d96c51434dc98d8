//! Certificates and keys of a control plane that exists for minutes.

use std::net::IpAddr;
use std::path::Path;

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use super::{ControlPlane, private_file};

/// A name that the API server's certificate is valid for, besides 127.0.0.1.
const SERVER_NAMES: [&str; 5] = [
    "127.0.0.1",
    super::ADVERTISED_ADDRESS,
    super::SERVICE_ADDRESS,
    "kubernetes.default.svc",
    "localhost",
];

/// The CA, certificates of the API server and the ServiceAccount key, as files in one directory.
#[derive(Debug)]
pub struct Pki {
    pub ca_pem: String,
    pub ca_der: Vec<u8>,
}

impl Pki {
    /// Writes `ca`, `apiserver` and `kubelet-client` (each `.crt` and `.key`), `sa.key` and `sa.pub`, all
    /// ECDSA P-256. Machines reach the API server by the addresses `nodes`, if there are any.
    ///
    /// # Errors
    /// When a file can't be written.
    pub fn create(directory: &Path, nodes: impl Iterator<Item = IpAddr>) -> Result<Self> {
        let mut params = named("osm-testkit-ca")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let ca_pem = ca.pem();
        private_file(&directory.join("ca.crt"), &ca_pem)?;
        private_file(&directory.join("ca.key"), &ca.key().serialize_pem())?;
        let issue = |name: &str, mut params: CertificateParams, usage| -> Result<()> {
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.extended_key_usages = vec![usage];
            let key = KeyPair::generate()?;
            private_file(
                &directory.join(format!("{name}.crt")),
                &params.signed_by(&key, &ca)?.pem(),
            )?;
            private_file(&directory.join(format!("{name}.key")), &key.serialize_pem())
        };

        let names = SERVER_NAMES
            .map(str::to_owned)
            .into_iter()
            .chain(nodes.map(|address| address.to_string()));
        let mut params = named("kube-apiserver")?;
        params.subject_alt_names = CertificateParams::new(names.collect::<Vec<_>>())?.subject_alt_names;
        issue("apiserver", params, ExtendedKeyUsagePurpose::ServerAuth)?;

        // Who the API server is to kubelets. They ask it whether system:masters may do what it asks for.
        let mut params = named("kube-apiserver-kubelet-client")?;
        params
            .distinguished_name
            .push(DnType::OrganizationName, "system:masters");
        issue("kubelet-client", params, ExtendedKeyUsagePurpose::ClientAuth)?;

        let key = KeyPair::generate()?;
        private_file(&directory.join("sa.key"), &key.serialize_pem())?;
        private_file(&directory.join("sa.pub"), &key.public_key_pem())?;
        Ok(Self {
            ca_pem,
            ca_der: ca.der().to_vec(),
        })
    }
}

impl ControlPlane {
    /// The certificate of the cluster's CA, which signed the API server's, PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.pki.ca_pem
    }
}

fn named(common_name: &str) -> Result<CertificateParams> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.use_authority_key_identifier_extension = true;
    // As a real one is, worth nothing to a machine whose clock is far behind.
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let first = today.checked_sub(jiff::Span::new().days(3))?;
    params.not_before = rcgen::date_time_ymd(
        first.year().into(),
        first.month().try_into()?,
        first.day().try_into()?,
    );
    Ok(params)
}
