//! The memory that validating a default profile takes. osp-controller validates all of them when it starts, and the allocator keeps the
//! space that small objects took. `cargo test -p osm-render --test footprint -- --nocapture` prints it.

#![allow(clippy::unwrap_used)]

use std::alloc::System;
use std::hint::black_box;

use osm_api::gzip;
use peakmem_alloc::{PeakMemAlloc, PeakMemAllocTrait};

#[global_allocator]
static ALLOCATOR: PeakMemAlloc<System> = PeakMemAlloc::new(System);

/// Most bytes while one profile is validated.
const MAX_PEAK: usize = 3 << 19;

/// Most bytes that a profile leaves behind which is not the first.
const MAX_LEFT: usize = 16 << 10;

/// More than anything here takes at a time.
const PROBE: usize = 256 << 20;

/// Bytes that are taken at most while `work` runs, and after it.
fn measured(work: impl FnOnce()) -> (usize, usize) {
    ALLOCATOR.reset_peak_memory();
    work();
    let peak = ALLOCATOR.get_peak_memory();
    drop(black_box(Vec::<u8>::with_capacity(PROBE)));
    (peak, ALLOCATOR.get_peak_memory().saturating_sub(PROBE))
}

#[test]
fn a_default_profile_takes_little_memory_and_leaves_none_behind() {
    let profiles: Vec<_> = osm_render::defaults()
        .into_iter()
        .map(|(name, spec)| (name, osm_render::resolve(&spec).unwrap()))
        .collect();
    // Some things are made only once.
    for (_, accepted) in &profiles {
        osm_render::validate::dry_run(accepted).unwrap();
    }
    gzip::release();
    for (name, accepted) in &profiles {
        let (peak, left) = measured(|| {
            osm_render::validate::dry_run(accepted).unwrap();
            gzip::release();
        });
        println!("{name}: at most {peak} bytes, afterwards {left}");
        assert!(peak <= MAX_PEAK && left <= MAX_LEFT, "{name}: {peak} {left}");
    }
}
