//! Counts a document against the limit of its cloud.

use osm_api::gzip;

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// The document as it is.
    Raw,
    /// The document after gzip, as machine-controller sends it.
    Gzip,
    /// The document after base64.
    Base64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeLimit {
    pub bytes: usize,
    pub counted: Counted,
}

impl SizeLimit {
    /// Bytes of `document` as this limit counts them, if these are more than it allows.
    pub fn exceeded_by(&self, document: &str) -> Option<usize> {
        // What has fewer bytes before gzip needs no gzip to be counted.
        let is_small = self.counted == Counted::Gzip && document.len() <= self.bytes;
        let bytes = (!is_small).then(|| self.count(document))?;
        (bytes > self.bytes).then_some(bytes)
    }

    /// Bytes of `document` as this limit counts them.
    pub fn count(&self, document: &str) -> usize {
        match self.counted {
            Counted::Raw => document.len(),
            Counted::Base64 => document.len().div_ceil(3) * 4,
            Counted::Gzip => gzip::USUAL.bytes(document).len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_exceeds_a_limit_by_what_the_limit_counts() {
        let noise = crate::late_bound::filler("noise", 1000);
        for (counted, document, exceeded_by) in [
            (Counted::Raw, "x".repeat(600), None),
            (Counted::Raw, "x".repeat(601), Some(601)),
            (Counted::Base64, "x".repeat(450), None),
            (Counted::Base64, "x".repeat(451), Some(604)),
            (Counted::Gzip, "x".repeat(5000), None),
            (
                Counted::Gzip,
                noise.clone(),
                Some(gzip::USUAL.bytes(&noise).len()),
            ),
        ] {
            let limit = SizeLimit { bytes: 600, counted };
            assert_eq!(
                limit.exceeded_by(&document),
                exceeded_by,
                "{counted:?} {}",
                document.len()
            );
        }
    }
}
