//! Digests of what we are about to write. They are stored and compared, never recomputed from what the API
//! server returns, because the server adds defaults.

use ring::digest::{SHA256, SHA256_OUTPUT_LEN};
use serde::Serialize;

/// Lower-case hex of `bytes`, two characters a byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn sha256(bytes: &[u8]) -> [u8; SHA256_OUTPUT_LEN] {
    let digest = ring::digest::digest(&SHA256, bytes);
    digest.as_ref().try_into().unwrap_or_default()
}

/// SHA-256 of `bytes`, 64 hex characters.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&sha256(bytes))
}

/// SHA-256 of `value` as JSON with sorted object keys, 64 hex characters.
///
/// # Errors
/// Only where `value` has no JSON form, such as a map with keys that are not strings.
pub fn of<T: Serialize>(value: &T) -> Result<String, serde_json::Error> {
    Ok(sha256_hex(canonical_json(value)?.as_bytes()))
}

/// `value` as JSON with sorted object keys: what [`of`] hashes.
///
/// # Errors
/// As [`of`].
pub fn canonical_json<T: Serialize>(value: &T) -> Result<String, serde_json::Error> {
    let mut tree = serde_json::to_value(value)?;
    tree.sort_all_objects();
    serde_json::to_string(&tree)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn order_of_keys_does_not_count_and_content_does() {
        let digest = of(&json!({"a": 1, "b": {"c": 2, "d": 3}})).unwrap();
        assert_eq!(digest, of(&json!({"b": {"d": 3, "c": 2}, "a": 1})).unwrap());
        assert_ne!(digest, of(&json!({"b": {"d": 3, "c": 2}, "a": 2})).unwrap());
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_hex(b"abc"), expected);
    }
}
