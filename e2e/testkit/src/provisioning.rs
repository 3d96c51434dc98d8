//! Reads provisioning Secrets as machines do.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use osm_api::{gzip, names};

/// Most bytes of a document.
const MAX_BYTES: usize = 4 << 20;

/// The document of a provisioning Secret, whether it is compressed or not.
///
/// # Errors
/// A Secret without a document, and a document that is not text.
pub fn document(secret: Secret) -> Result<String> {
    let mut data = secret.data.unwrap_or_default();
    if let Some(compressed) = data.remove(names::CLOUD_CONFIG_GZIP_KEY) {
        return gzip::unpack(&compressed.0, MAX_BYTES).context(names::CLOUD_CONFIG_GZIP_KEY);
    }
    let plain = data.remove(names::CLOUD_CONFIG_KEY).context("no document")?;
    Ok(String::from_utf8(plain.0)?)
}
