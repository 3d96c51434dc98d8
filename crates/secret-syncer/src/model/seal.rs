//! The seal on a bootstrap Secret: a MAC over its document and the annotations that decisions rest on. One is left out:
//! [`names::PROGRAM`] only decides whether documents are compared before they are renewed, and whoever alters it delays no more than that.

use osm_api::names;

use crate::model::hmac_key::HmacKey;
use crate::model::pairs::Pairs;
use crate::model::view::SecretView;

/// Annotations of a bootstrap Secret that decisions rest on.
pub const SEALED: [&str; 8] = [
    names::MACHINE_DEPLOYMENT_REVISION,
    names::PUBLISHED_FROM,
    names::INPUTS_MAC,
    names::DOCUMENT_MAC,
    names::PROVISIONING_SECRET,
    names::BOUND_TO,
    names::EXPIRES,
    names::RENEW_AT,
];

/// Value of [`names::CONTENT_MAC`] for a document with this SHA-256 and these annotations. A change to either breaks the seal.
pub fn seal(key: &HmacKey, content_digest: &str, annotations: &Pairs) -> String {
    let mut parts: Vec<&[u8]> = vec![b"content", content_digest.as_bytes()];
    parts.extend(
        SEALED
            .iter()
            .map(|name| annotations.get(name).unwrap_or_default().as_bytes()),
    );
    key.mac(&parts)
}

/// Whether the Secret carries the seal that belongs to its document and annotations. Without a document it has none.
pub fn is_sealed(key: &HmacKey, secret: &SecretView) -> bool {
    let expected = secret
        .content
        .as_deref()
        .map(|content| seal(key, content, &secret.meta.annotations));
    expected.is_some() && secret.meta.annotation(names::CONTENT_MAC) == expected.as_deref()
}
