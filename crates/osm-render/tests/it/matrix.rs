//! Every default profile, in every combination, before the judges.

use osm_api::Settings;
use osm_api::profile::{OperatingSystem, ProvisioningUtility};
use osm_api::settings::REQUIRED_SYSCTLS;
use osm_judges::{UserData, judge_coreos_user_data_batch, judge_user_data_batch};
use osm_render::{Stage, size_limit, user_data};

use crate::common::{EVERYTHING, any_values, cluster, compiled, documents as of_pool};
use crate::common::{give_static_address, named, noise, pool, values};

const CA: &str = "-----BEGIN CERTIFICATE-----\nTWFueSBtYWNoaW5lcw==\n-----END CERTIFICATE-----\n";
const KUBELETS: [&str; 2] = ["1.33.0", "1.36.3"];
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
    /// Whether coreos-cloudinit reads it.
    of_coreos: bool,
    kubelet: &'static str,
    text: String,
}

/// Every profile × its clouds × kubelet × settings × IP family × stage.
fn documents() -> Vec<Document> {
    let cluster = cluster("https://10.0.0.1:6443", CA);
    let settings = [("plain", "{}"), ("everything", EVERYTHING)];
    let settings = settings.map(|(label, text)| (label, Settings::parse(text).unwrap()));
    let mut documents = Vec::new();
    for (name, spec) in osm_render::defaults() {
        let is_flatcar = spec.os_name == OperatingSystem::Flatcar;
        let profile = compiled(&spec);
        for cloud in &spec.supported_cloud_providers {
            let (os, cloud) = (spec.os_name.as_str(), cloud.name.as_str());
            for kubelet in KUBELETS {
                for family in FAMILIES {
                    for (label, settings) in &settings {
                        let mut pool = pool(os, cloud, kubelet, family, *label == "everything");
                        pool.os.provisioning_utility = Some(spec.provisioning_utility);
                        if is_flatcar && *label == "everything" {
                            pool.os.disable_auto_update = true;
                            give_static_address(&mut pool);
                        }
                        let rendered = profile.render(&pool, settings, &cluster).unwrap();
                        let mut warnings = rendered.warnings.clone();
                        // Flatcar has no packages.
                        warnings.retain(|warning| !warning.starts_with("packages.install of the settings"));
                        assert_eq!(warnings, [""; 0], "{name} {cloud}");
                        for stage in Stage::ALL {
                            let text = user_data(&rendered.spec, stage, &any_values()).unwrap();
                            let text = named(&text, "pool-5d8f-x7k2p");
                            let name = format!("{name} {cloud} {kubelet} {family} {label} {stage:?}");
                            documents.push(Document {
                                name,
                                of_coreos: is_flatcar
                                    && spec.provisioning_utility == ProvisioningUtility::CloudInit,
                                kubelet,
                                text,
                            });
                        }
                    }
                }
            }
        }
    }
    documents
}

#[test]
fn judges_have_no_complaint() {
    let documents = documents();
    for document in &documents {
        for restart in NETWORK_RESTARTS {
            assert!(!document.text.contains(restart), "{}: {restart}", document.name);
        }
    }
    let of = |coreos: bool| -> Vec<UserData<'_>> {
        let documents = documents.iter().filter(|document| document.of_coreos == coreos);
        documents
            .map(|document| UserData {
                name: &document.name,
                text: &document.text,
                kubelet: Some(document.kubelet),
            })
            .collect()
    };
    judge_user_data_batch(&of(false)).unwrap_or_else(|verdict| panic!("{verdict}"));
    assert_eq!(of(true).len(), 2 * KUBELETS.len() * FAMILIES.len() * 2);
    judge_coreos_user_data_batch(&of(true)).unwrap_or_else(|verdict| panic!("{verdict}"));
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
        let [bootstrap, _] = of_pool(&pool, EVERYTHING, cluster, &values);
        let limit = size_limit(pool.cloud_provider, pool.operating_system).unwrap();
        let size = limit.count(&bootstrap);
        assert!(size < most, "{os}: {size} bytes");
    }
}

/// What the settings refuse to change is what the profile sets.
#[test]
fn every_default_profile_sets_the_required_kernel_parameters() {
    for (name, spec) in osm_render::defaults() {
        let cloud = spec.supported_cloud_providers[0].name;
        let mut pool = pool(spec.os_name.as_str(), cloud.as_str(), "1.34.2", "IPv4", false);
        pool.os.provisioning_utility = Some(spec.provisioning_utility);
        let cluster = cluster("https://10.0.0.1:6443", CA);
        let rendered = compiled(&spec).render(&pool, &Settings::default(), &cluster);
        let files = rendered.unwrap().spec.provisioning_config.files;
        let path = "/etc/sysctl.d/99-zz-kubernetes.conf";
        let file = files.iter().find(|file| file.path == path).unwrap();
        let text = &file.content.inline.as_ref().unwrap().data;
        for line in text.lines().filter(|line| line.contains(" = ")) {
            let (parameter, value) = line.split_once(" = ").unwrap();
            let mut required = REQUIRED_SYSCTLS.iter();
            let required = required.find(|(required, _)| *required == parameter);
            match required {
                Some((_, required)) => assert_eq!(value, *required, "{name}: {parameter}"),
                None => assert!(
                    parameter.starts_with("fs.inotify."),
                    "{name}: {parameter} can be changed"
                ),
            }
        }
    }
}
