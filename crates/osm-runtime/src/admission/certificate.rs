//! The serving certificate. Its files may appear and change while the service runs.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::RwLock;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, version};

use super::AdmissionMetrics;

/// How often the files are read. The kubelet needs a minute for a change of a Secret, so that more often helps nobody.
const READ_INTERVAL: Duration = Duration::from_secs(2);

const CERTIFICATE_FILE: &str = "tls.crt";
const KEY_FILE: &str = "tls.key";

/// The key pair of a folder. Clones share it.
#[derive(Clone)]
pub(super) struct Certificate(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    metrics: AdmissionMetrics,
    /// The last pair that could be used; `None`: there was none yet, and no connection succeeds.
    current: RwLock<Option<Arc<CertifiedKey>>>,
}

/// What was last read from the folder, so that only changes are logged.
#[derive(Default, PartialEq)]
struct Seen(Option<(Vec<u8>, Vec<u8>)>);

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the certificate in {}", self.0.folder.display())
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.current.read().clone()
    }
}

impl Certificate {
    pub(super) fn new(folder: &Path, metrics: AdmissionMetrics) -> Self {
        Self(Arc::new(Inner {
            folder: folder.to_owned(),
            metrics,
            current: RwLock::default(),
        }))
    }

    /// # Errors
    /// The provider does not support the versions of TLS.
    pub(super) fn server_config(&self) -> anyhow::Result<ServerConfig> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(self.clone()));
        // The API server uses HTTP/1.1 for webhooks.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    /// Reads the files now and again until the task ends.
    pub(super) async fn follow(self) {
        let mut seen = Seen::default();
        let mut last_problem = None;
        loop {
            match self.refresh(&mut seen) {
                Ok(()) => last_problem = None,
                Err(error) => {
                    let problem = format!("{error:#}");
                    if last_problem.as_ref() != Some(&problem) {
                        tracing::warn!(
                            folder = %self.0.folder.display(),
                            "the certificate of the admission webhook can't be used: {problem}; the last one that could be used stays"
                        );
                    }
                    last_problem = Some(problem);
                }
            }
            tokio::time::sleep(READ_INTERVAL).await;
        }
    }

    /// Uses the files if they have changed. The last good pair stays where they can't be used: also between the two moments at
    /// which a program replaces one file and then the other.
    fn refresh(&self, seen: &mut Seen) -> anyhow::Result<()> {
        let read = |name: &str| {
            let path = self.0.folder.join(name);
            fs::read(&path).with_context(|| path.display().to_string())
        };
        let found = Seen(Some((read(CERTIFICATE_FILE)?, read(KEY_FILE)?)));
        if *seen == found {
            return Ok(());
        }
        if let Some((chain, key)) = &found.0 {
            let pair = key_pair(chain, key)?;
            self.0.metrics.uses_certificate(expiry(&pair)?);
            *self.0.current.write() = Some(Arc::new(pair));
            tracing::info!("using a new certificate for the admission webhook");
        }
        *seen = found;
        Ok(())
    }
}

/// # Errors
/// PEM that can't be read, or a key that does not belong to the certificate.
fn key_pair(chain: &[u8], key: &[u8]) -> anyhow::Result<CertifiedKey> {
    let chain = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<Vec<_>, _>>()
        .with_context(|| format!("{CERTIFICATE_FILE} is no PEM"))?;
    let key = PrivateKeyDer::from_pem_slice(key).with_context(|| format!("{KEY_FILE} has no private key"))?;
    CertifiedKey::from_der(chain, key, &ring::default_provider())
        .with_context(|| format!("{CERTIFICATE_FILE} and {KEY_FILE} are no pair"))
}

/// Unix time of the end of the certificate.
fn expiry(pair: &CertifiedKey) -> anyhow::Result<i64> {
    let certificate = pair.end_entity_cert()?;
    let (_, certificate) = x509_parser::parse_x509_certificate(certificate).context(CERTIFICATE_FILE)?;
    Ok(certificate.validity().not_after.timestamp())
}
