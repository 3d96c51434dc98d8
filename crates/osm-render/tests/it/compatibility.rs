//! Compares docs/compatibility.md with the default profiles, the kubelets and the chart.

use std::collections::BTreeSet;

use osm_judges::{KUBELET_MINORS, upstream_osm_profiles};
use osm_render::{default_manifests, defaults, sample_pools};

/// Cells of the table below a heading, with its head.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    const PAGE: &str = include_str!("../../../../docs/compatibility.md");
    let (_, section) = PAGE.split_once(&format!("\n## {heading}\n")).unwrap();
    let rows = section.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows
        .take_while(|line| line.starts_with('|'))
        .filter(|row| !row.starts_with("|---"));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

#[test]
fn every_default_profile_is_listed_with_the_versions_of_its_manifest_and_its_clouds() {
    let profiles = table("Operating systems");
    let names: BTreeSet<String> = defaults().into_iter().map(|(name, _)| name).collect();
    let listed: BTreeSet<String> = profiles[1..].iter().map(|row| row[0].to_owned()).collect();
    assert_eq!(listed, names);
    for row in &profiles[1..] {
        let file = format!("{}.yaml", row[0]);
        let (_, text) = default_manifests().find(|(name, _)| *name == file).unwrap();
        let start = format!("# Default profile for {}", row[2]);
        assert!(text.starts_with(&start), "{}: {start}", row[0]);
    }
    let mut found = BTreeSet::new();
    let clouds = table("Clouds");
    for row in &clouds[1..] {
        let systems = clouds[0].iter().zip(row).skip(1);
        let supported = systems.filter(|(_, tested)| **tested != "–");
        found.extend(supported.map(|(system, _)| format!("{system} {}", row[0])));
    }
    let expected = defaults().into_iter().flat_map(|(_, spec)| {
        let os = spec.os_name;
        let clouds = spec.supported_cloud_providers.into_iter();
        clouds.map(move |cloud| format!("{os} {}", cloud.name))
    });
    assert_eq!(found, expected.collect());
}

#[test]
fn kubelets_are_those_of_the_samples_and_the_judges_and_the_chart_refuses_older_clusters() {
    let kubelets = table("Kubelets");
    let listed: Vec<&str> = kubelets[1..].iter().map(|row| row[0]).collect();
    assert_eq!(listed, KUBELET_MINORS);
    let (_, spec) = defaults().remove(0);
    let minors = sample_pools(&spec)
        .into_iter()
        .map(|(_, pool)| pool.kubelet_version.minor);
    let ends = [listed[0], listed[listed.len() - 1]].map(|minor| minor[2..].parse::<u64>().unwrap());
    assert_eq!(minors.collect::<BTreeSet<_>>(), BTreeSet::from(ends));

    let [worker, management] =
        [1, 2].map(|row| table("Kubernetes")[row][1].strip_suffix(" or newer").unwrap());
    let chart = include_str!("../../../../charts/operating-system-manager/Chart.yaml");
    assert!(chart.contains(&format!("kubeVersion: \">={management}.0-0\"")));
    let checks = include_str!("../../../../charts/operating-system-manager/templates/checks.yaml");
    assert!(checks.contains(&format!("semverCompare \"<{worker}.0-0\"")));
    assert_eq!(worker, listed[0]);
}

/// One that it can't read keeps it from starting, so there would be no way back to it.
#[test]
fn the_upstream_osm_can_read_every_default_profile() {
    let profiles: Vec<(&str, &str)> = default_manifests().collect();
    upstream_osm_profiles(&profiles).unwrap();
    let list = "spec: {provisioningConfig: {modules: {runcmd: [[echo, a]]}}}";
    let complaints = upstream_osm_profiles(&[("list", list)]).unwrap_err();
    assert!(complaints.to_string().contains("runcmd"), "{complaints}");
}
