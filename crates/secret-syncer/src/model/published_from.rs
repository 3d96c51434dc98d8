//! What a pool is published from, by reference: the digest of the rendered content, and which state of which objects its documents take
//! values from. No value is hashed, so nothing can be guessed from names and annotations.

use std::collections::BTreeSet;

use osm_api::digest;

/// A release that fills in documents differently has another number here, so that every pool is compared once.
pub const DOCUMENT_FORMAT: u32 = 1;

/// Value of the annotation [`osm_api::names::PUBLISHED_FROM`]. `sources`: [`SourceData::reference`](crate::model::source::SourceData) of
/// each object.
pub fn published_from(digest: &str, sources: &BTreeSet<String>) -> String {
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    digest::sha256_hex(format!("{DOCUMENT_FORMAT}\n{digest}\n{}", sources.join("\n")).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_content_or_state_of_a_source_is_another_reference() {
        let of = |digest, sources: &[&str]| {
            published_from(
                digest,
                &sources.iter().map(|source| (*source).to_owned()).collect(),
            )
        };
        let all = [
            of("d", &[]),
            of("e", &[]),
            of("d", &["Secret/n/s=u/1"]),
            of("d", &["Secret/n/s=u/2"]),
            of("d", &["Secret/n/s=u/1", "Secret/n/t=u/1"]),
        ];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:?}");
        assert_eq!(of("d", &["a", "b"]), of("d", &["b", "a"]));
    }
}
