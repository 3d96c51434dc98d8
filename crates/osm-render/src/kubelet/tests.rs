use osm_api::settings::Settings;
use semver::Version;

use super::*;
use crate::error::RenderError;
use crate::profile::Rendered;
use crate::{compile, defaults, resolve, sample_pools, stand_in_cluster};

fn pool(minor: u64) -> Pool {
    let (_, spec) = defaults().remove(0);
    let (_, pool) = sample_pools(&spec).remove(0);
    Pool {
        kubelet_version: Version::new(1, minor, 0),
        ..pool
    }
}

fn of(minor: u64, yaml: &str) -> Vec<String> {
    let settings = Settings::parse(yaml).unwrap();
    check(&pool(minor), &settings.kubelet)
}

/// The messages about a configuration, as YAML, for kubelet 1.36.
fn told(configuration: &str) -> Vec<String> {
    of(36, &format!("kubelet: {{configuration: {configuration}}}"))
}

/// Configurations, each with the path of its mistake and a part of the message.
const MISTAKES: &str = "
    {apiVersion: s77} | apiVersion | must be kubelet.config.k8s.io/v1beta1
    {kind: s77} | kind | must be KubeletConfiguration
    {maxpods: 77} | maxpods | kubelet 1.36 has no such field
    {maxPods: s77} | maxPods | must be a whole number
    {maxPods: } | maxPods | is empty
    {registerWithTaints: [{key: a, effect: NoSchedule, timeAdded: s77}]} | registerWithTaints[0].timeAdded | can't be set
    {featureGates: {Imagined: true}} | featureGates.Imagined | knows no such feature gate
    {featureGates: {ImageVolume: false}} | featureGates.ImageVolume | takes only true
    {featureGates: {RotateKubeletServerCertificate: false}} | featureGates.RotateKubeletServerCertificate | must stay on
    {staticPodURL: 'https://s77:s77@pods.example/'} | staticPodURL | a credential in it
    {staticPodURLHeader: {Authorization: [s77]}} | staticPodURLHeader | a credential in it
    {authentication: {anonymous: {enabled: true}}} | authentication.anonymous.enabled | remove it
    {authorization: {mode: AlwaysAllow}} | authorization.mode | remove it
    {containerRuntimeEndpoint: 'unix:///s77'} | containerRuntimeEndpoint | remove it
";

#[test]
fn each_mistake_is_told_with_its_path_and_without_its_value() {
    // Types are those of Kubernetes' own decoders in tests/it/kubelet.rs.
    for row in MISTAKES.trim().lines() {
        let [bad, path, problem] = row.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let told = told(bad.trim());
        let [mistake] = told.as_slice() else {
            panic!("{bad}: {told:#?}")
        };
        let start = format!("kubelet.configuration.{path}: ");
        assert!(mistake.starts_with(&start), "{bad}: {mistake}");
        assert!(mistake.contains(problem), "{bad}: {mistake}");
        assert!(!mistake.contains("77"), "the value is repeated: {mistake}");
    }
}

#[test]
fn all_mistakes_are_told_at_once_and_not_without_end() {
    let told =
        told("{maxPods: a, maxpods: 1, evictionHard: {a: 1, memory.available: 2}, clusterDNS: [1, 2]}");
    assert_eq!(told.len(), 6, "{told:#?}");
    let many: Vec<String> = (0..200).map(|i| format!("field{i}: 1")).collect();
    let told = self::told(&format!("{{{}}}", many.join(", ")));
    let expected = (MAX_MISTAKES + 1, "and 150 more");
    assert_eq!((told.len(), told.last().unwrap().as_str()), expected);
}

/// What each kubelet knows is compared with Kubernetes' own decoders in tests/it/kubelet.rs.
#[test]
fn a_kubelet_that_nobody_has_seen_may_know_more() {
    let unknown = "kubelet: {configuration: {newField: 1, maxPods: a, featureGates: {New: true}}}";
    let expected = "kubelet.configuration.maxPods: must be a whole number";
    assert_eq!(of(40, unknown), [expected]);
}

