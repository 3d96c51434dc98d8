//! The record in the annotations of a bootstrap Secret about what is published, and a digest which shows that
//! these and its data are as they were written together.
//!
//! What a pool is published from is recorded by reference: the digest of the rendered content, and which
//! state of which objects its documents take values from. No value is hashed, so nothing can be guessed from
//! names and annotations.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use osm_api::{digest, names};

/// What the bootstrap Secret or the status records about what is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Name of the provisioning Secret.
    pub provisioning_secret: String,
    /// Its uid; `None` where it is not known.
    pub provisioning_uid: Option<String>,
    pub revision: String,
    /// Digest of the content of the config; empty where it is not known.
    pub digest: String,
    /// As the annotation [`osm_api::names::PUBLISHED_FROM`]; empty where it is not known, so that new content
    /// is published.
    pub published_from: String,
}

/// Annotations that decisions depend on. All Secrets that one publish replaces have the same.
pub const RECORDED: [&str; 7] = [
    names::MACHINE_DEPLOYMENT_REVISION,
    names::PUBLISHED_FROM,
    names::PROVISIONING_SECRET,
    names::PROVISIONING_SECRET_UID,
    names::BOUND_TO,
    names::EXPIRES,
    names::RENEW_AT,
];

/// Value of [`names::CONTENT_DIGEST_KEY`] of a Secret with this data and these annotations, 64 hex
/// characters.
pub fn content_digest<'a>(
    data: &BTreeMap<String, ByteString>,
    annotation: impl Fn(&'static str) -> Option<&'a str>,
) -> String {
    let data = data
        .iter()
        .filter(|(name, _)| *name != names::CONTENT_DIGEST_KEY)
        .flat_map(|(name, value)| [name.as_bytes(), value.0.as_slice()]);
    let annotations = RECORDED.map(|name| annotation(name).unwrap_or_default().as_bytes());
    of_parts(data.chain(annotations))
}

/// SHA-256 of the names and values of data entries, 64 hex characters.
pub fn of_entries(data: &BTreeMap<String, ByteString>) -> String {
    of_parts(
        data.iter()
            .flat_map(|(name, value)| [name.as_bytes(), value.0.as_slice()]),
    )
}

/// SHA-256 of the parts, each preceded by its length so that parts can't run into each other.
pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut all = Vec::new();
    for part in parts {
        all.extend((part.len() as u64).to_be_bytes());
        all.extend(part);
    }
    digest::sha256_hex(&all)
}

/// A release that fills in documents differently has another number here, so that every pool is compared
/// once.
pub const DOCUMENT_FORMAT: u32 = 1;

/// Value of the annotation [`osm_api::names::PUBLISHED_FROM`]. `sources`:
/// [`SourceData::reference`](crate::model::source::SourceData) of each object.
pub fn published_from(digest: &str, sources: &BTreeSet<String>) -> String {
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    digest::sha256_hex(format!("{DOCUMENT_FORMAT}\n{digest}\n{}", sources.join("\n")).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_depends_on_data_and_annotations_and_not_on_itself() {
        let data = |entries: &[(&str, &str)]| -> BTreeMap<_, _> {
            let entry =
                |(name, value): &(&str, &str)| ((*name).to_owned(), ByteString(value.as_bytes().to_vec()));
            entries.iter().map(entry).collect()
        };
        let digest = |entries: &[(&str, &str)], expires| {
            content_digest(&data(entries), |name| {
                Some(expires).filter(|_| name == names::EXPIRES)
            })
        };
        let one = digest(&[("a", "b")], "soon");
        assert_eq!(
            one,
            digest(&[("a", "b"), (names::CONTENT_DIGEST_KEY, &one)], "soon")
        );
        for (entries, expires) in [
            (&[("a", "c")][..], "soon"),
            (&[("ab", "")], "soon"),
            (&[], "soon"),
            (&[("a", "b")], "later"),
        ] {
            assert_ne!(one, digest(entries, expires), "{entries:?} {expires}");
        }
    }

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
