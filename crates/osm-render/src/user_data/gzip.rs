//! Compressed texts.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

/// RFC 1952: deflate, no flags, no time, compressed as well as can be, on no system that is known.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255];

/// Compresses texts, one after the other: what it keeps its state in is far larger than most of them, and takes longer to make
/// than they to compress.
pub(super) struct Gzip(DeflateEncoder<Vec<u8>>);

impl Gzip {
    pub(super) fn new() -> Self {
        Self(DeflateEncoder::new(HEADER.to_vec(), Compression::best()))
    }

    /// A text, compressed, as base64.
    pub(super) fn base64(&mut self, text: &str) -> Option<String> {
        // Writing to a Vec can't fail.
        self.0.write_all(text.as_bytes()).ok()?;
        let mut bytes = self.0.reset(HEADER.to_vec()).ok()?;
        let mut sum = Crc::new();
        sum.update(text.as_bytes());
        bytes.extend(sum.sum().to_le_bytes());
        bytes.extend(sum.amount().to_le_bytes());
        Some(STANDARD.encode(bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::{GzDecoder, GzEncoder};

    use super::*;

    #[test]
    fn each_text_is_compressed_as_if_it_was_the_first() {
        let mut gzip = Gzip::new();
        let long = crate::late_bound::filler("a", 200_000);
        for text in [
            "",
            "a",
            "some text, and some text\n",
            &long,
            "some text",
            &"x y ".repeat(50_000),
            "",
        ] {
            let compressed = STANDARD.decode(gzip.base64(text).unwrap()).unwrap();
            let mut alone = Vec::new();
            GzEncoder::new(text.as_bytes(), Compression::best())
                .read_to_end(&mut alone)
                .unwrap();
            assert_eq!(compressed, alone);
            let mut back = String::new();
            GzDecoder::new(compressed.as_slice())
                .read_to_string(&mut back)
                .unwrap();
            assert_eq!(back, text);
        }
    }
}
