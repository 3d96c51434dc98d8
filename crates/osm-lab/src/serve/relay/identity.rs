//! The certificates that a relay presents, and the ones that it trusts.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// As whom a relay can appear.
#[derive(Clone)]
pub struct Identities {
    /// The certificate of the cluster's CA, PEM: what clients trust, and the relay before it forwards anything.
    pub ca: String,
    /// A certificate that this CA issued for the relay's addresses.
    pub server: Identity,
    /// A certificate for the same addresses from a CA that nobody trusts.
    pub impostor: Identity,
}

/// A certificate (or a chain, the server's own first) with its private key, PEM.
#[derive(Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// Its key, PKCS #8.
    pub key: String,
}

impl Identities {
    /// Makes both identities for a relay that is reached at `addresses`, from the CA's certificate and key (PKCS #8), PEM.
    ///
    /// # Errors
    /// When certificate or key can't be read.
    pub fn issue(ca_certificate: &str, ca_key: &str, addresses: &[IpAddr]) -> Result<Self> {
        let ca_key = KeyPair::from_pem(ca_key).context("the CA's key")?;
        let ca = Issuer::from_ca_cert_pem(ca_certificate, ca_key).context("the CA's certificate")?;
        let stranger = Issuer::new(named("a CA that nobody trusts"), KeyPair::generate()?);
        Ok(Self {
            ca: ca_certificate.to_owned(),
            server: Identity::issue(&ca, addresses)?,
            impostor: Identity::issue(&stranger, addresses)?,
        })
    }
}

impl Identity {
    fn issue(ca: &Issuer<'_, KeyPair>, addresses: &[IpAddr]) -> Result<Self> {
        Self::issue_for(
            ca,
            "kube-apiserver",
            addresses.iter().copied().map(SanType::IpAddress).collect(),
        )
    }

    /// One identity for each host name, and the CA that vouches for them all, PEM.
    pub(in crate::serve) fn of_hosts(names: &[String]) -> Result<(String, Vec<Self>)> {
        let mut params = named("a CA of the internet");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let identities = names
            .iter()
            .map(|name| Self::issue_for(&ca, name, vec![SanType::DnsName(name.as_str().try_into()?)]));
        let identities = identities.collect::<Result<_>>()?;
        Ok((ca.pem(), identities))
    }

    fn issue_for(ca: &Issuer<'_, KeyPair>, name: &str, subjects: Vec<SanType>) -> Result<Self> {
        let mut params = named(name);
        params.subject_alt_names = subjects;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        Ok(Self {
            certificate: params.signed_by(&key, ca)?.pem(),
            key: key.serialize_pem(),
        })
    }

    /// Terminates TLS as this identity, for HTTP/1.1.
    pub(in crate::serve) fn acceptor(&self) -> Result<TlsAcceptor> {
        let chain = CertificateDer::pem_slice_iter(self.certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .context("a certificate of the relay")?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).context("a key of the relay")?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .context("certificate and key of the relay")?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// Speaks TLS with whom the CA vouches for, and nobody else.
pub(super) fn connector(ca: &str) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        roots.add(certificate.context("the CA's certificate")?)?;
    }
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

fn named(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.use_authority_key_identifier_extension = true;
    params
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
