//! Reads provisioning Secrets as machines do.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use osm_api::{digest, gzip, names};

use crate::ControlPlane;
use crate::fixtures::UserData;

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

/// Fetches the provisioning document as a machine does, with the token and the digest of its user data.
///
/// # Errors
/// When the server refuses, or the digest is another one.
pub async fn fetch(control_plane: &ControlPlane, user_data: &UserData) -> Result<String> {
    let machine = control_plane.client(&user_data.api_token)?;
    let secrets = Api::<Secret>::namespaced(machine, names::CLOUD_INIT_SETTINGS);
    let document = document(secrets.get(&user_data.provisioning_secret).await?)?;
    ensure!(
        digest::sha256_hex(document.as_bytes()) == user_data.provisioning_digest,
        "the digest does not fit"
    );
    Ok(document)
}
