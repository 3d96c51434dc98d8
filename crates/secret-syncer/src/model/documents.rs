//! The filled documents that go into the Secrets, and the MACs that identify them.

use osm_api::Reason;
use osm_api::config::{LateBound, LateBoundKind, OperatingSystemConfigSpec};
use osm_api::digest;
use osm_render::{LateValues, Stage, UserDataError};

use crate::model::hmac_key::HmacKey;
use crate::model::tokens::Tokens;

/// Stand-in for a token while documents are compared.
const NO_TOKEN: &str = "token";

#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error("the {stage} document can't be generated: {source}")]
    UserData {
        /// `bootstrap`, `provisioning` or `edge`.
        stage: &'static str,
        source: UserDataError,
    },
    #[error(
        "the bootstrap document has {bytes} bytes as the cloud counts them, and the limit is {limit}; make the profile's bootstrapConfig smaller"
    )]
    TooLarge { bytes: usize, limit: usize },
}

impl DocumentError {
    /// Reason for conditions, events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::UserData { source, .. } => source.reason(),
            Self::TooLarge { .. } => Reason::UserDataTooLarge,
        }
    }
}

/// A pool's documents, complete except for the tokens.
#[derive(Clone)]
pub struct Documents {
    spec: OperatingSystemConfigSpec,
    values: LateValues,
    pub provisioning: String,
    /// SHA-256 of the provisioning document.
    pub provisioning_digest: String,
    /// Name of the Secret for the provisioning document.
    pub provisioning_secret: String,
    /// MAC of the bootstrap document with stand-ins for the tokens.
    pub document_mac: String,
}

impl Documents {
    /// Fills in everything that is known before tokens are issued. `values` are those of the objects that late-bound values refer to.
    ///
    /// # Errors
    /// Values that are missing or don't fit their encoding.
    pub fn make(
        spec: &OperatingSystemConfigSpec,
        mut values: LateValues,
        pool: &str,
        key: &HmacKey,
    ) -> Result<Self, DocumentError> {
        let failed = |stage| move |source| DocumentError::UserData { stage, source };
        let provisioning =
            osm_render::user_data(spec, Stage::Provisioning, &values).map_err(failed("provisioning"))?;
        let mac = key.mac(&[provisioning.as_bytes()]);
        let provisioning_secret = osm_api::names::provisioning_secret_name(pool, &mac);
        let provisioning_digest = digest::sha256_hex(provisioning.as_bytes());
        for late in &spec.late_bound {
            let value = match late.kind {
                LateBoundKind::ProvisioningSecretName => provisioning_secret.as_str(),
                LateBoundKind::ProvisioningDigest => provisioning_digest.as_str(),
                LateBoundKind::ApiToken | LateBoundKind::KubeletToken => NO_TOKEN,
                _ => continue,
            };
            values.insert(late.id.clone(), value.to_owned());
        }
        let bootstrap =
            osm_render::user_data(spec, Stage::Bootstrap, &values).map_err(failed("bootstrap"))?;
        let document_mac = key.mac(&[bootstrap.as_bytes()]);
        Ok(Self {
            spec: spec.clone(),
            values,
            provisioning,
            provisioning_digest,
            provisioning_secret,
            document_mac,
        })
    }

    /// Everything that is late-bound, tokens included.
    fn values(&self, tokens: &Tokens) -> LateValues {
        let mut values = self.values.clone();
        for late in &self.spec.late_bound {
            let token = match late.kind {
                LateBoundKind::ApiToken => &tokens.api,
                LateBoundKind::KubeletToken => &tokens.kubelet,
                _ => continue,
            };
            values.insert(late.id.clone(), token.clone());
        }
        values
    }

    /// The script of an edge pool, with its tokens; `None` for others.
    ///
    /// # Errors
    /// As [`Self::bootstrap`].
    pub fn edge_script(&self, tokens: &Tokens) -> Result<Option<String>, DocumentError> {
        let failed = |source| DocumentError::UserData {
            stage: "edge",
            source,
        };
        osm_render::edge_script(&self.spec, &self.values(tokens)).map_err(failed)
    }

    /// The bootstrap document with its tokens.
    ///
    /// # Errors
    /// A document that is larger than the cloud takes.
    pub fn bootstrap(&self, tokens: &Tokens) -> Result<String, DocumentError> {
        let values = self.values(tokens);
        let failed = |source| DocumentError::UserData {
            stage: "bootstrap",
            source,
        };
        let text = osm_render::user_data(&self.spec, Stage::Bootstrap, &values).map_err(failed)?;
        if let (Some(cloud), Some(os)) = (&self.spec.cloud_provider, self.spec.os_name)
            && let Some(limit) = osm_render::size_limit(cloud.name, os)
        {
            let bytes = limit.count(&text);
            if bytes > limit.bytes {
                return Err(DocumentError::TooLarge {
                    bytes,
                    limit: limit.bytes,
                });
            }
        }
        Ok(text)
    }
}

/// MAC of everything that a pool's documents are made from, tokens excepted: unchanged means that the content need
/// not be looked at.
pub fn inputs_mac(key: &HmacKey, digest: &str, late_bound: &[LateBound], values: &LateValues) -> String {
    let mut parts: Vec<&[u8]> = vec![digest.as_bytes()];
    for late in late_bound {
        parts.push(late.id.as_bytes());
        parts.push(values.get(&late.id).map_or(b"".as_slice(), String::as_bytes));
    }
    key.mac(&parts)
}
