//! `docs/performance.md`: the sections that this command writes, each between two markers.

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::origin::Origin;
use crate::generated;

/// A part of the page that a command writes.
#[derive(Clone, Copy, Debug)]
pub enum Section {
    /// `cargo xtask bench --write`.
    Pools,
    /// `cargo xtask bench --rendering --write`.
    Rendering,
}

impl Section {
    fn markers(self) -> (&'static str, &'static str) {
        match self {
            Self::Pools => (
                "<!-- pools: written by `cargo xtask bench --write` -->",
                "<!-- end of pools -->",
            ),
            Self::Rendering => (
                "<!-- rendering: written by `cargo xtask bench --rendering --write` -->",
                "<!-- end of rendering -->",
            ),
        }
    }
}

/// Replaces the section of the page.
///
/// # Errors
/// A page without the markers, or one that can't be read or written.
pub fn write(section: Section, origin: &Origin, tables: &str) -> Result<()> {
    let path = page();
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let (begin, end) = section.markers();
    let text = generated::between(&text, begin, end, &format!("\n{origin}\n{tables}\n"))
        .with_context(|| path.display().to_string())?;
    generated::settle(
        &generated::stale([(path, text)]),
        false,
        "the page is up to date",
        "",
    )
}

fn page() -> PathBuf {
    crate::root().join("docs/performance.md")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_place_for_every_section() {
        let text = std::fs::read_to_string(page()).unwrap();
        for section in [Section::Pools, Section::Rendering] {
            let (begin, end) = section.markers();
            generated::between(&text, begin, end, "").unwrap();
        }
    }
}
