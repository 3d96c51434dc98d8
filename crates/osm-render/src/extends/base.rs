//! A base: where it is stored, and what it contains.

use osm_api::profile::OperatingSystemProfileSpec;

use crate::library;

/// Where a profile is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProfileKey {
    pub namespace: String,
    pub name: String,
}

impl ProfileKey {
    /// As people write it who look from `namespace`.
    pub(super) fn seen_from(&self, namespace: &str) -> String {
        if self.namespace == namespace {
            self.name.clone()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }
}

/// A profile that another one extends.
#[derive(Clone, Debug, PartialEq)]
pub struct Base {
    pub key: ProfileKey,
    /// Its spec, as it was written.
    pub spec: OperatingSystemProfileSpec,
}

impl Base {
    /// Its name in `spec.extends`.
    pub(crate) fn name(&self) -> &str {
        &self.key.name
    }

    /// Whether it belongs to the library of this release, and is not stored anywhere.
    pub(crate) fn is_of_library(&self) -> bool {
        self.key.name.starts_with(library::PART_PREFIX)
    }
}
