//! Compares docs/compatibility.md with the default profiles, the kubelets and the chart.

use std::collections::BTreeSet;

use osm_api::Settings;
use osm_api::profile::{CloudProvider, OperatingSystem};
use osm_judges::{KUBELET_MINORS, upstream_osm_profiles};
use osm_render::{default_manifests, defaults, plain_pools, sample_pools, stand_in_cluster};
use osm_user_data::{Counted, size_limit};
use strum::IntoEnumIterator;

use crate::common::compiled;

const PAGE: &str = include_str!("../../../../docs/compatibility.md");

/// Cells of the table below a heading, with its head.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
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

    let [oldest, newest] = [0, listed.len() - 1].map(|index| listed[index]);
    let tested = format!("Kubelets {oldest} to {newest} are tested, others only get a warning");
    assert!(include_str!("../../../../docs/install.md").contains(&tested));
    let (_, pool) = plain_pools(&spec, &["1.31.0".parse().unwrap()]).remove(0);
    let rendered = compiled(&spec).render(&pool, &Settings::default(), &stand_in_cluster());
    assert_eq!(rendered.unwrap().warnings.len(), 1);
}

#[test]
fn the_limits_of_bootstrap_documents_are_those_of_the_clouds() {
    const HEAD: &str = "| Cloud | Largest bootstrap document |\n|---|---|\n";
    let (_, rows) = include_str!("../../../../docs/limits.md")
        .split_once(HEAD)
        .unwrap();
    let mut listed = BTreeSet::new();
    for row in rows.lines().take_while(|line| line.starts_with('|')) {
        let (clouds, limit) = row.trim_matches('|').split_once('|').unwrap();
        listed.extend(
            clouds
                .split(',')
                .map(|cloud| (cloud.trim().to_owned(), limit.trim().to_owned())),
        );
    }
    let expected = CloudProvider::iter().filter_map(|cloud| {
        let [limit, flatcar] =
            [OperatingSystem::Ubuntu, OperatingSystem::Flatcar].map(|os| size_limit(cloud, os));
        let bytes = limit?.bytes;
        let size = match bytes % 1024 {
            0 => format!("{} KiB", bytes / 1024),
            _ => format!("{},{:03} bytes", bytes / 1000, bytes % 1000),
        };
        let counted = match (limit?.counted, flatcar?.counted) {
            (Counted::Gzip, Counted::Raw) => " after gzip, or with Flatcar before it",
            (Counted::Base64, Counted::Base64) => " in Base64",
            (before, after) => {
                assert_eq!((before, after), (Counted::Raw, Counted::Raw), "{cloud}");
                ""
            }
        };
        Some((format!("`{cloud}`"), format!("{size}{counted}")))
    });
    assert_eq!(listed, expected.collect());
}

#[test]
fn what_nodes_turn_off_is_listed() {
    const SETUP: &str = include_str!("../../library/osm-setup.sh");
    let (_, section) = PAGE.split_once("\n## SELinux and firewalls\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let units = SETUP
        .lines()
        .filter_map(|line| line.trim().strip_prefix("turn_off "));
    let units = units.filter_map(|unit| Some((unit, unit.split_once('.')?.0)));
    let others = [
        ("setenforce 0", "SELinux becomes permissive"),
        ("ufw --force disable", "on Ubuntu, ufw"),
        ("mask --now docker.socket", "on Flatcar, Docker"),
    ];
    for (command, listed) in units.chain(others) {
        assert!(
            SETUP.contains(command) && section.contains(listed),
            "{command}: {listed}"
        );
    }
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
