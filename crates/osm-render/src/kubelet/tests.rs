use osm_api::settings::Settings;
use semver::Version;

use super::*;
use crate::{defaults, sample_pools};

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

/// What a configuration, as YAML, is told by kubelet 1.36.
fn told(configuration: &str) -> Vec<String> {
    of(36, &format!("kubelet: {{configuration: {configuration}}}"))
}

/// Configurations, each with the path of its mistake and a part of what is told.
const MISTAKES: &str = "
    {apiVersion: s77} | apiVersion | must be kubelet.config.k8s.io/v1beta1
    {kind: s77} | kind | must be KubeletConfiguration
    {maxpods: 77} | maxpods | kubelet 1.36 has no such field
    {maxPods: s77} | maxPods | must be a whole number
    {maxPods: } | maxPods | is empty
    {evictionHard: {memory.available: s77}} | evictionHard.memory.available | must be a quantity
    {evictionHard: {memory.free: 77Mi}} | evictionHard.memory.free | is not an eviction signal
    {kubeReserved: {gpu: '77'}} | kubeReserved.gpu | can't be reserved
    {systemReserved: {cpu: '-77'}} | systemReserved.cpu | must not be negative
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
        assert!(
            mistake.starts_with(&format!("kubelet.configuration.{path}: ")),
            "{bad}: {mistake}"
        );
        assert!(mistake.contains(problem), "{bad}: {mistake}");
        assert!(!mistake.contains("77"), "the value is repeated: {mistake}");
    }
}

#[test]
fn all_mistakes_are_told_at_once_and_not_without_end() {
    let told =
        told("{maxPods: a, maxpods: 1, evictionHard: {a: b, memory.available: c}, clusterDNS: [1, 2]}");
    assert_eq!(told.len(), 6, "{told:#?}");
    let many: Vec<String> = (0..200).map(|i| format!("field{i}: 1")).collect();
    let told = self::told(&format!("{{{}}}", many.join(", ")));
    assert_eq!(
        (told.len(), told.last().unwrap().as_str()),
        (MAX_MISTAKES + 1, "and 150 more")
    );
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
