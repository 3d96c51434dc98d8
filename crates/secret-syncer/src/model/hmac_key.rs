//! The installation's HMAC key.
//!
//! A plain hash of a filled document would let an attacker guess passwords from names and annotations; a MAC does not. The key is
//! kept in a Secret of its own. Losing it is harmless: every pool is then published once more.

use osm_api::digest;
use ring::hmac::{self, HMAC_SHA256};

/// Name of the data entry that holds the key in its Secret.
pub const DATA_KEY: &str = "key";

/// 32 secret bytes. `Debug` does not show them.
#[derive(Clone, PartialEq, Eq)]
pub struct HmacKey([u8; 32]);

impl std::fmt::Debug for HmacKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HmacKey(…)")
    }
}

impl HmacKey {
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// `None` unless there are exactly 32 bytes.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// For storing the key; never for a log or a status.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// HMAC-SHA-256 of the parts, each preceded by its length so that parts can't run into each other; 64 hex characters.
    pub fn mac(&self, parts: &[&[u8]]) -> String {
        let mut mac = hmac::Context::with_key(&hmac::Key::new(HMAC_SHA256, &self.0));
        for part in parts {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        digest::hex(mac.sign().as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macs_depend_on_key_and_parts_and_debug_is_silent() {
        let (a, b) = (HmacKey([1; 32]), HmacKey([2; 32]));
        // Stored names and annotations hold these.
        assert_eq!(
            a.mac(&[b"x"]),
            "27862cc3788aaf195c7234f6cfe7c8d5169fe5f4aba46685ec9fe6840275a9cc"
        );
        assert_ne!(a.mac(&[b"x"]), b.mac(&[b"x"]));
        assert_ne!(
            a.mac(&[b"xy", b"z"]),
            a.mac(&[b"x", b"yz"]),
            "parts are kept apart"
        );
        assert!(!format!("{a:?}").contains('1'));
        assert!(HmacKey::of(b"short").is_none());
    }
}
