//! The profiles that come with this program, and the versions that they carry.

use osm_api::digest;
use osm_api::profile::{
    OperatingSystem, OperatingSystemProfile, OperatingSystemProfileSpec, ProvisioningUtility,
};
use osm_user_data::yaml;

/// Name of a built-in file and its text.
macro_rules! built_in {
    ($file:literal) => {
        ($file, include_str!(concat!("../../../profiles/", $file)))
    };
}

/// Names of the built-in files and their texts.
const BUILT_IN: [(&str, &str); 7] = [
    built_in!("osp-amzn2.yaml"),
    built_in!("osp-centos.yaml"),
    built_in!("osp-flatcar-cloud-init.yaml"),
    built_in!("osp-flatcar.yaml"),
    built_in!("osp-rhel.yaml"),
    built_in!("osp-rockylinux.yaml"),
    built_in!("osp-ubuntu.yaml"),
];

/// The built-in profiles by name. A test makes sure that all of them can be read.
pub fn defaults() -> Vec<(String, OperatingSystemProfileSpec)> {
    BUILT_IN.iter().filter_map(|(_, text)| read(text).ok()).collect()
}

/// The manifests of the built-in profiles: names of their files, and their texts.
pub fn default_manifests() -> impl Iterator<Item = (&'static str, &'static str)> {
    BUILT_IN.into_iter()
}

/// Name of the profile of an operating system, which a pool uses unless it names one. Flatcar has one for
/// each utility. The system is given by machine-controller's name for it.
pub fn default_name(os: &str, utility: ProvisioningUtility) -> String {
    if os == OperatingSystem::Flatcar.as_str() && utility == ProvisioningUtility::CloudInit {
        format!("osp-{os}-cloud-init")
    } else {
        format!("osp-{os}")
    }
}

/// Reads a manifest of one profile.
fn read(text: &str) -> Result<(String, OperatingSystemProfileSpec), String> {
    let document = yaml::read(text)?.into_iter().next().ok_or("holds no document")?;
    let profile: OperatingSystemProfile =
        serde_json::from_value(document).map_err(|error| error.to_string())?;
    Ok((profile.metadata.name.ok_or("has no name")?, profile.spec))
}

/// Hash of a profile's content, 12 hex characters; the build metadata of its version does not count.
fn content_hash(spec: &OperatingSystemProfileSpec) -> String {
    let content = OperatingSystemProfileSpec {
        version: core_version(&spec.version).to_owned(),
        ..spec.clone()
    };
    // A spec always has a JSON form.
    digest::of(&content)
        .unwrap_or_default()
        .chars()
        .take(12)
        .collect()
}

/// The version that a profile with this content carries: `v1.2.3+sha.<content hash>`.
pub fn blessed_version(spec: &OperatingSystemProfileSpec) -> String {
    format!("{}+sha.{}", core_version(&spec.version), content_hash(spec))
}

fn core_version(version: &str) -> &str {
    version.split_once('+').map_or(version, |(core, _)| core)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_profile_is_read_and_carries_the_hash_of_its_content() {
        assert_eq!(defaults().len(), BUILT_IN.len());
        for (file, text) in BUILT_IN {
            let (name, spec) = read(text).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert_eq!(format!("{name}.yaml"), file);
            let expected = default_name(spec.os_name.as_str(), spec.provisioning_utility);
            assert_eq!(name, expected);
            assert_eq!(
                spec.version,
                blessed_version(&spec),
                "{file}: the content changed: raise the version, then run `cargo xtask bless`"
            );
        }
    }

    #[test]
    fn another_content_has_another_hash() {
        let (_, spec) = read(BUILT_IN[0].1).unwrap();
        let mut changed = spec.clone();
        changed.os_version.push('x');
        assert_ne!(content_hash(&changed), content_hash(&spec));
        changed.clone_from(&spec);
        changed.version = format!("{}+sha.other", core_version(&spec.version));
        assert_eq!(content_hash(&changed), content_hash(&spec));
    }
}
