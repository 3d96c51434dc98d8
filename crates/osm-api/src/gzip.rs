//! Compresses texts. The header has no name and no time, so that a text always yields the same.

use std::io::{Read as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;

/// Documents that have to be as small as possible.
pub const BEST: Gzip = Gzip(9);
/// What is only stored.
pub const USUAL: Gzip = Gzip(6);

/// Compresses at this level.
pub struct Gzip(u32);

impl Gzip {
    pub fn bytes(&self, text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(self.0));
        // Writes to memory don't fail.
        let written = encoder.write_all(text.as_bytes());
        written.and_then(|()| encoder.finish()).unwrap_or_default()
    }

    /// A text, compressed, as Base64.
    pub fn base64(&self, text: &str) -> String {
        STANDARD.encode(self.bytes(text))
    }
}

/// Why bytes can't be unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    /// They are of another form, or their checksum differs.
    #[error("it is not text that gzip has compressed")]
    NotText,
    /// The text is longer than it may be.
    #[error("it has more than {most} bytes")]
    TooLarge {
        /// Bytes that it may have.
        most: usize,
    },
}

/// The text that was compressed, if it has at most so many bytes. No more than that is unpacked.
///
/// # Errors
/// Bytes that are not a text, and texts that are longer.
pub fn unpack(bytes: &[u8], most: usize) -> Result<String, UnpackError> {
    let mut text = String::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    match GzDecoder::new(bytes).take(limit).read_to_string(&mut text) {
        Ok(read) if read > most => Err(UnpackError::TooLarge { most }),
        Ok(_) => Ok(text),
        Err(_) => Err(UnpackError::NotText),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_unpacked_up_to_its_limit() {
        for gzip in [BEST, USUAL] {
            for text in ["", "some text, and some text\n", &"x y ".repeat(50_000)] {
                let compressed = gzip.bytes(text);
                assert_eq!(unpack(&compressed, text.len()).unwrap(), text);
                if let Some(most) = text.len().checked_sub(1) {
                    assert_eq!(unpack(&compressed, most), Err(UnpackError::TooLarge { most }));
                }
            }
        }
    }

    #[test]
    fn what_is_no_compressed_text_is_refused() {
        let packed = USUAL.bytes("some text, and some text");
        let mut altered = packed.clone();
        altered[15] ^= 4;
        for bytes in [b"".as_slice(), b"text", &packed[..packed.len() - 1], &altered] {
            assert_eq!(unpack(bytes, 1000), Err(UnpackError::NotText), "{bytes:?}");
        }
    }
}