#[test]
fn a_shutdown_is_delayed_by_all_periods_of_pods() {
    for (configuration, seconds) in [
        ("{}", None),
        ("{shutdownGracePeriod: 0s}", None),
        ("{shutdownGracePeriodByPodPriority: []}", None),
        (
            "{shutdownGracePeriod: 1m, shutdownGracePeriodCriticalPods: 10s}",
            Some(60),
        ),
        ("{shutdownGracePeriod: 1h0m0.000000001s}", Some(3601)),
        ("{shutdownGracePeriod: 2562047h}", Some(2_562_047 * 3600)),
        (
            "{shutdownGracePeriodByPodPriority: [{shutdownGracePeriodSeconds: 30}, {priority: 9, shutdownGracePeriodSeconds: 5}]}",
            Some(35),
        ),
    ] {
        let settings = Settings::parse(&format!("kubelet: {{configuration: {configuration}}}")).unwrap();
        assert_eq!(shutdown_seconds(&settings.kubelet), seconds, "{configuration}");
    }
    assert_eq!(shutdown_seconds(&Settings::parse("{}").unwrap().kubelet), None);
}

/// Renders a default profile for a kubelet, with this `kubelet.configuration`.
fn rendered(
    profile: &str,
    minor: u64,
    configuration: &str,
    change: impl FnOnce(&mut Pool),
) -> Result<Rendered, RenderError> {
    let found = defaults().into_iter().find(|(name, _)| name == profile);
    let (_, spec) = found.unwrap();
    let (_, mut pool) = sample_pools(&spec).remove(0);
    pool.kubelet_version = Version::new(1, minor, 0);
    change(&mut pool);
    let settings = Settings::parse(&format!("kubelet: {{configuration: {configuration}}}")).unwrap();
    compile(&resolve(&spec).unwrap())
        .unwrap()
        .render(&pool, &settings, &stand_in_cluster())
}

/// Configurations that a kubelet can decode and would not start with, each with its version and the message.
/// Those of the validation are in tests/it/kubelet_values.rs.
const REFUSED: &str = "
    34 | {serializeImagePulls: true} | kubelet.configuration.serializeImagePulls (true): does not go with a maxParallelImagePulls above 1; set maxParallelImagePulls: 1, or serializeImagePulls: false; maxParallelImagePulls is 10 in /etc/kubernetes/kubelet.yaml
    34 | {imageGCHighThresholdPercent: 75} | kubelet.configuration.imageGCHighThresholdPercent (75): must be above imageGCLowThresholdPercent, which is 80
    34 | {imageGCLowThresholdPercent: 90} | kubelet.configuration.imageGCLowThresholdPercent (90): imageGCHighThresholdPercent must be above
    34 | {topologyManagerPolicy: s77} | kubelet.configuration.topologyManagerPolicy: must be one of none, best-effort
    34 | {featureGates: {KubeletEnsureSecretPulledImages: true}, imagePullCredentialsVerificationPolicy: s77} | imagePullCredentialsVerificationPolicy: must be one of NeverVerify,
    33 | {imagePullCredentialsVerificationPolicy: NeverVerify} | can only be set with the feature gate KubeletEnsureSecretPulledImages
    37 | {featureGates: {DefaultPodSysctls: true}, defaultPodSysctls: {vm.swappiness: s77}} | kubelet.configuration.defaultPodSysctls.vm.swappiness: must be a kernel parameter that a pod can have for itself
    37 | {featureGates: {MemoryQoS: false}, memoryThrottlingFactor: 0.77} | kubelet.configuration.memoryThrottlingFactor (0.77): can only be another number than 0.9 with the feature gate MemoryQoS
    36 | {featureGates: {GangScheduling: true}} | featureGates.GangScheduling (true): needs the feature gate GenericWorkload
    34 | {evictionHard: {memory.available: s77}} | kubelet.configuration.evictionHard.memory.available: must be a quantity
    34 | {evictionHard: {memory.free: 77Mi}} | is not an eviction signal
    34 | {kubeReserved: {gpu: '77'}} | can't be reserved
    34 | {systemReserved: {cpu: '-77'}} | must not be negative
    34 | {evictionSoft: {memory.available: 77Mi}} | kubelet.configuration.evictionSoft: needs evictionSoftGracePeriod for memory.available
    34 | {evictionSoftGracePeriod: {memory.available: s77}} | must be a duration
    34 | {evictionSoftGracePeriod: {memory.free: 7s}} | is not an eviction signal
    34 | {evictionSoftGracePeriod: {memory.available: -7s}} | must not be negative
    34 | {containerLogMaxSize: s77} | kubelet.configuration.containerLogMaxSize: must be a size
    34 | {cpuManagerPolicy: s77} | must be one of none, static
    34 | {cpuManagerPolicy: static, kubeReserved: {cpu: '0'}, systemReserved: {cpu: '0'}} | can only be static if CPU is reserved
    34 | {memoryManagerPolicy: s77} | must be one of None, Static
    34 | {tlsMinVersion: s77} | must be one of VersionTLS10,
    34 | {topologyManagerPolicyOptions: {}, featureGates: {TopologyManagerPolicyOptions: false}} | can only be set with the feature gate TopologyManagerPolicyOptions
    29 | {} | /etc/systemd/system/kubelet.service has the flag --config-dir, which only kubelets from 1.30 on take
