//! Inputs that are bytes, as text: a change of one digit changes one byte, and seeds can be read.

use osm_api::digest;

/// The bytes of all digits in a text. Other characters are left out.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits
        .chunks_exact(2)
        .filter_map(|pair| u8::try_from(pair.iter().fold(0, |byte, digit| byte << 4 | digit)).ok())
        .collect()
}

/// The digits of bytes.
pub(crate) fn text(bytes: &[u8]) -> String {
    digest::hex(bytes)
}
