//! Resolves a profile that may extend others.

use osm_api::OperatingSystemProfileSpec;
use osm_api::profile::AcceptedProfile;
use osm_render::{Base, ProfileError, ProfileKey};

/// Resolves the profile of this name. `find` returns the spec of another one by its name: manifests may leave namespaces out, so that
/// only names count.
///
/// # Errors
/// The first mistake of the profile, or a profile that it extends and that is not found.
pub fn resolve(
    name: &str,
    spec: &OperatingSystemProfileSpec,
    find: impl Fn(&str) -> Option<OperatingSystemProfileSpec>,
) -> Result<AcceptedProfile, ProfileError> {
    let key = |name: &str| ProfileKey {
        namespace: String::new(),
        name: name.to_owned(),
    };
    let base = |_: &str, name: &str| {
        let spec = find(name)?;
        let key = key(name);
        Some(Base { key, spec })
    };
    osm_render::resolve_on(spec, &osm_render::bases(&key(name), spec, base)?)
}
