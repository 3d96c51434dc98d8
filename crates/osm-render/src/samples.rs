//! Sample pools and settings. Templates fail in branches, so a profile is rendered with samples before a real
//! pool uses it.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use osm_api::pool::{KubeletSettings, Pool};
use osm_api::profile::{CloudProvider, OperatingSystemProfileSpec, TemplateEngine};
use osm_api::provider_spec::{ConfigVar, Dns, IpFamily, Network, OperatingSystemSpec};
use osm_api::settings::Settings;
use osm_user_data::reader::Reader;
use osm_user_data::{late_bound, static_network};
use semver::Version;

use crate::budget::{Allowance, Budget};
use crate::kubelet;
use crate::profile::{Profile, Rendered, suits};
use crate::validate::refusal::Refusal;
use osm_api::ClusterEndpoint;

/// A settings document with everything set.
const FULL_SETTINGS: &str = r#"
cluster: {apiServer: "https://api.cluster.example:6443", dnsIPs: [10.96.0.10, "fd00::a"], dnsDomain: cluster.example, externalCloudProvider: true}
proxy: {http: "http://proxy.example:3128", noProxy: "10.0.0.0/8,.example", credentials: {name: proxy}}
hostCABundle: "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
pauseImage: registry.example/pause:3.10
initialTaints: [{key: dedicated, value: batch, effect: NoSchedule}, {key: fresh, effect: NoExecute}]
kubelet: {featureGates: {ImageMaximumGCAge: true}, configuration: {podPidsLimit: 4096, shutdownGracePeriod: 1m, evictionMinimumReclaim: {memory.available: 100Mi}}}
containerd:
  deviceOwnershipFromSecurityContext: true
  registries:
    - host: docker.io
      mirrors: [{url: "https://mirror.example/v2/hub", overridePath: true}, {url: "http://10.0.0.9:5000", skipVerify: true}]
      credentials: {name: hub}
    - {host: "registry.example:5000", credentials: {namespace: kube-system, name: own}}
    - {host: _default, mirrors: [{url: "https://mirror.example"}]}
downloads:
  kubelet: {baseURL: "https://files.example/k8s", sha256: {1.33.0: &sums {amd64: &sum "0000000000000000000000000000000000000000000000000000000000000000", arm64: *sum}, 1.37.0: *sums}}
  containerd: {version: 2.2.9, baseURL: "https://files.example/containerd", sha256: *sums}
  runc: {version: 1.3.6, baseURL: "https://files.example/runc", sha256: *sums}
  cni: {version: 1.9.1, baseURL: "https://files.example/cni", sha256: *sums}
  crictl: {version: 1.35.0, baseURL: "https://files.example/crictl", sha256: {1.35.0: *sums}}
packages: {install: [nfs-common]}
system: {swap: {behavior: LimitedSwap, size: 2Gi}, sysctls: {vm.max_map_count: 262144}, kernelModules: [nf_conntrack], ntpServers: [time.example, "fd00::7b"]}
"#;

/// Plain pools that the profile is for: every cloud × lowest and highest kubelet × IP family, each with a
/// label such as `aws, kubelet 1.33.0, IPv4`.
pub fn sample_pools(spec: &OperatingSystemProfileSpec) -> Vec<(String, Pool)> {
    let (oldest, newest) = kubelet::TESTED_MINORS;
    plain_pools(spec, &[oldest, newest].map(|minor| Version::new(1, minor, 0)))
}

/// The IP families of samples, with their labels.
const FAMILIES: [(&str, IpFamily); 4] = [
    ("IPv4", IpFamily::IPv4),
    ("IPv6", IpFamily::IPv6),
    ("IPv4+IPv6", IpFamily::IPv4IPv6),
    ("IPv6+IPv4", IpFamily::IPv6IPv4),
];

/// [`sample_pools`] with other kubelets.
pub fn plain_pools(spec: &OperatingSystemProfileSpec, kubelets: &[Version]) -> Vec<(String, Pool)> {
    let mut pools = Vec::new();
    for cloud in &spec.supported_cloud_providers {
        for version in kubelets {
            for (family, ip_family) in FAMILIES {
                let label = format!("{}, kubelet {version}, {family}", cloud.name);
                let pool = Pool {
                    name: "sample".to_owned(),
                    namespace: "kube-system".to_owned(),
                    operating_system: spec.os_name,
                    cloud_provider: cloud.name,
                    kubelet_version: version.clone(),
                    ssh_public_keys: Vec::new(),
                    network: Network {
                        ip_family,
                        ..Network::default()
                    },
                    os: OperatingSystemSpec {
                        provisioning_utility: Some(spec.provisioning_utility),
                        ..OperatingSystemSpec::default()
                    },
                    overwrite_cloud_config: None,
                    kubelet: KubeletSettings::default(),
                    warnings: Vec::new(),
                };
                pools.push((label, pool));
            }
        }
    }
    // Whole clouds, which `representatives` counts on: a profile for Flatcar may list edge.
    pools.retain(|(_, pool)| suits(spec, pool).is_ok());
    pools
}

