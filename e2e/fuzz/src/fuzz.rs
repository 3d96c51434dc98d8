//! The program of all fuzz targets, for libFuzzer. `OSM_FUZZ_TARGET` names the one that runs.
#![no_main]

use std::sync::OnceLock;

use osm_fuzz::{TARGETS, Target};

static TARGET: OnceLock<Target> = OnceLock::new();

/// Finds the target. libFuzzer has no other place for a message than the one of a process that ends.
fn find() {
    osm_fuzz::let_panics_be_caught();
    let name = std::env::var("OSM_FUZZ_TARGET").unwrap_or_default();
    let Some(target) = TARGETS.iter().find(|target| target.name == name) else {
        let known = TARGETS.map(|target| target.name).join(", ");
        eprintln!("OSM_FUZZ_TARGET is \"{name}\"; the targets are {known}");
        std::process::exit(2);
    };
    let _ = TARGET.set(*target);
}

libfuzzer_sys::fuzz_target!(init: find(), |input: &[u8]| {
    if let Some(target) = TARGET.get() {
        (target.run)(input);
    }
});
