//! How much one pool allocates while it is rendered and its documents are written, compared with the recorded table `allocations.toml`.
//!
//! `cargo xtask bless --cost` runs this test with `OSM_BLESS=1`, which writes the table instead of comparing it.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::alloc::System;
use std::collections::BTreeMap;
use std::path::Path;

use osm_api::profile::{CloudProvider, OperatingSystemProfileSpec};
use osm_api::{Pool, Settings};
use osm_render::{
    Profile, Stage, compile, defaults, placeholders, resolve, sample_pools, stand_in_cluster, user_data,
};
use serde::{Deserialize, Serialize};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Allocated {
    /// Allocations and reallocations.
    allocations: usize,
    bytes: usize,
}

/// By profile and step.
type Table = BTreeMap<String, BTreeMap<String, Allocated>>;

/// One test alone in this file: another one would allocate at the same time.
#[test]
fn a_pool_allocates_no_more_than_recorded() {
    let now: Table = ["osp-ubuntu", "osp-flatcar"]
        .into_iter()
        .map(|name| (name.to_owned(), measure(name)))
        .collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/allocations.toml");
    if std::env::var_os("OSM_BLESS").is_some() {
        let header =
            "# Written by `cargo xtask bless --cost`, for one pool on AWS with a compiled profile.\n\n";
        std::fs::write(&path, format!("{header}{}", toml::to_string(&now).unwrap())).unwrap();
        return;
    }
    let recorded: Table = toml::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let mut worse = Vec::new();
    for (profile, steps) in &now {
        for (step, now) in steps {
            let Some(then) = recorded.get(profile).and_then(|steps| steps.get(step)) else {
                worse.push(format!("{profile}, {step}: {now:?}, not recorded"));
                continue;
            };
            if now.allocations > then.allocations || now.bytes > then.bytes {
                worse.push(format!("{profile}, {step}: {now:?}, recorded {then:?}"));
            } else if now != then {
                println!(
                    "{profile}, {step} became better: {now:?}, recorded {then:?}: run `cargo xtask bless --cost`"
                );
            }
        }
    }
    assert!(
        worse.is_empty(),
        "more is allocated than recorded; if that is meant, run `cargo xtask bless --cost` and read the diff:\n{}",
        worse.join("\n")
    );
}

fn measure(name: &str) -> BTreeMap<String, Allocated> {
    let profiles = defaults();
    let (_, spec) = profiles.iter().find(|(known, _)| known == name).unwrap();
    let (profile, pool) = (compiled(spec), pool(spec));
    let (settings, cluster) = (Settings::default(), stand_in_cluster());
    let render = || profile.render(&pool, &settings, &cluster).unwrap();
    let rendered = render(); // what is remembered from now on
    let values = placeholders(&rendered.spec);
    let write = |stage| user_data(&rendered.spec, stage, &values).unwrap();
    BTreeMap::from([
        ("render".to_owned(), allocated(render)),
        (
            "bootstrap document".to_owned(),
            allocated(|| write(Stage::Bootstrap)),
        ),
        (
            "provisioning document".to_owned(),
            allocated(|| write(Stage::Provisioning)),
        ),
    ])
}

fn compiled(spec: &OperatingSystemProfileSpec) -> Profile {
    compile(&resolve(spec).unwrap()).unwrap()
}

fn pool(spec: &OperatingSystemProfileSpec) -> Pool {
    let mut pools = sample_pools(spec).into_iter().map(|(_, pool)| pool);
    pools
        .find(|pool| pool.cloud_provider == CloudProvider::Aws)
        .unwrap()
}

fn allocated<T>(work: impl Fn() -> T) -> Allocated {
    drop(work()); // fills caches
    let region = Region::new(ALLOCATOR);
    let result = work();
    let change = region.change();
    drop(result);
    Allocated {
        allocations: change.allocations + change.reallocations,
        bytes: change.bytes_allocated,
    }
}