/// `pool` with everything set that a MachineDeployment can set.
fn with_everything(pool: &Pool) -> Pool {
    let pairs = |text: &str| Some(BTreeMap::from([("memory".to_owned(), text.to_owned())]));
    let thresholds = kubelet::DEFAULT_THRESHOLDS.map(|name| (name.to_owned(), "10%".to_owned()));
    Pool {
        ssh_public_keys: vec!["ssh-ed25519 AAAA sample".to_owned()],
        os: OperatingSystemSpec {
            dist_upgrade_on_boot: true,
            disable_auto_update: true,
            disable_locksmith_d: true,
            disable_update_engine: true,
            rhel_subscription_manager_user: ConfigVar::Text("sample".to_owned()),
            rhel_subscription_manager_password: ConfigVar::Text("sample".to_owned()),
            attach_subscription: true,
            ..pool.os.clone()
        },
        overwrite_cloud_config: Some("[Global]\nkey=\"it's\"\n".to_owned()),
        kubelet: KubeletSettings {
            system_reserved: pairs("200Mi"),
            kube_reserved: pairs("300Mi"),
            eviction_hard: Some(thresholds.into()),
            container_log_max_size: Some("50Mi".to_owned()),
            container_log_max_files: Some(3),
            max_pods: Some(50),
            image_gc_high_threshold_percent: Some(80),
            image_gc_low_threshold_percent: Some(0),
            image_minimum_gc_age: Some("2m".to_owned()),
            image_maximum_gc_age: Some("24h".to_owned()),
        },
        ..pool.clone()
    }
}

/// A pool of a cloud with the newest kubelet, both IP families and everything set, and settings with
/// everything set; `None` where the profile is not for the cloud.
pub fn full_sample(spec: &OperatingSystemProfileSpec, cloud: CloudProvider) -> Option<(Pool, Settings)> {
    let (_, newest) = kubelet::TESTED_MINORS;
    let mut pools = plain_pools(spec, &[Version::new(1, newest, 0)]).into_iter();
    let wanted = (cloud, IpFamily::IPv4IPv6);
    let (_, pool) = pools.find(|(_, pool)| (pool.cloud_provider, pool.network.ip_family) == wanted)?;
    Some((with_everything(&pool), full_settings(spec)?))
}

/// Settings with everything set. A profile in Go's language may look at the URL of the proxy, which it can't
/// do if that is late-bound. So it fails only in a pool whose proxy demands a password.
fn full_settings(spec: &OperatingSystemProfileSpec) -> Option<Settings> {
    let mut settings = Settings::parse(FULL_SETTINGS).ok()?;
    if spec.template_engine == TemplateEngine::GoTemplate {
        settings.proxy.credentials = None;
    }
    Some(settings)
}

pub(crate) fn static_network() -> Network {
    Network {
        cidr: "192.0.2.7/24".to_owned(),
        gateway: "192.0.2.1".to_owned(),
        dns: Dns {
            servers: vec!["192.0.2.53".to_owned()],
        },
        ip_family: IpFamily::IPv4,
    }
}

/// Sample pools with which every branch is taken that a template can choose by cloud, kubelet or IP family:
/// the first cloud has every minor version and family, and a static address where the operating system can
/// have one; each other cloud has the lowest and the highest kubelet, and from one to the next another
/// family. All of all would take seconds.
fn representatives(spec: &OperatingSystemProfileSpec) -> impl Iterator<Item = (String, Pool)> {
    let (oldest, newest) = kubelet::TESTED_MINORS;
    let kubelets: Vec<Version> = (oldest..=newest).map(|minor| Version::new(1, minor, 0)).collect();
    let (minors, families) = (kubelets.len(), FAMILIES.len());
    let all = plain_pools(spec, &kubelets).into_iter().enumerate();
    let usual = all.filter_map(move |(n, pool)| {
        let (cloud, minor, family) = (n / families / minors, n / families % minors, n % families);
        let is_lowest_or_highest = minor == 0 || minor + 1 == minors;
        let is_its_turn = is_lowest_or_highest && family == (cloud + minor) % families;
        (cloud == 0 || is_its_turn).then_some(pool)
    });
    let newest = plain_pools(spec, &[Version::new(1, newest, 0)]).into_iter();
    let with_address = newest.take(usize::from(has_static_network(spec)));
    usual.chain(with_address.map(|(label, pool)| {
        let network = static_network();
        (format!("{label}, static address"), Pool { network, ..pool })
    }))
}

