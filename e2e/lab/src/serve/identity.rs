//! Certificates of servers that stand in for hosts.

use std::sync::Arc;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair,
};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// A certificate with its private key, PEM.
#[derive(Clone)]
pub struct Identity {
    pub certificate: String,
    /// Its key, PKCS #8.
    pub key: String,
}

impl Identity {
    /// The identity of a server that goes by these names, and the CA that vouches for it, PEM.
    ///
    /// # Errors
    /// When a name is not that of a host.
    pub fn of_hosts(names: &[String]) -> Result<(String, Self)> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = named("a CA of the internet");
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = named("hosts of the internet");
        params.use_authority_key_identifier_extension = true;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let identity = Self {
            certificate: params.signed_by(&key, &ca)?.pem(),
            key: key.serialize_pem(),
        };
        Ok((ca.pem(), identity))
    }

    /// Terminates TLS as this identity, for HTTP/1.1.
    pub(super) fn acceptor(&self) -> Result<TlsAcceptor> {
        let chain = CertificateDer::pem_slice_iter(self.certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .context("a certificate")?;
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).context("a key")?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .context("a certificate and its key")?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn named(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}
