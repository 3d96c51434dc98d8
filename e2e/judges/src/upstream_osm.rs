//! Judges profiles by the types of the upstream OSM, whose controller osm-testkit builds from the same
//! module.

use std::path::PathBuf;
use std::process::Command;

use crate::complaint::{Complaints, judge_once};
use crate::containerd::without_places;
use crate::program::{ask, go_program, go_source};

/// The folder of the upstream OSM's Go module.
#[must_use]
pub fn upstream_osm_module() -> PathBuf {
    go_source("upstream-osm")
}

/// Judges profiles (name, text) by whether the upstream OSM can read them.
///
/// # Errors
/// What is wrong with them.
pub fn upstream_osm_profiles(documents: &[(&str, &str)]) -> Result<(), Complaints> {
    judge_once("types of the upstream OSM", documents, |texts| {
        let program = go_program("upstream-osm", "go.mod")?;
        let answers: Vec<Vec<String>> = ask(&mut Command::new(program), &texts)?;
        Ok(without_places(answers))
    })
}
