//! The command that measures a fleet, with few clusters.

use std::process::Command;

use serde_json::Value;

#[test]
fn fifty_clusters_are_in_step_and_take_no_watches_of_their_own_on_the_seed() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("figures.json");
    // It fails unless all clusters and pools are served: with one cluster, after a cold start with all, and after
    // a change of all.
    let status = Command::new(env!("CARGO_BIN_EXE_osm-dev"))
        .args([
            "fleet",
            "--dev",
            "-n",
            "50",
            "--pools",
            "1",
            "--minutes",
            "0",
            "--changes",
            "5",
            "--json",
        ])
        .arg(&file)
        .status()
        .unwrap();
    assert!(status.success());
    let report: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let figures = &report["sizes"][0];
    assert_eq!(figures["clusters"], 50);
    let watches = figures["values"]["watches on the seed"].as_f64().unwrap();
    assert!((10.0..=20.0).contains(&watches), "{watches}");
}
