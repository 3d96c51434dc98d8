//! The library: parts of templates that profiles share.
//!
//! A part is a file of the folder `library`, and is included by its name there: `{{> lib/kubelet.yaml}}`. A
//! resolved profile contains the text of every part that it needs, so that it renders the same whatever later
//! releases do to the library.
//!
//! Comments in these files are for those who read them here. Machines get none: see [`without_comments()`].
//!
//! A file of the folder `library/bases` has both stages of a profile, for several operating systems. A
//! profile takes it over by its name there: `extends: lib/redhat`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use osm_api::OperatingSystemProfileSpec;
use osm_api::digest;
use osm_api::profile::{ProfileConfig, ProvisioningUtility, TemplateEngine};
use osm_user_data::scripts::{OSM_APPLY, without_comments};
use osm_user_data::stage::Stage;
use osm_user_data::yaml;

use crate::error::{ProfileError, invalid};
use crate::template_walk;

/// The names of parts start with this. Those of a profile's own templates can't.
pub(crate) const PART_PREFIX: &str = "lib/";

/// A part by its file.
macro_rules! part {
    ($file:literal) => {
        (
            concat!("lib/", $file),
            include_str!(concat!("../library/", $file)),
        )
    };
}

/// Texts of parts by their names. They are written in Handlebars.
static PARTS: LazyLock<BTreeMap<&str, String>> = LazyLock::new(|| {
    FILES
        .into_iter()
        .map(|(name, text)| (name, without_comments(text)))
        .collect()
});

/// Names and texts of these files, in order.
const FILES: [(&str, &str); 39] = [
    part!("apt.sh"),
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
    part!("logind.conf"),
    part!("mirrors.sh"),
    part!("modules.sh"),
    part!("networkd.conf"),
    part!("networkmanager.conf"),
    ("lib/osm-apply.py", OSM_APPLY),
    part!("osm-bootstrap.service"),
    part!("osm-bootstrap.sh"),
    part!("osm-extras.service"),
    part!("osm-extras.sh"),
    part!("osm-health.service"),
    part!("osm-health.sh"),
    part!("osm-health.timer"),
    part!("osm-kubelet-env.sh"),
    part!("osm-ovf-network.service"),
    part!("osm-ovf-network.sh"),
    part!("osm-setup.service"),
    part!("osm-setup.sh"),
    part!("persist.sh"),
    part!("proxy.env"),
    part!("proxy.sh"),
    part!("python.sh"),
    part!("reboot.rules"),
    part!("start-over.sh"),
    part!("swap.sh"),
    part!("sysctl.conf"),
    part!("upgrade.sh"),
];

/// What profiles can extend: names and texts, in order.
const BASES: [(&str, &str); 1] = [("lib/redhat", include_str!("../library/bases/redhat.yaml"))];

/// The part of a profile that a file of the library has.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Stages {
    template_engine: TemplateEngine,
    provisioning_utility: ProvisioningUtility,
    bootstrap_config: ProfileConfig,
    provisioning_config: ProfileConfig,
}

/// The profile of this name that `extending` takes over. It has the system, the cloud providers and the
/// versions of `extending`.
///
/// # Errors
/// There is none of this name.
pub(crate) fn base(
    name: &str,
    extending: &OperatingSystemProfileSpec,
) -> Result<OperatingSystemProfileSpec, ProfileError> {
    let read = |text| serde_json::from_value::<Stages>(yaml::read(text).ok()?.pop()?).ok();
    // A test makes sure that all of them can be read.
    let found = BASES.iter().find(|(known, _)| *known == name);
    let Some(stages) = found.and_then(|(_, text)| read(text)) else {
        let known = BASES.map(|(name, _)| name).join(", ");
        let problem = format!("there is no profile {name:?} in the library, which has {known}");
        return Err(invalid("extends", problem));
    };
    Ok(OperatingSystemProfileSpec {
        extends: None,
        template_engine: stages.template_engine,
        provisioning_utility: stages.provisioning_utility,
        bootstrap_config: stages.bootstrap_config,
        provisioning_config: stages.provisioning_config,
        ..extending.clone()
    })
}

