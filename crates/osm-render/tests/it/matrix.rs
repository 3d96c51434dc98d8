//! Every default profile, in every combination, before the judges.

use osm_api::Settings;
use osm_api::profile::{OperatingSystem, ProvisioningUtility};
use osm_api::settings::REQUIRED_SYSCTLS;
use osm_judges::{UserData, judge_coreos_user_data_batch, judge_user_data_batch};
use osm_user_data::{Stage, size_limit, user_data};

use crate::common::{EVERYTHING, any_values, cluster, compiled, content};
use crate::common::{give_static_address, named, noise, pool, values};

const CA: &str = "-----BEGIN CERTIFICATE-----\nTWFueSBtYWNoaW5lcw==\n-----END CERTIFICATE-----\n";
const KUBELETS: [&str; 2] = ["1.33.0", "1.37.2"];
const FAMILIES: [&str; 4] = ["IPv4", "IPv6", "IPv4+IPv6", "IPv6+IPv4"];

/// What would take the network away from a machine that has one.
const NETWORK_RESTARTS: [&str; 7] = [
    "netplan",
    "restart systemd-networkd",
    "restart NetworkManager",
    "restart network",
    "ifdown",
    "cloud-init init",
    "cloud-init clean",
];

/// A document with what it was rendered for.
struct Document {
    name: String,
    kubelet: &'static str,
    text: String,
}

/// Every profile × its clouds × kubelet × settings × IP family × stage: the documents that coreos-cloudinit
/// reads, and all others. Nothing in a document depends on the cloud together with the kubelet or the IP
/// family, so only the first cloud has every pair of them.
fn documents() -> [Vec<Document>; 2] {
    let cluster = cluster("https://10.0.0.1:6443", CA);
    let settings = [("plain", "{}"), ("everything", EVERYTHING)];
    let settings = settings.map(|(label, text)| (label, Settings::parse(text).unwrap()));
    let kubelets = KUBELETS.into_iter();
    let kubelets: Vec<_> = kubelets
        .flat_map(|kubelet| FAMILIES.map(|family| (kubelet, family)))
        .collect();
    let [mut of_coreos, mut others] = [Vec::new(), Vec::new()];
    for (name, spec) in osm_render::defaults() {
        let is_flatcar = spec.os_name == OperatingSystem::Flatcar;
        let is_of_coreos = is_flatcar && spec.provisioning_utility == ProvisioningUtility::CloudInit;
        let profile = compiled(&spec);
        for (i, cloud) in spec.supported_cloud_providers.iter().enumerate() {
            let (os, cloud) = (spec.os_name.as_str(), cloud.name.as_str());
            let one = i % kubelets.len();
            let kubelets = if i == 0 {
                &kubelets[..]
            } else {
                &kubelets[one..=one]
            };
            for (kubelet, family) in kubelets {
                for (label, settings) in &settings {
                    let mut pool = pool(os, cloud, kubelet, family, *label == "everything");
                    pool.os.provisioning_utility = Some(spec.provisioning_utility);
                    if is_flatcar && *label == "everything" {
                        pool.os.disable_auto_update = true;
                        give_static_address(&mut pool);
                    }
                    let rendered = profile.render(&pool, settings, &cluster).unwrap();
                    let mut warnings = rendered.warnings.clone();
                    // Flatcar has no packages, others can have cgroup v1, and the addresses of these settings
                    // are not for pools with IPv6 alone.
                    warnings.retain(|warning| {
                        !(warning.starts_with("packages.install of the settings")
                            || warning.ends_with("on a machine with cgroup v1, the kubelet would not start")
                            || *family == "IPv6" && warning.starts_with("cluster."))
                    });
                    assert_eq!(warnings, [""; 0], "{name} {cloud}");
                    for stage in Stage::ALL {
                        let text = user_data(&rendered.spec, stage, &any_values()).unwrap();
                        let text = named(&text, "pool-5d8f-x7k2p");
                        let name = format!("{name} {cloud} {kubelet} {family} {label} {stage:?}");
                        for restart in NETWORK_RESTARTS {
                            assert!(!text.contains(restart), "{name}: {restart}");
                        }
                        let documents = if is_of_coreos { &mut of_coreos } else { &mut others };
                        documents.push(Document { name, kubelet, text });
                    }
                }
            }
        }
    }
    [of_coreos, others]
}

#[test]
fn judges_have_no_complaint() {
    let documents = documents();
    let [of_coreos, others] = documents.each_ref().map(|documents| -> Vec<UserData<'_>> {
        let documents = documents.iter().map(|Document { name, kubelet, text }| UserData {
            name,
            text,
            kubelet: Some(*kubelet),
        });
        documents.collect()
    });
    judge_user_data_batch(&others).unwrap_or_else(|verdict| panic!("{verdict}"));
    assert_eq!(of_coreos.len(), 2 * KUBELETS.len() * FAMILIES.len() * 2);
    judge_coreos_user_data_batch(&of_coreos).unwrap_or_else(|verdict| panic!("{verdict}"));
}

/// AWS takes 16 KiB, and more settings or a longer token must still fit.
#[test]
fn bootstrap_documents_leave_room_in_the_least_that_a_cloud_takes() {
    let certificate = |seed| {
        let body = noise(seed, 1500);
        format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
    };
    let ca = certificate("one") + &certificate("two");
    let values = values(&noise("digest", 64), 1);
    for (os, most) in [("ubuntu", 10_500), ("flatcar", 14 * 1024)] {
        let pool = pool(os, "aws", "1.36.0", "IPv4", true);
        let cluster = ("https://api.cluster.example:6443", ca.as_str());
        let content = content(&pool, EVERYTHING, cluster);
        let bootstrap = user_data(&content, Stage::Bootstrap, &values).unwrap();
        let limit = size_limit(pool.cloud_provider, pool.operating_system).unwrap();
        let size = limit.count(&bootstrap);
        assert!(size < most, "{os}: {size} bytes");
    }
}

/// What the settings refuse to change is what every default profile sets, by a part of the library.
#[test]
fn the_library_sets_the_required_kernel_parameters() {
    let text = include_str!("../../library/sysctl.conf");
    for (parameter, value) in text.lines().filter_map(|line| line.split_once(" = ")) {
        let can_be_changed = parameter.starts_with("fs.inotify.");
        let required = REQUIRED_SYSCTLS.contains(&(parameter, value));
        assert!(required != can_be_changed, "{parameter}");
    }
}
