//! What default profiles give is what is written down in tests/golden.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn documents_are_those_that_are_written_down() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut expected = BTreeSet::new();
    for (name, text) in osm_render::goldens().unwrap() {
        let written = fs::read_to_string(folder.join(&name)).unwrap_or_default();
        let differing = text.lines().zip(written.lines()).position(|(now, then)| now != then);
        let line = differing.unwrap_or_else(|| text.lines().count().min(written.lines().count())) + 1;
        assert!(
            text == written,
            "{name}, line {line}: is now {:?}: if that is meant, run `cargo xtask bless` and read the diff",
            text.lines().nth(line - 1).unwrap_or_default()
        );
        expected.insert(folder.join(name));
    }
    let folders = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let found: BTreeSet<_> =
        folders.flat_map(|folder| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path())).collect();
    assert_eq!(found, expected, "what no default profile gives any more is to be deleted");
}
