//! What the targets start from is good, and every property holds for it.

use std::fs;
use std::panic::catch_unwind;
use std::path::PathBuf;

use osm_api::OperatingSystemProfileSpec;
use osm_fuzz::{TARGETS, profile};
use osm_render::{Base, ProfileKey};

#[test]
fn every_property_holds_for_the_seeds_and_their_beginnings() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(!seeds.is_empty(), "{}", target.name);
        for seed in seeds {
            for share in [1, 2, 3] {
                let input = &seed.as_bytes()[..seed.len() / share];
                let held = catch_unwind(|| (target.run)(input));
                assert!(
                    held.is_ok(),
                    "{}: {}",
                    target.name,
                    String::from_utf8_lossy(input)
                );
            }
        }
    }
}

#[test]
fn what_the_targets_start_from_is_read_and_rendered() {
    for seed in profile::seeds() {
        let spec: OperatingSystemProfileSpec = serde_json::from_str(&seed).unwrap();
        let small = profile::seeds()
            .first()
            .map(|small| serde_json::from_str(small).unwrap());
        let key = ProfileKey::default();
        let base = small
            .filter(|_| spec.extends.is_some())
            .map(|spec| Base { key, spec });
        let accepted = osm_render::resolve_on(&spec, base.as_slice()).unwrap();
        osm_render::dry_run(&osm_render::compile(&accepted).unwrap()).unwrap();
    }
    assert_eq!(
        profile::seeds().len(),
        5,
        "cloud-init, both of Flatcar's, one that extends the first, and Ubuntu's own"
    );
}

/// `OSM_FUZZ_SEEDS` names the folder that the fuzzer starts from: one folder for each target, with its seeds.
#[test]
fn seeds_are_written_where_the_fuzzer_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let root = std::env::var_os("OSM_FUZZ_SEEDS").map_or(folder.path().to_owned(), PathBuf::from);
    for target in TARGETS {
        let seeds = root.join(target.name).join("seeds");
        // Those that are there may be of another commit.
        let _ = fs::remove_dir_all(&seeds);
        fs::create_dir_all(&seeds).unwrap();
        for (number, seed) in (target.seeds)().iter().enumerate() {
            fs::write(seeds.join(number.to_string()), seed).unwrap();
        }
    }
    assert_eq!(fs::read_dir(&root).unwrap().count(), TARGETS.len());
}
