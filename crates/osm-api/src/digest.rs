//! Digests of what we are about to write. They are stored and compared, never recomputed from what the API
//! server returns, because the server adds defaults.

use std::io::{self, BufWriter, Write};

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use serde::Serialize;

/// Lower-case hex of `bytes`, two characters a byte.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 0xf])
        .filter_map(|nibble| DIGITS.get(usize::from(nibble)))
        .map(|digit| char::from(*digit))
        .collect()
}

pub fn sha256(bytes: &[u8]) -> [u8; SHA256_OUTPUT_LEN] {
    let mut hash = [0; SHA256_OUTPUT_LEN];
    let made = ring::digest::digest(&SHA256, bytes);
    hash.iter_mut()
        .zip(made.as_ref())
        .for_each(|(to, from)| *to = *from);
    hash
}

/// SHA-256 of `bytes`, 64 hex characters.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&sha256(bytes))
}

/// SHA-256 of `value` as JSON whose keys have the order of its fields, 64 hex characters. The JSON is never in memory as a whole.
///
/// # Errors
/// As [`of`].
pub fn sha256_hex_of_json<T: Serialize>(value: &T) -> Result<String, serde_json::Error> {
    struct Hash(Context);

    impl Write for Hash {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.update(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut hash = Hash(Context::new(&SHA256));
    let mut buffered = BufWriter::new(&mut hash);
    serde_json::to_writer(&mut buffered, value)?;
    buffered.flush().map_err(serde_json::Error::io)?;
    drop(buffered);
    Ok(hex(hash.0.finish().as_ref()))
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
        assert_eq!(
            sha256_hex(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn json_that_is_hashed_while_it_is_written_has_the_digest_of_its_text() {
        for value in [
            json!(null),
            json!({"a": "x".repeat(20_000), "b": [1, {"c": "ü"}]}),
        ] {
            let text = serde_json::to_string(&value).unwrap();
            assert_eq!(sha256_hex_of_json(&value).unwrap(), sha256_hex(text.as_bytes()));
        }
    }
}
