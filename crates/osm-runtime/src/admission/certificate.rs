//! The serving certificate. Its files may appear and change while the service runs.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ResolvesServerCert, ResolvesServerCertUsingSni};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ServerConfig, version};
use tokio::sync::watch;

use super::metrics::AdmissionMetrics;
use crate::readiness::Gate;

/// How often the files are read. The kubelet takes about a minute to update a mounted Secret, so reading more
/// often gains nothing.
const READ_INTERVAL: Duration = Duration::from_secs(2);

const CERTIFICATE_FILE: &str = "tls.crt";
const KEY_FILE: &str = "tls.key";

/// The key pair of a folder.
pub(super) struct Certificate {
    folder: PathBuf,
    metrics: AdmissionMetrics,
    /// Closed until there was a pair that could be used.
    gate: Gate,
    /// What handshakes use. Without a pair that could be used, no handshake succeeds.
    pub(super) in_use: watch::Sender<Arc<ServerConfig>>,
    /// The files of the pair in use.
    seen: Option<(Vec<u8>, Vec<u8>)>,
}

impl Certificate {
    /// # Errors
    /// The provider does not support the versions of TLS.
    pub(super) fn new(folder: PathBuf, metrics: AdmissionMetrics, gate: Gate) -> anyhow::Result<Self> {
        Ok(Self {
            folder,
            metrics,
            gate,
            in_use: watch::Sender::new(server_config(ResolvesServerCertUsingSni::new())?),
            seen: None,
        })
    }

    /// Reads the files now and again until the task ends.
    pub(super) async fn follow(mut self) {
        let mut last_problem = None;
        loop {
            let problem = self.refresh().err().map(|error| format!("{error:#}"));
            if let Some(problem) = problem.as_ref().filter(|_| problem != last_problem) {
                self.report(problem);
            }
            last_problem = problem;
            tokio::time::sleep(READ_INTERVAL).await;
        }
    }

    pub(super) fn report(&self, problem: &str) {
        if self.seen.is_some() {
            return tracing::warn!(
                "the certificate of the admission webhook can't be renewed: {problem}; the one before it stays in use"
            );
        }
        let folder = self.folder.display();
        tracing::error!("the admission webhook has no certificate: {problem}");
        self.gate.close(format!(
            "{problem}; {folder} must have the certificate of the admission webhook in {CERTIFICATE_FILE}, and its key in {KEY_FILE}"
        ));
    }

    /// Uses the files if they have changed. The pair before them stays in use where they can't be used, such
    /// as between the two moments at which a program replaces one file and then the other.
    pub(super) fn refresh(&mut self) -> anyhow::Result<()> {
        let read = |name: &str| {
            let path = self.folder.join(name);
            fs::read(&path).with_context(|| path.display().to_string())
        };
        let found = (read(CERTIFICATE_FILE)?, read(KEY_FILE)?);
        if self.seen.as_ref() == Some(&found) {
            return Ok(());
        }
        let pair = key_pair(&found.0, &found.1)?;
        self.metrics.uses_certificate(expiry(&pair)?);
        let config = server_config(SingleCertAndKey::from(pair))?;
        self.in_use.send_replace(config);
        self.seen = Some(found);
        self.gate.open();
        tracing::info!("using a new certificate for the admission webhook");
        Ok(())
    }
}

fn server_config(resolver: impl ResolvesServerCert + 'static) -> anyhow::Result<Arc<ServerConfig>> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// # Errors
/// PEM that can't be read, or a key that does not belong to the certificate.
fn key_pair(chain: &[u8], key: &[u8]) -> anyhow::Result<CertifiedKey> {
    let chain = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<Vec<_>, _>>()
        .with_context(|| format!("{CERTIFICATE_FILE} is not PEM"))?;
    let key = PrivateKeyDer::from_pem_slice(key).with_context(|| format!("{KEY_FILE} has no private key"))?;
    CertifiedKey::from_der(chain, key, &ring::default_provider())
        .with_context(|| format!("{CERTIFICATE_FILE} and {KEY_FILE} do not belong together"))
}

/// Unix time of the end of the certificate.
fn expiry(pair: &CertifiedKey) -> anyhow::Result<i64> {
    let certificate = pair.end_entity_cert().context(CERTIFICATE_FILE)?;
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).context(CERTIFICATE_FILE)?;
    Ok(certificate.validity().not_after.timestamp())
}
