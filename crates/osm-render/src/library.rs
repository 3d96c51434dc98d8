//! The library: parts of templates that profiles share.
//!
//! A part is a file of the folder `library`, and is included by its name there: `{{> lib/kubelet.yaml}}`. A resolved
//! profile holds the text of every part that it needs, so that it renders the same for ever, whatever becomes of the library.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use osm_api::digest;
use osm_api::profile::ProfileConfig;

use crate::error::{ProfileError, TemplatePosition};
use crate::{Stage, handlebars, texts};

/// What the names of parts start with, and those of a profile's own templates can't.
pub(crate) const PREFIX: &str = "lib/";

/// A part by its file.
macro_rules! part {
    ($file:literal) => {
        (concat!("lib/", $file), include_str!(concat!("../library/", $file)))
    };
}

/// Names and texts, in order.
const PARTS: [(&str, &str); 30] = [
    part!("bootstrap-kubelet.conf"),
    part!("clock.sh"),
    part!("containerd.service"),
    part!("containerd.toml"),
    part!("downloads.sh"),
    part!("explain.sh"),
    part!("flatcar-fetch.sh"),
    part!("journald.conf"),
    part!("kubelet-settings.conf"),
    part!("kubelet.service"),
    part!("kubelet.yaml"),
    part!("mirrors.sh"),
    part!("networkd.conf"),
    part!("networkmanager.conf"),
    part!("osm-apply.py"),
    part!("osm-bootstrap.service"),
    part!("osm-bootstrap.sh"),
    part!("osm-extras.service"),
    part!("osm-extras.sh"),
    part!("osm-health.service"),
    part!("osm-health.sh"),
    part!("osm-health.timer"),
    part!("osm-kubelet-env.sh"),
    part!("osm-setup.service"),
    part!("osm-setup.sh"),
    part!("persist.sh"),
    part!("proxy.env"),
    part!("proxy.sh"),
    part!("python.sh"),
    part!("sysctl.conf"),
];

/// Version of the library: `sha.` and 12 hex characters of the hash of all parts.
pub fn library_version() -> String {
    static VERSION: LazyLock<String> = LazyLock::new(version);
    VERSION.clone()
}

fn version() -> String {
    let parts: BTreeMap<&str, &str> = PARTS.into_iter().collect();
    // Text always has a JSON form.
    let hash: String = digest::of(&parts).unwrap_or_default().chars().take(12).collect();
    format!("sha.{hash}")
}

/// `config` with every part of the library that its templates include, directly or by way of other parts, among its
/// templates. `None`: they include none.
///
/// # Errors
/// A part that there is not, or a template of the profile's own whose name is the library's.
pub(crate) fn add(stage: Stage, config: &ProfileConfig) -> Result<Option<ProfileConfig>, ProfileError> {
    let mut missing = BTreeSet::new();
    for (place, name, text) in texts::templates(stage.field(), config) {
        if name.starts_with(PREFIX) {
            return Err(ProfileError::Invalid {
                path: place,
                problem: format!("names that start with {PREFIX} are those of the library: use another one"),
            });
        }
        missing.extend(named_in(&place, text)?);
    }
    texts::map(stage.field(), config, &mut |place, text| {
        missing.extend(named_in(&place.to_string(), text)?);
        Ok::<_, ProfileError>(String::new())
    })?;
    if missing.is_empty() {
        return Ok(None);
    }
    let mut config = config.clone();
    while let Some(name) = missing.pop_first() {
        let text = find(&name).unwrap_or_default();
        missing
            .extend(named_in(&name, text)?.into_iter().filter(|name| !config.templates.contains_key(name)));
        config.templates.insert(name, text.to_owned());
    }
    Ok(Some(config))
}

/// The text of a part.
pub(crate) fn find(name: &str) -> Option<&'static str> {
    PARTS.into_iter().find_map(|(known, text)| (known == name).then_some(text))
}

/// The parts that a text includes itself. One that can't be parsed includes none: what is wrong is found out and told
/// when it is compiled.
fn named_in(place: &str, text: &str) -> Result<Vec<String>, ProfileError> {
    // Parsing is what takes time.
    if !text.contains(PREFIX) {
        return Ok(Vec::new());
    }
    let mut names = handlebars::included(text).unwrap_or_default();
    names.retain(|name| name.starts_with(PREFIX));
    for name in &names {
        if find(name).is_none() {
            let line = text.lines().position(|line| line.contains(name.as_str())).map(|line| line + 1);
            let known: Vec<&str> = PARTS.into_iter().map(|(name, _)| name).collect();
            return Err(ProfileError::Template {
                position: TemplatePosition { template: place.to_owned(), line, column: None },
                problem: format!("there is no {name:?} in the library, which has {}", known.join(", ")),
            });
        }
    }
    Ok(names.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_a_part() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/library");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| format!("{PREFIX}{}", entry.unwrap().file_name().into_string().unwrap()))
            .collect();
        files.sort();
        assert_eq!(files, PARTS.map(|(name, _)| name));
        for (name, text) in PARTS {
            assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{name}");
            let parts = named_in(name, text).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(
                parts.is_empty(),
                !text.contains("{{> lib/"),
                "{name} must be a template that can be parsed"
            );
        }
    }

    #[test]
    fn the_version_is_short_and_fits_a_label() {
        let version = library_version();
        assert_eq!((version.len(), version.get(..4)), (16, Some("sha.")));
    }
}
