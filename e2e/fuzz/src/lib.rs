//! Fuzz targets for the languages and formats that others write.
//!
//! | Target | What others write |
//! |---|---|
//! | [`profile`] | the spec of an OperatingSystemProfile |
//! | [`template`] | the text of one template |
//! | [`go_template`] | the text of one Go template |
//! | [`csr`] | the request of a certificate |
//!
//! None may panic, hang, give other bytes the second time, or repeat a value in a message. What judges or
//! renders a profile may not exceed the bounds of memory, nor, in an optimised build, of time; nor may what
//! reads a request. `e2e/fuzz/run.sh` runs them with coverage as the guide, on the stable compiler. Tests run
//! what the targets start from.

pub mod csr;
pub mod go_template;
pub mod profile;
pub mod template;

mod bounds;
mod canary;
mod hex;
mod pipeline;

/// Something that reads what others write.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name in `OSM_FUZZ_TARGET`.
    pub name: &'static str,
    /// Reads an input and panics where a property doesn't hold.
    pub run: fn(&[u8]),
    /// Inputs to start from, most of them good.
    pub seeds: fn() -> Vec<String>,
}

impl Target {
    const fn new(name: &'static str, run: fn(&[u8]), seeds: fn() -> Vec<String>) -> Self {
        Self { name, run, seeds }
    }
}

pub const TARGETS: [Target; 4] = [
    Target::new("profile", profile::run, profile::seeds),
    Target::new("template", template::run, template::seeds),
    Target::new("go-template", go_template::run, go_template::seeds),
    Target::new("csr", csr::run, csr::seeds),
];

/// Takes away libFuzzer's panic hook, which ends the process even where a panic is caught, as the template
/// engine does with those of its parser. An uncaught panic still ends it.
pub fn let_panics_be_caught() {
    drop(std::panic::take_hook());
}
