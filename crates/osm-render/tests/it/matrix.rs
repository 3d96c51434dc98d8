//! Every default profile, in every combination, before the judges.

use osm_api::Settings;
use osm_api::profile::{OperatingSystem, ProvisioningUtility};
use osm_api::provider_spec::{Dns, Network};
use osm_api::settings::REQUIRED_SYSCTLS;
use osm_judges::{UserData, judge_coreos_user_data_batch, judge_user_data_batch};
use osm_render::{ClusterEndpoint, Stage, size_limit, user_data};

use crate::common::{EVERYTHING, noise, pool, values};

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
    let cluster = ClusterEndpoint {
        api_server: "https://10.0.0.1:6443".to_owned(),
        ca: CA.to_owned(),
    };
    let values = values(&"0".repeat(64), 1);
    let settings = [("plain", "{}"), ("everything", EVERYTHING)];
    let settings = settings.map(|(label, text)| (label, Settings::parse(text).unwrap()));
    let mut documents = Vec::new();
    for (name, spec) in osm_render::defaults() {
        let is_flatcar = spec.os_name == OperatingSystem::Flatcar;
        let profile = osm_render::compile(&osm_render::resolve(&spec).unwrap()).unwrap();
        for cloud in &spec.supported_cloud_providers {
            let (os, cloud) = (spec.os_name.as_str(), cloud.name.as_str());
            for kubelet in KUBELETS {
                for family in FAMILIES {
                    for (label, settings) in &settings {
                        let mut pool = pool(os, cloud, kubelet, family, *label == "everything");
                        pool.os.provisioning_utility = Some(spec.provisioning_utility);
                        if is_flatcar && *label == "everything" {
                            pool.os.disable_auto_update = true;
                            let dns = Dns {
                                servers: vec!["192.0.2.2".to_owned()],
                            };
                            let (cidr, gateway) = ("192.0.2.7/24".to_owned(), "192.0.2.1".to_owned());
                            pool.network = Network {
                                cidr,
                                gateway,
                                dns,
                                ..pool.network
                            };
                        }
                        let rendered = profile.render(&pool, settings, &cluster).unwrap();
                        let mut warnings = rendered.warnings.clone();
                        // Flatcar has no packages.
                        warnings.retain(|warning| !warning.starts_with("packages.install of the settings"));
                        if spec.os_name == OperatingSystem::CentOs {
                            warnings
                                .retain(|warning| !warning.starts_with("machine-controller 1.62 or newer"));
                        }
                        assert_eq!(warnings, [""; 0], "{name} {cloud}");
                        for stage in Stage::ALL {
                            let text = user_data(&rendered.spec, stage, &values).unwrap();
                            let text = text.replace("<MACHINE_NAME>", "pool-5d8f-x7k2p");
                            let text = text.replace("%3CMACHINE_NAME%3E", "pool-5d8f-x7k2p");
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
    let cluster = ClusterEndpoint {
        api_server: "https://api.cluster.example:6443".to_owned(),
        ca: certificate("one") + &certificate("two"),
    };
    let settings = Settings::parse(EVERYTHING).unwrap();
    for (name, most) in [("osp-ubuntu", 10_500), ("osp-flatcar", 14 * 1024)] {
        let (_, spec) = osm_render::defaults()
            .into_iter()
            .find(|(known, _)| known == name)
            .unwrap();
        let profile = osm_render::compile(&osm_render::resolve(&spec).unwrap()).unwrap();
        let pool = pool(spec.os_name.as_str(), "aws", "1.36.0", "IPv4", true);
        let rendered = profile.render(&pool, &settings, &cluster).unwrap().spec;
        let values = values(&noise("digest", 64), 1);
        let text = user_data(&rendered, Stage::Bootstrap, &values).unwrap();
        let size = size_limit(pool.cloud_provider, pool.operating_system)
            .unwrap()
            .count(&text);
        assert!(size < most, "{name}: {size} bytes");
    }
}

/// What people had before, and would miss: the file, the name before the value, and the least value.
const FLOORS: [(&str, &str, u64); 3] = [
    (
        "/etc/systemd/journald.conf.d/10-kubernetes.conf",
        "SystemMaxUse=",
        5,
    ),
    (
        "/etc/sysctl.d/99-zz-kubernetes.conf",
        "fs.inotify.max_user_watches = ",
        1_048_576,
    ),
    ("/etc/kubernetes/kubelet.yaml", "maxParallelImagePulls: ", 10),
];

#[test]
fn limits_of_every_default_profile_have_a_floor() {
    for (name, spec) in osm_render::defaults() {
        let profile = osm_render::compile(&osm_render::resolve(&spec).unwrap()).unwrap();
        let cloud = spec.supported_cloud_providers[0].name;
        let mut pool = pool(spec.os_name.as_str(), cloud.as_str(), "1.34.2", "IPv4", false);
        pool.os.provisioning_utility = Some(spec.provisioning_utility);
        let cluster = ClusterEndpoint {
            api_server: "https://10.0.0.1:6443".to_owned(),
            ca: CA.to_owned(),
        };
        let rendered = profile.render(&pool, &Settings::default(), &cluster).unwrap();
        let files = &rendered.spec.provisioning_config.files;
        let text = |path: &str| {
            let file = files.iter().find(|file| file.path == path);
            let file = file.unwrap_or_else(|| panic!("{name}: {path}"));
            file.content.inline.as_ref().unwrap().data.clone()
        };
        for (path, field, least) in FLOORS {
            let text = text(path);
            let value = text.lines().find_map(|line| line.strip_prefix(field));
            let value: u64 = value.unwrap().trim_end_matches('G').parse().unwrap();
            assert!(value >= least, "{name}: {field}{value}");
        }
        // What the settings refuse to change is what the profile sets.
        let sysctls = text("/etc/sysctl.d/99-zz-kubernetes.conf");
        for line in sysctls.lines().filter(|line| line.contains(" = ")) {
            let (parameter, value) = line.split_once(" = ").unwrap();
            let required = REQUIRED_SYSCTLS
                .iter()
                .find(|(required, _)| *required == parameter);
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
