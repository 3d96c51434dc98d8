//! `spec.extends`: a profile that builds on another one, its *base*.
//!
//! [`bases`] finds the chain of bases, and [`compose()`] puts the profiles together: additive, and whatever two profiles set
//! differently is an error unless the upper one replaces or removes it. The result is an ordinary spec without any of the fields
//! that are about a base.

mod chain;
mod compose;
mod modules;
mod stage;

use osm_api::OperatingSystemProfileSpec;

use crate::library;

pub use chain::{ProfileKey, bases};
pub(crate) use compose::compose;

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

/// A field that is wrong, without the profile that it is in.
struct Problem {
    /// Path inside the spec.
    path: String,
    problem: String,
}

impl Problem {
    fn new(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            problem: problem.into(),
        }
    }
}