/// Whether pools of a profile can have a static address.
fn has_static_network(spec: &OperatingSystemProfileSpec) -> bool {
    let reader = Reader::of(Some(spec.os_name), spec.provisioning_utility);
    let mut files = spec.bootstrap_config.files.iter();
    reader != Reader::CloudInit && !files.any(|file| static_network::unit(&file.path).is_some())
}

/// Renders representatives of the sample pools with default settings, and again with everything set. It calls
/// `look` with each result and the label of its sample, and fails soon after another thread sets `cancelled`.
///
/// # Errors
/// The first failure, with the label of its pool, or what `look` refuses.
pub(crate) fn render(
    cancelled: &AtomicBool,
    profile: &Profile,
    mut look: impl FnMut(&str, &Rendered) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    // That it parses is tested; were it broken, the default settings would still be tried.
    let full = full_settings(profile.spec()).unwrap_or_default();
    let defaults = Settings::default();
    let cluster = stand_in_cluster();
    let allowance = Allowance::of_samples();
    for (label, pool) in representatives(profile.spec()) {
        for (pool, settings, how) in [
            (pool.clone(), &defaults, "default settings"),
            (with_everything(&pool), &full, "everything set"),
        ] {
            let sample = format!("{label}, {how}");
            let budget = Budget::new(cancelled).part_of(&allowance);
            let rendered = profile.render_within(budget, &pool, settings, &cluster);
            let rendered = rendered.map_err(|error| Refusal {
                message: format!("with the sample pool {sample}: {error}"),
                ..error.into()
            })?;
            look(&sample, &rendered)?;
        }
    }
    Ok(())
}

/// An API server that does not exist, with a certificate that is as long as a real one but none.
pub fn stand_in_cluster() -> ClusterEndpoint {
    let body = late_bound::filler("certificate", 1024);
    let body = body.replace('-', "+").replace('_', "/");
    let starts = (0..body.len()).step_by(64);
    let lines: Vec<&str> = starts.filter_map(|at| body.get(at..at + 64)).collect();
    let lines = lines.join("\n");
    ClusterEndpoint {
        api_server: "https://api.cluster.example:6443".to_owned(),
        ca: format!("-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mistake_for_one_kubelet_or_for_a_static_address_is_found() {
        let dry_run_of = |os: &str, utility: &str, text: &str| {
            let spec: OperatingSystemProfileSpec = serde_json::from_value(json!({
                "osName": os, "osVersion": "1", "version": "v1.0.0", "templateEngine": "Handlebars", "provisioningUtility": utility,
                "supportedCloudProviders": [{"name": "aws"}, {"name": "openstack"}],
                "bootstrapConfig": {"files": [{"path": "/a", "content": {"inline": {"data": text}}}]},
            }))
            .unwrap();
            let profile = crate::compile(&crate::resolve(&spec).unwrap()).unwrap();
            crate::dry_run(&profile).map_err(|refusal| refusal.message)
        };
        for minor in kubelet::TESTED_MINORS.0..=kubelet::TESTED_MINORS.1 {
            let text = format!("{{{{#if (eq kubelet.minor {minor})}}}}{{{{typo}}}}{{{{/if}}}}");
            let error = dry_run_of("ubuntu", "cloud-init", &text).unwrap_err();
            assert!(error.contains(&format!("kubelet 1.{minor}.0")), "{error}");
        }
        let text = "{{#if network.static}}{{typo}}{{/if}}";
        for utility in ["ignition", "cloud-init"] {
            let error = dry_run_of("flatcar", utility, text).unwrap_err();
            assert!(error.contains("static address"), "{error}");
        }
        // No machine of this system can have one.
        assert_eq!(dry_run_of("ubuntu", "cloud-init", text), Ok(()));
    }
}
