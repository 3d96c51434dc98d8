//! The installation's HMAC key.
//!
//! A plain hash of a filled document would let passwords be guessed from names and annotations; a MAC does not. The
//! key is a Secret of its own, which may be lost without harm: every pool is then published once more.

use std::collections::BTreeMap;

use hmac::{Hmac, Mac};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use osm_api::{digest, names};
use osm_runtime::request::failed;
use osm_runtime::status;
use sha2::Sha256;

use crate::state::{State, lock};
use crate::view::{KEY, ROLE_KEY};
use crate::{Error, undo};

/// 32 secret bytes. `Debug` does not show them.
#[derive(Clone, PartialEq, Eq)]
pub struct DigestKey([u8; 32]);

impl std::fmt::Debug for DigestKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DigestKey(…)")
    }
}

impl DigestKey {
    /// A key from its bytes; `None` where there are not exactly 32.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// HMAC-SHA-256 of the parts, each preceded by its length, 64 hex characters.
    pub fn mac(&self, parts: &[&[u8]]) -> String {
        // HMAC takes keys of every length, so that the fallback is never taken.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return String::new() };
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        digest::hex(&mac.finalize().into_bytes())
    }
}

/// The key: the one this process already uses, without any request, else that of [`ensure`].
///
/// # Errors
/// As [`ensure`].
pub async fn get(state: &State) -> Result<DigestKey, Error> {
    let used = lock(&state.digest_key).clone();
    match used {
        Some(used) => Ok(used),
        None => ensure(state).await,
    }
}

/// Sees to it that a key stands in the cluster, and goes by it: the one that stands there, else the one this process already
/// uses, else a new one. So replicas agree, whichever of them was first.
///
/// # Errors
/// Requests that failed; [`Error::ForeignSecret`] where the name is taken.
pub async fn ensure(state: &State) -> Result<DigestKey, Error> {
    let name = names::digest_key_secret_name(&state.installation);
    let _one_at_a_time = state.writes_key.lock().await;
    let used = lock(&state.digest_key).clone();
    let standing = state.secrets.get(&state.key_in_namespace(&name)).and_then(|secret| secret.key.clone());
    let key = match standing {
        Some(standing) => standing,
        None => {
            let new = || DigestKey(state.context.surroundings.bytes());
            store(state, &name, used.clone().unwrap_or_else(new)).await?
        }
    };
    *lock(&state.digest_key) = Some(key.clone());
    if used.is_some_and(|used| used != key) {
        tracing::warn!(
            secret = name,
            "somebody has put another HMAC key there: everything is published once more"
        );
        state.wake(|_| true);
    }
    Ok(key)
}

/// Stores `key`; one that stands there already is kept. The name is made for this installation, so that a Secret whose label
/// was taken off is ours.
async fn store(state: &State, name: &str, key: DigestKey) -> Result<DigestKey, Error> {
    let labels = BTreeMap::from([
        (names::INSTALLATION.to_owned(), state.installation.clone()),
        (names::ROLE.to_owned(), ROLE_KEY.to_owned()),
    ]);
    let data = |key: &DigestKey| BTreeMap::from([(KEY.to_owned(), ByteString(key.0.to_vec()))]);
    let metadata =
        ObjectMeta { name: Some(name.to_owned()), labels: Some(labels.clone()), ..ObjectMeta::default() };
    let secret =
        Secret { metadata, data: Some(data(&key)), type_: Some("Opaque".to_owned()), ..Secret::default() };
    let refused = match state.secret_api().create(&PostParams::default(), &secret).await {
        Ok(created) => {
            state.wrote_secret(&created);
            return Ok(key);
        }
        Err(error) => error,
    };
    if !status::already_exists(&refused) {
        return Err(failed("creating the HMAC key")(refused).into());
    }
    let mut standing = state.secret_api().get(name).await.map_err(failed("reading the HMAC key"))?;
    let owner = standing.metadata.labels.as_ref().and_then(|labels| labels.get(names::INSTALLATION));
    if owner.is_some_and(|owner| *owner != state.installation) {
        return Err(Error::ForeignSecret { name: name.to_owned() });
    }
    let stored = standing.data.as_ref().and_then(|data| data.get(KEY)).and_then(|key| DigestKey::of(&key.0));
    let wanted = stored.clone().unwrap_or(key);
    if standing.immutable == Some(true) && stored.as_ref() != Some(&wanted) {
        let uid = standing.metadata.uid.as_deref().unwrap_or_default();
        undo::delete(&state.secret_api(), name, uid, None, "the HMAC key").await?;
        let created = state.secret_api().create(&PostParams::default(), &secret).await;
        state.wrote_secret(&created.map_err(failed("the HMAC key"))?);
        return Ok(wanted);
    }
    standing.data = Some(data(&wanted));
    standing.metadata.labels = Some(labels);
    let replaced = state.secret_api().replace(name, &PostParams::default(), &standing).await;
    state.wrote_secret(&replaced.map_err(failed("the HMAC key"))?);
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macs_depend_on_key_and_parts_and_debug_is_silent() {
        let (a, b) = (DigestKey([1; 32]), DigestKey([2; 32]));
        assert_eq!(a.mac(&[b"x"]), a.mac(&[b"x"]));
        assert_ne!(a.mac(&[b"x"]), b.mac(&[b"x"]));
        assert_ne!(a.mac(&[b"xy", b"z"]), a.mac(&[b"x", b"yz"]), "parts are kept apart");
        assert!(!format!("{a:?}").contains('1'));
        assert!(DigestKey::of(b"short").is_none());
    }
}
