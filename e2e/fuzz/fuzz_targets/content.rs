//! [`osm_fuzz::content`], for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(init: osm_fuzz::let_panics_be_caught(), |input: &[u8]| osm_fuzz::content::run(input));
