//! Files that the additions to a profile consist of.

use osm_api::profile::{FileContent, ProfileFile};

pub(super) fn lines(lines: impl Iterator<Item = impl std::fmt::Display>) -> String {
    lines.map(|line| format!("{line}\n")).collect()
}

pub(super) fn file(path: &str, permissions: i32, data: String) -> ProfileFile {
    ProfileFile {
        path: path.to_owned(),
        permissions,
        content: FileContent::of_text(data),
        replace: false,
        remove: false,
    }
}
