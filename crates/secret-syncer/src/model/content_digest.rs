//! Shows that a Secret that is replaced in one write is as it was written: a SHA-256 over its data and the annotations that decisions
//! depend on. It is in the data of the Secret.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use osm_api::{digest, names};

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

/// Value of [`names::CONTENT_DIGEST_KEY`] of a Secret with this data and these annotations, 64 hex characters.
pub fn of<'a>(
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
            of(&data(entries), |name| {
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
}
