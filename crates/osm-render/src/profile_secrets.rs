//! Values of Secrets that a profile places.
//!
//! A template can place such a value only if the text of the profile contains its whole id as a literal. So
//! neither a template, nor the data of a pool, can compute which Secret is read. secret-syncer reads the
//! Secret only if the settings list it.

use std::collections::BTreeMap;

use osm_api::config::{LateBound, LateBoundKind};
use osm_api::names::{is_data_key, is_dns_subdomain};
use osm_user_data::late_bound::{SECRET_PREFIX, of_object};

use crate::engine::Sources;

/// The values that the texts of a stage name, by id.
pub(crate) fn named(sources: &Sources<'_>) -> BTreeMap<String, LateBound> {
    let partials = sources.partials.iter().map(|(_, text)| *text);
    let texts = sources.texts.iter().map(|source| source.text);
    partials.chain(texts).flat_map(literals).collect()
}

/// The ids that are literals of a text, in quotes. Outside of tags they do no harm: no template asks for them
/// there.
fn literals(text: &str) -> impl Iterator<Item = (String, LateBound)> {
    text.match_indices(SECRET_PREFIX).filter_map(move |(at, _)| {
        let (before, after) = (text.get(..at)?, text.get(at..)?);
        let quote = before.chars().next_back().filter(|c| matches!(c, '"' | '\''))?;
        let (id, _) = after.split_once(quote)?;
        Some((id.to_owned(), late_bound(id)?))
    })
}

fn late_bound(id: &str) -> Option<LateBound> {
    let mut parts = id.strip_prefix(SECRET_PREFIX)?.split('/');
    let (namespace, name, key) = (parts.next()?, parts.next()?, parts.next()?);
    let is_valid = is_dns_subdomain(namespace) && is_dns_subdomain(name) && is_data_key(key);
    let is_whole = is_valid && parts.next().is_none();
    is_whole.then(|| of_object(id, LateBoundKind::ProfileSecretKey, [namespace, name, key]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_literals_name_a_secret() {
        let ids = |text: &str| literals(text).map(|(id, _)| id).collect::<Vec<_>>();
        for text in [
            "{{late \"secret/kube-system/vpn/key_1\" as=\"raw\"}}",
            "{{late 'secret/kube-system/vpn/key_1' as=\"raw\"}}",
        ] {
            assert_eq!(ids(text), ["secret/kube-system/vpn/key_1"], "{text}");
        }
        for text in [
            "{{late (concat \"secret/kube-system/\" pool.name \"/key\") as=\"raw\"}}",
            "{{late \"secret/kube-system/vpn\" as=\"raw\"}}",
            "{{late \"secret/kube-system/vpn/a/b\" as=\"raw\"}}",
            "{{late \"secret/Kube/vpn/key\" as=\"raw\"}}",
            "{{late \"secret/kube-system/vpn/k y\" as=\"raw\"}}",
            "{{late \"my-secret/kube-system/vpn/key\" as=\"raw\"}}",
            "{{late secret/kube-system/vpn/key as=\"raw\"}}",
            "\"secret/kube-system/vpn/key",
        ] {
            assert_eq!(ids(text), [""; 0], "{text}");
        }
    }
}
