//! [`osm_fuzz::profile`], for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(init: osm_fuzz::let_panics_be_caught(), |input: &[u8]| osm_fuzz::profile::run(input));
