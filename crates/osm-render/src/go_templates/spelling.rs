//! Spells late-bound values in the data of Go templates.
//!
//! A marker only means its value if it is copied into the output as it stands. Go templates have some 200
//! functions, and most of them change what they are given. So each stage is rendered twice, with markers and
//! with other texts in their places. If both results differ in anything but those texts, a function has
//! looked at a value or changed it.

use osm_user_data::late_bound::{Encoding, Marker};

/// What stands in the place of a late-bound value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// The marker itself.
    Marker,
    /// A text that has another length, another start and another end.
    Other,
}

const OTHER_START: &str = "@@other-text-for-osm-late{";
const OTHER_END: &str = "}@@";

impl Spelling {
    pub(super) fn of(self, id: &str, encoding: Encoding) -> String {
        let id = id.to_owned();
        let marker = Marker { id, encoding };
        match self {
            Self::Marker => marker.to_string(),
            Self::Other => format!("{OTHER_START}{marker}{OTHER_END}"),
        }
    }
}

/// A text that was rendered with [`Spelling::Other`], as it should be with [`Spelling::Marker`].
pub(super) fn with_markers(other: &str) -> String {
    if !other.contains(OTHER_START) {
        return other.to_owned();
    }
    other.replace(OTHER_START, "").replace(OTHER_END, "")
}
