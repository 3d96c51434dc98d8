//! Which program this process runs.

use std::fs::File;

use osm_api::digest;

/// Hex digits of the hash that are kept.
const DIGITS: usize = 16;

/// The start of the SHA-256 of this program's file, as [`osm_api::names::PROGRAM`] records it. It is empty where the file can't be read: then
/// the process compares every document once.
pub fn digest_of_this() -> String {
    let digest = std::env::current_exe()
        .and_then(File::open)
        .and_then(digest::sha256_hex_of);
    match digest {
        Ok(mut digest) => {
            digest.truncate(DIGITS);
            digest
        }
        Err(error) => {
            tracing::warn!(%error, "the program's file can't be read, so every document is compared once");
            String::new()
        }
    }
}