/// Version of the library: `sha.` and 12 hex characters of the hash of all parts.
pub fn library_version() -> String {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let files = PARTS.iter().map(|(name, text)| (*name, text.as_str()));
        let parts: BTreeMap<&str, &str> = files.chain(BASES).collect();
        // Text always has a JSON form.
        let hash: String = digest::of(&parts).unwrap_or_default().chars().take(12).collect();
        format!("sha.{hash}")
    });
    VERSION.clone()
}

/// Adds every part of the library that the templates of a profile include, directly or by way of other parts,
/// to its templates. Returns whether they include any.
///
/// # Errors
/// A template of the profile's own whose name is the library's.
pub(crate) fn add_parts(spec: &mut OperatingSystemProfileSpec) -> Result<bool, ProfileError> {
    if spec.template_engine != TemplateEngine::Handlebars {
        return Ok(false);
    }
    let mut includes_any = false;
    for stage in Stage::ALL {
        let mut missing = BTreeSet::new();
        let config = stage.config(spec);
        for (path, name, text) in template_walk::templates(stage.field(), config) {
            if name.starts_with(PART_PREFIX) {
                let problem = format!(
                    "names that start with {PART_PREFIX} are reserved for the library; use another name"
                );
                return Err(invalid(path, problem));
            }
            missing.extend(included(text));
        }
        for source in template_walk::texts(stage.field(), config) {
            missing.extend(included(source.text));
        }
        includes_any |= !missing.is_empty();
        let templates = &mut stage.config_mut(spec).templates;
        while let Some(name) = missing.pop_first() {
            let text = find(name).unwrap_or_default();
            missing.extend(included(text).filter(|other| !templates.contains_key(*other)));
            templates.insert(name.to_owned(), text.to_owned());
        }
    }
    Ok(includes_any)
}

/// The text of a part.
pub(crate) fn find(name: &str) -> Option<&'static str> {
    PARTS.get(name).map(String::as_str)
}

/// The parts that a text includes itself. A tag in a comment counts, too: a part more does no harm.
fn included(text: &str) -> impl Iterator<Item = &'static str> {
    let names = text.split("{{").skip(1).filter_map(|tag| {
        let name = tag
            .trim_start_matches(['~', ' ', '\t', '\n', '\r'])
            .strip_prefix('>')?;
        name.trim_start().split([' ', '\t', '\n', '\r', '~', '}']).next()
    });
    names.filter_map(|name| PARTS.get_key_value(name).map(|(name, _)| *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_a_part() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/library");
        let names = |folder: &str| {
            let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
            let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
            let names = files.map(|file| file.file_name().into_string().unwrap());
            names
                .map(|name| format!("{PART_PREFIX}{name}"))
                .collect::<BTreeSet<_>>()
        };
        let mut parts = names(folder);
        // The script for machines of provider edge has it, too.
        parts.insert("lib/osm-apply.py".to_owned());
        assert_eq!(parts, FILES.map(|(name, _)| name.to_owned()).into());
        let bases = BASES.map(|(name, _)| format!("{name}.yaml"));
        assert_eq!(names(&format!("{folder}/bases")), bases.into());
        for (name, text) in PARTS.iter() {
            assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{name}");
            // A name that is misspelled is missing here.
            assert_eq!(included(text).count(), text.matches("{{> lib/").count(), "{name}");
        }
    }

    #[test]
    fn machines_get_no_comments_of_ours() {
        let script = "#!/bin/sh\n# Why.\nset -u\n\n  # {{why}}\n  # Why\n#not\ncat <<'EOF' # now\n# text\nEOF\n# Why.\nx='# no'\n";
        let kept = "#!/bin/sh\nset -u\n\n  # {{why}}\n#not\ncat <<'EOF' # now\n# text\nEOF\nx='# no'\n";
        assert_eq!(without_comments(script), kept);
        for (name, text) in PARTS.iter() {
            let comment = text.lines().find(|line| line.trim_start().starts_with("# "));
            assert_eq!(comment, None, "{name}");
            // Only what quotes its end is known to be a here document.
            assert!(!text.replace("<<'", "").contains("<<"), "{name}");
        }
    }

    #[test]
    fn the_version_is_short_and_fits_a_label() {
        let version = library_version();
        assert_eq!((version.len(), version.get(..4)), (16, Some("sha.")));
    }
}