";

#[test]
fn what_a_kubelet_would_not_start_with_is_refused() {
    for row in REFUSED.trim().lines() {
        let [minor, configuration, problem] = row.trim().split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let error = match rendered("osp-ubuntu", minor.parse().unwrap(), configuration, |_| {}) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{row}"),
        };
        assert!(error.contains(problem), "{row}: {error}");
        assert!(!error.contains("s77"), "the value is repeated: {error}");
    }
    // An older kubelet has fewer rules, and an unknown one may have others.
    for (minor, configuration) in [
        (
            33,
            "{imageMinimumGCAge: -1s, cpuManagerPolicy: static, kubeReserved: {cpu: '0'}}",
        ),
        (
            38,
            "{imagePullCredentialsVerificationPolicy: New, featureGates: {KubeletEnsureSecretPulledImages: false}}",
        ),
        (30, "{}"),
    ] {
        let rendered = rendered("osp-ubuntu", minor, configuration, |_| {});
        assert!(rendered.is_ok(), "{configuration}: {rendered:?}");
    }
}

#[test]
fn a_configuration_of_any_size_is_judged_in_time() {
    let many = |field: &str, item: fn(usize) -> String| {
        let items: Vec<String> = (0..20_000).map(item).collect();
        format!("{field}: [{}]", items.join(","))
    };
    for (fields, first) in [
        (
            many("enforceNodeAllocatable", |_| "pods".to_owned()),
            "must not list pods twice",
        ),
        (
            many("reservedSystemCPUs: 1-, clusterDNS", |i| i.to_string()),
            "clusterDNS[0]: must be a text",
        ),
    ] {
        let file = |path: String, text: &str| json!({"path": path, "content": {"inline": {"data": text}}});
        let text = format!("{{kind: KubeletConfiguration, {fields}}}");
        let more = (0..2000).map(|i| file(format!("/{i}.conf"), "{kind: KubeletConfiguration}"));
        let bases = (0..2000).map(|i| file(format!("/{i}"), "{kind: KubeletConfiguration}"));
        let files: Vec<Value> = [file("/a".to_owned(), &text)]
            .into_iter()
            .chain(bases)
            .chain(more)
            .collect();
        let content: Content = serde_json::from_value(json!({
            "osName": "ubuntu", "bootstrapConfig": {}, "provisioningConfig": {"files": files},
        }))
        .unwrap();
        let verdict = judge(&pool(34), &content);
        assert!(verdict.problems[0].contains(first), "{}", verdict.problems[0]);
        assert_eq!(verdict.problems.len(), MAX_MISTAKES + 1);
    }
}

