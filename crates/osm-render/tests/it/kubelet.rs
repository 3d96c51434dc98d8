//! What we take and refuse of a kubelet's configuration, against Kubernetes' own decoders.
use osm_api::Settings;
use osm_api::pool::Pool;
use osm_api::profile::OperatingSystemProfileSpec;
use osm_judges::{KUBELET_MINORS, kubelet_configs};
use osm_render::{Profile, sample_pools, stand_in_cluster};
use osm_user_data::yaml;
use semver::Version;
use serde_json::json;

use crate::common::compiled;

/// Configurations, some of which are usual, and many of which no kubelet can decode.
const CONFIGURATIONS: [&str; 75] = [
    "{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration}",
    "{maxPods: 0, podPidsLimit: -1, memoryThrottlingFactor: 0.9, seccompDefault: true}",
    "{evictionHard: {memory.available: 5%, nodefs.available: 1Gi, pid.available: 0%}}",
    "{evictionSoft: {memory.available: 500Mi}, evictionSoftGracePeriod: {memory.available: 1m30s}}",
    "{systemReserved: {cpu: '2', memory: 1.5Gi, ephemeral-storage: '1e9', pid: '100'}}",
    "{shutdownGracePeriod: 1m, shutdownGracePeriodCriticalPods: 10s}",
    "{logging: {format: json, flushFrequency: 5000000000, verbosity: 2, options: {json: {infoBufferSize: 64Ki}}}}",
    "{logging: {flushFrequency: 5s, vmodule: [{filePattern: a*, verbosity: 5}]}}",
    "{reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}, {numaNode: 1, limits: {memory: 100}}]}",
    "{registerWithTaints: [{key: a.example/b, value: c, effect: NoSchedule}]}",
    "{authentication: {webhook: {cacheTTL: 30s}}, authorization: {webhook: {cacheAuthorizedTTL: 5m0s}}}",
    "{serializeImagePulls: true, maxParallelImagePulls: 1}",
    "{imageGCHighThresholdPercent: 70, imageGCLowThresholdPercent: 60, imageMaximumGCAge: 24h}",
    "{enforceNodeAllocatable: [pods, system-reserved], systemReservedCgroup: /system.slice}",
    "{kubeReserved: {cpu: '1'}, cpuManagerPolicy: static, cpuManagerPolicyOptions: {full-pcpus-only: 'true'}}",
    "{featureGates: {AllAlpha: false, ImageMaximumGCAge: true, RotateKubeletServerCertificate: true}}",
    "{}",
    "{maxPods: 5}",
    "{maxPods: '5'}",
    "{maxPods: 5.5}",
    "{maxPods: 2147483648}",
    "{maxpods: 5}",
    "{maxPods: true}",
    "{podPidsLimit: 9007199254740993}",
    "{podPidsLimit: many}",
    "{memoryThrottlingFactor: 1}",
    "{memoryThrottlingFactor: '1'}",
    "{seccompDefault: 'true'}",
    "{clusterDNS: [10.0.0.1]}",
    "{clusterDNS: 10.0.0.1}",
    "{clusterDNS: [1]}",
    "{evictionHard: {memory.available: 5}}",
    "{evictionHard: [memory.available]}",
    "{syncFrequency: 1m}",
    "{syncFrequency: 1h2m3.5s}",
    "{syncFrequency: '0'}",
    "{syncFrequency: ''}",
    "{syncFrequency: 60}",
    "{syncFrequency: 1 m}",
    "{syncFrequency: 1d}",
    "{syncFrequency: .5s}",
    "{syncFrequency: 5.}",
    "{syncFrequency: 1us}",
    "{syncFrequency: 2562048h}",
    "{syncFrequency: 1h-1m}",
    "{logging: {verbosity: -1}}",
    "{logging: {flushFrequency: 5s}}",
    "{logging: {flushFrequency: 5000000000}}",
    "{logging: {flushFrequency: 5.5}}",
    "{logging: {flushFrequency: soon}}",
    "{logging: {options: {json: {splitStream: true, infoBufferSize: 64Ki}}}}",
    "{logging: {options: {json: {infoBufferSize: 64KB}}}}",
    "{logging: {options: {json: {infoBufferSize: 65536}}}}",
    "{logging: {options: {yaml: {}}}}",
    "{logging: {vmodule: a=1}}",
    "{reservedMemory: [{numaNode: 0, limits: {memory: 1.5e3}}]}",
    "{reservedMemory: [{numaNode: 0, limits: {memory: 1e3}}]}",
    "{reservedMemory: [{numaNode: 0, limits: {memory: .5Gi}}]}",
    "{reservedMemory: [{numaNode: 0, limits: {memory: '1.'}}]}",
    "{reservedMemory: [{numaNode: 0, limits: {memory: 1K}}]}",
    "{reservedMemory: [{numaNode: 0, limits: {memory: 1E}}]}",
    "{reservedMemory: [{numaNode: 0, limits: {memory: '1e'}}]}",
    "{reservedMemory: [{numaNode: 0, limits: {memory: 1 Gi}}]}",
    "{reservedMemory: [{numaNode: 0, limits: {memory: true}}]}",
    "{reservedMemory: [{numaNode: a, limits: {}}]}",
    "{registerWithTaints: [{key: a, effect: NoSchedule, colour: red}]}",
    "{featureGates: {AllAlpha: 'no'}}",
    "{featureGates: {CustomCPUCFSQuotaPeriod: true}}",
    "{featureGates: {CPUCFSQuotaPeriod: true}}",
    "{featureGates: {Imagined: true}}",
    "{featureGates: {KubeletTracing: false}}",
    "{memoryReservationPolicy: None}",
    "{tlsCurvePreferences: [29]}",
    "{defaultPodSysctls: {net.core.somaxconn: '9'}, featureGates: {DefaultPodSysctls: true}}",
    "{userNamespaces: {idsPerPod: 65536}}",
];

