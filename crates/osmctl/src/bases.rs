//! Resolves profiles that may extend others.

use std::collections::BTreeMap;

use osm_api::profile::AcceptedProfile;
use osm_api::{OperatingSystemProfile, OperatingSystemProfileSpec};
use osm_render::{Base, ProfileError, ProfileKey};

use crate::input::Item;

/// The profiles that others can extend: those that are written somewhere, and the built-in ones.
pub struct Bases(BTreeMap<String, OperatingSystemProfileSpec>);

impl Bases {
    /// Those that are `written`, and the built-in ones of other names.
    pub fn of(written: &[Item<OperatingSystemProfile>]) -> Self {
        let written = written.iter().filter_map(|item| {
            let name = item.value.metadata.name.clone()?;
            Some((name, item.value.spec.clone()))
        });
        Self(osm_render::defaults().into_iter().chain(written).collect())
    }

    /// Resolves the profile of this name. Manifests may leave namespaces out, so that only names count.
    ///
    /// # Errors
    /// The first mistake of the profile, or a profile that it extends and that is not found.
    pub fn resolve(
        &self,
        name: &str,
        spec: &OperatingSystemProfileSpec,
    ) -> Result<AcceptedProfile, ProfileError> {
        let key = |name: &str| ProfileKey {
            namespace: String::new(),
            name: name.to_owned(),
        };
        let base = |_: &str, name: &str| {
            let spec = self.0.get(name)?.clone();
            let key = key(name);
            Some(Base { key, spec })
        };
        osm_render::resolve_on(spec, &osm_render::bases(&key(name), spec, base)?)
    }
}