/// A default profile, the thresholds of the pool, a configuration, and how each further warning about it
/// begins or, behind the place, goes on.
const DOUBTFUL: &str = "
    osp-rockylinux | | {memorySwap: {swapBehavior: LimitedSwap}, failSwapOn: false} | on a machine with cgroup v1
    osp-rockylinux | | {memorySwap: {swapBehavior: LimitedSwap}} | on a machine with cgroup v1 | unless failSwapOn is false
    osp-ubuntu | | {memorySwap: {swapBehavior: LimitedSwap}, failSwapOn: false}
    osp-rockylinux | | {failCgroupV1: true} | kubelet.configuration.failCgroupV1 (true): on a machine with cgroup v1
    osp-rockylinux | | {singleProcessOOMKill: false} | on a machine with cgroup v1
    osp-rockylinux | | {enforceNodeAllocatable: [system-reserved], systemReservedCgroup: /a} | does not start on a machine without this cgroup
    osp-rockylinux | | {enforceNodeAllocatable: [kube-reserved-compressible], kubeReservedCgroup: /a} | does not start on a machine without this cgroup
    osp-rockylinux | | {evictionHard: {imagefs.available: 5%}}
    osp-rockylinux | memory.available nodefs.available | {evictionHard: {imagefs.available: 5%}} | evictionHard in /etc/kubernetes/kubelet.yaml turns off the kubelet's own thresholds for nodefs.inodesFree, imagefs.inodesFree;
";

/// Ubuntu has cgroup v2. Only the file itself, which has a pool's thresholds, loses the kubelet's own ones.
#[test]
fn what_depends_on_the_machine_is_a_warning() {
    for row in DOUBTFUL.trim().lines() {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [profile, thresholds, configuration, expected @ ..] = &cells[..] else {
            panic!("{row}")
        };
        let warnings = |configuration: &str| {
            let annotated = |pool: &mut Pool| {
                let set = thresholds.split_whitespace();
                let set = set.map(|name| (name.to_owned(), "5%".to_owned()));
                pool.kubelet.eviction_hard = Some(set.collect()).filter(|_| !thresholds.is_empty());
            };
            rendered(profile, 34, configuration, annotated).unwrap().warnings
        };
        let usual = warnings("{}");
        let mut found = warnings(configuration);
        found.retain(|warning| !usual.contains(warning));
        assert_eq!(found.len(), expected.len(), "{row}: {found:#?}");
        let mut both = found.iter().zip(expected);
        assert!(
            both.all(|(found, expected)| found.contains(expected)),
            "{row}: {found:#?}"
        );
    }
}

#[test]
fn a_go_profile_that_has_always_been_rendered_is_rendered_with_a_warning() {
    let file = json!({"path": "/etc/kubernetes/kubelet.conf", "content": {"inline": {"data":
        "kind: KubeletConfiguration\nserializeImagePulls: true\nmaxParallelImagePulls: {{ .KubeVersion | len }}\n"}}});
    let spec = serde_json::from_value(json!({
        "osName": "ubuntu", "osVersion": "1", "version": "v1.0.0", "supportedCloudProviders": [{"name": "aws"}],
        "bootstrapConfig": {}, "provisioningConfig": {"files": [file]},
    }))
    .unwrap();
    let (_, pool) = sample_pools(&spec).remove(0);
    let profile = compile(&resolve(&spec).unwrap()).unwrap();
    let rendered = profile
        .render(&pool, &Settings::default(), &stand_in_cluster())
        .unwrap();
    let is_told = |warning: &String| {
        warning.contains(" would not start: serializeImagePulls (true) in /etc/kubernetes/kubelet.conf")
    };
    assert!(rendered.warnings.iter().any(is_told), "{:#?}", rendered.warnings);
}