/// A profile that writes the drop-in and nothing else.
fn profile() -> (Profile, Pool) {
    let spec: OperatingSystemProfileSpec = serde_json::from_value(json!({
        "osName": "ubuntu", "osVersion": "1", "version": "v1.0.0", "templateEngine": "Handlebars",
        "supportedCloudProviders": [{"name": "aws"}], "bootstrapConfig": {},
        "provisioningConfig": {"files": [
            {"path": "/drop-in", "content": {"inline": {"data": "{{> lib/kubelet-settings.conf}}"}}},
        ]},
    }))
    .unwrap();
    let (_, pool) = sample_pools(&spec).remove(0);
    (compiled(&spec), pool)
}

/// What we think of a configuration, and the drop-in if it is good.
fn ours(profile: &Profile, pool: &Pool, configuration: &str) -> Result<Option<String>, String> {
    let settings = Settings::parse(&format!("kubelet: {{configuration: {configuration}}}")).unwrap();
    let rendered = profile
        .render(pool, &settings, &stand_in_cluster())
        .map_err(|error| error.to_string())?;
    let file = rendered.spec.provisioning_config.files.into_iter().next();
    Ok(file.map(|file| file.content.inline.unwrap().data))
}

#[test]
fn we_take_and_refuse_what_kubernetes_takes_and_refuses() {
    let (profile, pool) = profile();
    for minor in KUBELET_MINORS {
        let version = Version::parse(&format!("{minor}.0")).unwrap();
        let pool = Pool {
            kubelet_version: version,
            ..pool.clone()
        };
        let texts = CONFIGURATIONS.map(|configuration| {
            let mut document = yaml::read(configuration).unwrap().remove(0);
            document["apiVersion"] = "kubelet.config.k8s.io/v1beta1".into();
            document["kind"] = "KubeletConfiguration".into();
            document.to_string()
        });
        let documents: Vec<(&str, &str)> = CONFIGURATIONS
            .iter()
            .zip(&texts)
            .map(|(name, text)| (*name, text.as_str()))
            .collect();
        let verdict = kubelet_configs(&documents, minor).expect_err("some are bad");
        let mut drop_ins = Vec::new();
        for (configuration, _) in documents {
            let theirs: Vec<String> = verdict
                .iter()
                .filter(|complaint| complaint.document == configuration)
                .map(ToString::to_string)
                .collect();
            let ours = ours(&profile, &pool, configuration);
            assert_eq!(
                ours.is_ok(),
                theirs.is_empty(),
                "{minor}: {configuration}: {ours:?}, but {theirs:#?}"
            );
            drop_ins.extend(ours.ok().flatten().map(|text| (configuration, text)));
        }
        let drop_ins: Vec<_> = drop_ins
            .iter()
            .map(|(name, text)| (*name, text.as_str()))
            .collect();
        kubelet_configs(&drop_ins, minor).unwrap();
    }
}
