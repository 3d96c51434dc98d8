//! [`osm_fuzz::go_template`], for libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| osm_fuzz::go_template::run(input));
