//! Compressed texts. The header has no name and no time, so that a text always yields the same.

use std::io::{Read as _, Write as _};
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::bufread::GzDecoder;
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

/// Documents that have to be as small as possible.
pub static BEST: Gzip = Gzip::new(9);
/// What is only stored.
pub static USUAL: Gzip = Gzip::new(6);

/// Frees the memory of both. The next text takes as much again.
pub fn release() {
    BEST.release();
    USUAL.release();
}

/// Compresses texts, one after the other. Its state is far larger than most texts, and takes longer to make than they take to compress.
/// If each text had a state of its own, they would also leave gaps in the memory of the process.
pub struct Gzip {
    level: u32,
    state: Mutex<Option<DeflateEncoder<Vec<u8>>>>,
}

impl Gzip {
    const fn new(level: u32) -> Self {
        Self {
            level,
            state: Mutex::new(None),
        }
    }

    /// RFC 1952: deflate, no flags, no time, on no system that is known.
    fn header(&self) -> Vec<u8> {
        let extra = if self.level == 9 { 2 } else { 0 };
        vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, extra, 255]
    }

    pub fn bytes(&self, text: &str) -> Vec<u8> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Where it panics, the next text gets a new one.
        let mut encoder = state
            .take()
            .unwrap_or_else(|| DeflateEncoder::new(self.header(), Compression::new(self.level)));
        // Writes to memory don't fail.
        let compressed = encoder
            .write_all(text.as_bytes())
            .and_then(|()| encoder.reset(self.header()));
        *state = Some(encoder);
        drop(state);
        let mut bytes = compressed.unwrap_or_default();
        let mut sum = Crc::new();
        sum.update(text.as_bytes());
        bytes.extend(sum.sum().to_le_bytes());
        bytes.extend(sum.amount().to_le_bytes());
        bytes
    }

    fn release(&self) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = None;
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
    use flate2::write::GzEncoder;

    use super::*;

    #[test]
    fn each_text_is_compressed_as_if_it_was_the_first() {
        let long: String = (0..40_000).map(|number| format!("{number},")).collect();
        for (gzip, level) in [(&BEST, Compression::best()), (&USUAL, Compression::default())] {
            for text in [
                "",
                "a",
                "some text, and some text\n",
                &long,
                "some text",
                &"x y ".repeat(50_000),
                "",
            ] {
                let compressed = gzip.bytes(text);
                let mut alone = GzEncoder::new(Vec::new(), level);
                alone.write_all(text.as_bytes()).unwrap();
                assert_eq!(compressed, alone.finish().unwrap());
                assert_eq!(unpack(&compressed, text.len()).unwrap(), text);
                let too_large = text
                    .len()
                    .checked_sub(1)
                    .map(|most| (unpack(&compressed, most), UnpackError::TooLarge { most }));
                assert!(too_large.is_none_or(|(unpacked, error)| unpacked == Err(error)));
            }
        }
    }

    #[test]
    fn a_text_after_a_release_is_compressed_as_before() {
        let gzip = Gzip::new(6);
        let before = gzip.bytes("some text");
        assert!(gzip.state.lock().unwrap().is_some());
        gzip.release();
        assert!(gzip.state.lock().unwrap().is_none());
        assert_eq!(gzip.bytes("some text"), before);
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
