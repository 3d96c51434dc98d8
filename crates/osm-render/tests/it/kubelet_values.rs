//! Which values of a kubelet's configuration we refuse, against Kubernetes' own defaulting, merging and
//! validation: the same ones, over documents that are made of valid and invalid parts at random.
//! `PROPTEST_CASES` sets how many for each version.

use std::collections::BTreeSet;

use osm_api::Settings;
use osm_api::pool::Pool;
use osm_api::profile::OperatingSystemProfileSpec;
use osm_judges::{KUBELET_MINORS, Statement, kubelet_feature_gates, kubelet_fields, kubelet_validation};
use osm_render::{Profile, sample_pools, stand_in_cluster};
use osm_user_data::yaml;
use proptest::prelude::Rng;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use semver::Version;
use serde_json::{Value, json};

use crate::common::compiled;

/// Configuration files that drop-ins change.
const BASES: &str = "
{}
{serializeImagePulls: false, maxParallelImagePulls: 10, failCgroupV1: false, serverTLSBootstrap: true, kubeReserved: {cpu: 200m}}
{maxPods: 50, enforceNodeAllocatable: [], featureGates: {AllAlpha: false}, podLogsDir: logs}
{evictionHard: {memory.available: 5%}, shutdownGracePeriod: 30s, logging: {format: json}}
";

/// Parts that are valid alone, if the version has their fields and gates.
const GOOD: &str = "
{maxPods: 0, port: 0, nodeLeaseDurationSeconds: 0, eventBurst: 0, kubeAPIBurst: 0, registryBurst: 0, maxOpenFiles: 0, podsPerCore: 10}
{maxPods: 250, port: 65535, nodeLeaseDurationSeconds: 1, eventRecordQPS: 0, kubeAPIQPS: 0, registryPullQPS: 0, readOnlyPort: 0}
{healthzPort: 0, oomScoreAdj: -1000, nodeStatusMaxImages: -1, iptablesDropBit: 0, iptablesMasqueradeBit: 31}
{oomScoreAdj: 1000, containerLogMaxFiles: 2, containerLogMaxWorkers: 1, containerLogMonitorInterval: 3s}
{imageGCHighThresholdPercent: 100, imageGCLowThresholdPercent: 99}
{imageGCHighThresholdPercent: 1, imageGCLowThresholdPercent: 0}
{imageMaximumGCAge: 2m0.000000001s}
{imageMaximumGCAge: 1m, imageMinimumGCAge: 30s}
{imageMaximumGCAge: 0s, imageMinimumGCAge: 0s}
{cpuCFSQuotaPeriod: 100ms}
{cpuCFSQuotaPeriod: 1s, featureGates: {CustomCPUCFSQuotaPeriod: true}}
{systemCgroups: /system.slice, cgroupRoot: /}
{serializeImagePulls: true, maxParallelImagePulls: 1}
{serializeImagePulls: false, maxParallelImagePulls: 2}
{registerWithTaints: [{key: a.example/b, value: c, effect: NoExecute}, {key: d}]}
{topologyManagerPolicy: single-numa-node, topologyManagerScope: pod}
{topologyManagerPolicy: '', topologyManagerScope: ''}
{shutdownGracePeriod: 30s, shutdownGracePeriodCriticalPods: 30s}
{shutdownGracePeriod: 0s, shutdownGracePeriodCriticalPods: 0s, shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 60}]}
{memorySwap: {swapBehavior: LimitedSwap}, failSwapOn: false}
{memorySwap: {swapBehavior: ''}}
{featureGates: {KubeletCrashLoopBackOffMax: true}, crashLoopBackOff: {maxContainerRestartPeriod: 1s}}
{featureGates: {KubeletCrashLoopBackOffMax: true}, crashLoopBackOff: {maxContainerRestartPeriod: 300.0009s}}
{enforceNodeAllocatable: [pods, system-reserved, kube-reserved-compressible], systemReservedCgroup: /system, kubeReservedCgroup: /kube}
{enforceNodeAllocatable: [none], cgroupsPerQOS: false}
{enforceNodeAllocatable: [], cgroupsPerQOS: false}
{hairpinMode: hairpin-veth}
{featureGates: {KubeletEnsureSecretPulledImages: true}, imagePullCredentialsVerificationPolicy: AlwaysVerify}
{featureGates: {KubeletEnsureSecretPulledImages: true}, imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages, preloadedImagesVerificationAllowlist: [registry.example:5000/a/b_c, 'registry.example/*', 'a/*', '[fd00::1]:5000/a']}
{reservedSystemCPUs: '0-3,+8,7-7'}
{reservedMemory: [{numaNode: 0, limits: {memory: 1Gi, hugepages-2Mi: 4}}, {numaNode: 1, limits: {memory: 1Gi}}]}
{userNamespaces: {idsPerPod: 131072}}
{logging: {format: json, verbosity: 2147483647, flushFrequency: 1}}
{logging: {format: text, flushFrequency: 0s, vmodule: [{filePattern: 'a*', verbosity: 9}]}}
{logging: {options: {json: {infoBufferSize: '0'}, text: {splitStream: false}}}}
{logging: {options: {json: {infoBufferSize: 64Ki, splitStream: true}}}, featureGates: {LoggingAlphaOptions: true}}
{tracing: {samplingRatePerMillion: 1000000, endpoint: 'localhost:4317'}}
{tracing: {endpoint: 'DNS://a.example:4317/b?c#d'}}
{tracing: {endpoint: 'unix:///run/a.sock', samplingRatePerMillion: 0}}
{memoryThrottlingFactor: 1.0, featureGates: {MemoryQoS: true}}
{memoryThrottlingFactor: 0.9}
{featureGates: {DefaultPodSysctls: true}, defaultPodSysctls: {net/ipv4/conf/eth0.1/rp_filter: '0', kernel.shmmax: '1', user.a_b-c: ''}}
{defaultPodSysctls: {}}
{featureGates: {NodeLogQuery: true}, enableSystemLogQuery: true}
{enableSystemLogQuery: false, enableSystemLogHandler: false}
{podLogsDir: /var/log/a.b}
{podLogsDir: /}
{featureGates: {MemoryQoS: true}, memoryReservationPolicy: TieredReservation}
{memoryReservationPolicy: None}
{featureGates: {AllBeta: true}}
{featureGates: {GracefulNodeShutdown: true, RotateKubeletServerCertificate: true}, serverTLSBootstrap: true}
{runOnce: false, syncFrequency: -5s, clusterDNS: [nonsense]}
";

/// Parts that are refused, if the version has their fields and gates.
const BAD: &str = "
{nodeLeaseDurationSeconds: -1}
{systemCgroups: /a, cgroupRoot: ''}
{eventBurst: -1}
{eventRecordQPS: -1}
{healthzPort: 65536}
{cpuCFSQuotaPeriod: 99ms, featureGates: {CustomCPUCFSQuotaPeriod: false}}
{cpuCFSQuotaPeriod: 1.000000001s, featureGates: {CustomCPUCFSQuotaPeriod: true}}
{imageGCHighThresholdPercent: 101}
{imageGCLowThresholdPercent: -1}
{imageGCHighThresholdPercent: 75}
{imageMaximumGCAge: -1s}
{imageMinimumGCAge: -1s}
{imageMaximumGCAge: 2m}
{imageMaximumGCAge: 24h, featureGates: {ImageMaximumGCAge: false}}
{iptablesDropBit: 32}
{iptablesMasqueradeBit: -1}
{kubeAPIBurst: -1}
{kubeAPIQPS: -1}
{nodeStatusMaxImages: -2}
{maxOpenFiles: -1}
{maxPods: -1}
{oomScoreAdj: 1001}
{podsPerCore: -1}
{port: 65536}
{readOnlyPort: -1}
{registryBurst: -1}
{registryPullQPS: -1}
{maxParallelImagePulls: 0}
{serializeImagePulls: true, maxParallelImagePulls: 2}
{serverTLSBootstrap: true, featureGates: {RotateKubeletServerCertificate: false}}
{runOnce: true}
{registerWithTaints: [{key: a/b/c}]}
{registerWithTaints: [{key: a, effect: Never}]}
{registerWithTaints: [{key: a, value: '-'}]}
{registerWithTaints: [{key: a, timeAdded: '2030-01-01T00:00:00Z'}]}
{topologyManagerPolicy: None}
{topologyManagerScope: node}
{shutdownGracePeriod: 30s, shutdownGracePeriodCriticalPods: 31s}
{shutdownGracePeriod: 0.5s}
{shutdownGracePeriod: 5s, shutdownGracePeriodCriticalPods: 0.5s}
{shutdownGracePeriod: 5s, featureGates: {GracefulNodeShutdown: false, GracefulNodeShutdownBasedOnPodPriority: false, WindowsGracefulNodeShutdown: false}}
{shutdownGracePeriod: 5s, shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 60}]}
{shutdownGracePeriod: 0s, shutdownGracePeriodByPodPriority: [{priority: 0}], featureGates: {GracefulNodeShutdownBasedOnPodPriority: false}}
{memorySwap: {swapBehavior: UnlimitedSwap}}
{memorySwap: {swapBehavior: NoSwap}, featureGates: {NodeSwap: false}}
{crashLoopBackOff: {maxContainerRestartPeriod: 1s}, featureGates: {KubeletCrashLoopBackOffMax: false}}
{crashLoopBackOff: {maxContainerRestartPeriod: 0.999s}, featureGates: {KubeletCrashLoopBackOffMax: true}}
{crashLoopBackOff: {maxContainerRestartPeriod: 300.001s}, featureGates: {KubeletCrashLoopBackOffMax: true}}
{crashLoopBackOff: , featureGates: {KubeletCrashLoopBackOffMax: false}}
{enforceNodeAllocatable: [system-reserved, system-reserved-compressible], systemReservedCgroup: /a}
{enforceNodeAllocatable: [kube-reserved, kube-reserved-compressible], kubeReservedCgroup: /a}
{enforceNodeAllocatable: [pods, pods]}
{enforceNodeAllocatable: [system-reserved], systemReservedCgroup: ''}
{enforceNodeAllocatable: [kube-reserved], kubeReservedCgroup: ''}
{enforceNodeAllocatable: [none, pods]}
{enforceNodeAllocatable: [Pods]}
{cgroupsPerQOS: false, enforceNodeAllocatable: [pods]}
{hairpinMode: veth}
{imagePullCredentialsVerificationPolicy: Never, featureGates: {KubeletEnsureSecretPulledImages: true}}
{imagePullCredentialsVerificationPolicy: AlwaysVerify, featureGates: {KubeletEnsureSecretPulledImages: false}}
{imagePullCredentialsVerificationPolicy: '', preloadedImagesVerificationAllowlist: [a], featureGates: {KubeletEnsureSecretPulledImages: false}}
{imagePullCredentialsVerificationPolicy: AlwaysVerify, preloadedImagesVerificationAllowlist: [a], featureGates: {KubeletEnsureSecretPulledImages: true}}
{imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages, preloadedImagesVerificationAllowlist: ['a:1'], featureGates: {KubeletEnsureSecretPulledImages: true}}
{imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages, preloadedImagesVerificationAllowlist: ['a*'], featureGates: {KubeletEnsureSecretPulledImages: true}}
{imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages, preloadedImagesVerificationAllowlist: ['/*'], featureGates: {KubeletEnsureSecretPulledImages: true}}
{imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages, preloadedImagesVerificationAllowlist: [' a/*'], featureGates: {KubeletEnsureSecretPulledImages: true}}
{reservedSystemCPUs: '0', systemReservedCgroup: /a}
{reservedSystemCPUs: '3-1'}
{reservedSystemCPUs: 0-}
{reservedMemory: [{numaNode: 0, limits: {memory: '0'}}]}
{reservedMemory: [{numaNode: 0, limits: {cpu: 1}}]}
{reservedMemory: [{numaNode: 0, limits: {memory: 1}}, {numaNode: 0, limits: {memory: 2}}]}
{userNamespaces: {idsPerPod: 1}}
{userNamespaces: {idsPerPod: 65537}}
{userNamespaces: {idsPerPod: 4294967296}}
{showHiddenMetricsForVersion: '1.20'}
{logging: {format: xml}}
{logging: {format: json, vmodule: [{filePattern: a, verbosity: 1}]}}
{logging: {format: json}, featureGates: {LoggingBetaOptions: false}}
{logging: {format: text, vmodule: [{filePattern: '', verbosity: 1}]}}
{logging: {format: text, vmodule: [{filePattern: 'a=b', verbosity: 1}]}}
{logging: {format: text, vmodule: [{filePattern: a, verbosity: 2147483648}]}}
{logging: {verbosity: 2147483648}}
{logging: {flushFrequency: -1s}}
{logging: {options: {json: {splitStream: true}}}}
{logging: {options: {text: {splitStream: true}}}}
{logging: {options: {json: {infoBufferSize: 1}}}}
{logging: {options: {text: {infoBufferSize: 1Ki}}}}
{tracing: {samplingRatePerMillion: 1000001}}
{tracing: {samplingRatePerMillion: -1}}
{tracing: {endpoint: 'https://a.example'}}
{tracing: {endpoint: 'a b'}}
{tracing: {endpoint: '//a'}}
{tracing: {endpoint: 'a:b'}}
{tracing: {endpoint: a}, featureGates: {KubeletTracing: false}}
{memoryThrottlingFactor: 0}
{memoryThrottlingFactor: 1.1}
{memoryThrottlingFactor: 0.8, featureGates: {MemoryQoS: false}}
{defaultPodSysctls: {net.core.somaxconn: '0'}, featureGates: {DefaultPodSysctls: false}}
{defaultPodSysctls: {net.core.Somaxconn: '1'}, featureGates: {DefaultPodSysctls: true}}
{defaultPodSysctls: {net.core.: '1'}, featureGates: {DefaultPodSysctls: true}}
{defaultPodSysctls: {vm.swappiness: '1'}, featureGates: {DefaultPodSysctls: true}}
{defaultPodSysctls: {netfilter: '1'}, featureGates: {DefaultPodSysctls: true}}
{defaultPodSysctls: {net.core.somaxconn: '1', net/core/somaxconn: '2'}, featureGates: {DefaultPodSysctls: true}}
{enableSystemLogQuery: true, featureGates: {NodeLogQuery: false}}
{enableSystemLogQuery: true, enableSystemLogHandler: false, featureGates: {NodeLogQuery: true}}
{containerLogMaxWorkers: 0}
{containerLogMonitorInterval: 2.9s}
{containerLogMaxFiles: 1}
{podLogsDir: var/log}
{podLogsDir: a, maxPods: 5}
{podLogsDir: /var/log/}
{podLogsDir: /var//log}
{podLogsDir: /var/../log}
{podLogsDir: /var/lög}
{podLogsDir: /é}
{memoryReservationPolicy: TieredReservation, featureGates: {MemoryQoS: false}}
{memoryReservationPolicy: Some}
{featureGates: {Imagined: true}}
{featureGates: {ImageVolume: false}}
{featureGates: {AllAlpha: true}}
{featureGates: {InPlacePodVerticalScaling: false, InPlacePodVerticalScalingExclusiveCPUs: true}}
";

/// Statements of the validation that no document can reach: defaulting has failed before, or has filled these
/// fields, or they depend on the machine.
const OUT_OF_REACH: [&str; 7] = [
    "localFeatureGate.Validate()",
    "CrashLoopBackOff.MaxContainerRestartPeriod must be set\"",
    "kc.PodLogsDir == \"\"",
    "podLogsDir was not specified",
    "the containerRuntimeEndpoint was not specified",
    "memoryThrottlingFactor is required",
    "cgroup v1",
];

/// The least number of times that each statement which refuses something has to run.
const TIMES: usize = 20;

fn parts(text: &str) -> Vec<Value> {
    let part = |line| yaml::read(line).unwrap().remove(0);
    text.trim().lines().map(part).collect()
}

fn pick<'v>(rng: &mut TestRng, values: &'v [Value]) -> &'v Value {
    &values[usize::try_from(rng.next_u32()).unwrap() % values.len()]
}

/// A configuration file and its drop-in. Two of five have no bad part.
fn document(i: usize, rng: &mut TestRng, [bases, good, bad]: [&[Value]; 3]) -> [Value; 2] {
    let mut files = [pick(rng, bases).clone(), json!({})];
    let mut chosen = Vec::new();
    if i % 5 < 2 {
        let count = 1 + rng.next_u32() % 2;
        chosen.extend((0..count).map(|_| pick(rng, good)));
    } else {
        // Each in turn, and others beside it.
        let turn = i / 5 * 3 + i % 5 - 2;
        chosen.extend((0..rng.next_u32() % 2).map(|_| pick(rng, good)));
        chosen.extend((0..1 + rng.next_u32() % 3).map(|_| pick(rng, bad)));
        let [other, this] = [turn + turn / bad.len() + 1, turn].map(|at| &bad[at % bad.len()]);
        chosen.extend([other, this]);
    }
    for part in chosen {
        let file = usize::from(!rng.next_u32().is_multiple_of(4));
        merge(&mut files[file], part);
    }
    files.map(|mut file| {
        file["apiVersion"] = json!("kubelet.config.k8s.io/v1beta1");
        file["kind"] = json!("KubeletConfiguration");
        file
    })
}

/// Adds the fields of one document to another one.
fn merge(to: &mut Value, from: &Value) {
    for (name, value) in from.as_object().unwrap() {
        match to.get_mut(name) {
            Some(Value::Object(_)) if value.is_object() => merge(&mut to[name], value),
            _ => to[name] = value.clone(),
        }
    }
}

fn profile(files: &[Value; 2]) -> Profile {
    let paths = ["kubelet.yaml", "kubelet.conf.d/10.conf"].map(|path| format!("/etc/kubernetes/{path}"));
    let texts = files.each_ref().map(|file| yaml::write(file).unwrap());
    let files = paths.iter().zip(texts);
    let files = files.map(|(path, text)| json!({"path": path, "content": {"inline": {"data": text}}}));
    let spec: OperatingSystemProfileSpec = serde_json::from_value(json!({
        "osName": "ubuntu", "osVersion": "1", "version": "v1.0.0", "templateEngine": "Handlebars",
        "supportedCloudProviders": [{"name": "aws"}], "bootstrapConfig": {},
        "provisioningConfig": {"files": files.collect::<Vec<_>>()},
    }))
    .unwrap();
    compiled(&spec)
}

/// What we think of a document.
fn ours(files: &[Value; 2], pool: &Pool) -> Result<(), String> {
    let rendered = profile(files).render(pool, &Settings::default(), &stand_in_cluster());
    rendered.map(drop).map_err(|error| {
        assert_eq!(error.reason(), "KubeletSettingsInvalid", "{error}");
        error.to_string()
    })
}

#[test]
fn we_refuse_what_a_kubelet_refuses() {
    let cases = std::env::var("PROPTEST_CASES").ok();
    let cases: usize = cases.map_or(2000, |cases| cases.parse().unwrap());
    let (bases, good, bad) = (parts(BASES), parts(GOOD), parts(BAD));
    for minor in KUBELET_MINORS {
        let (_, pool) = sample_pools(profile(&[json!({}), json!({})]).spec()).remove(0);
        let pool = Pool {
            kubelet_version: Version::parse(&format!("{minor}.0")).unwrap(),
            ..pool
        };
        // Files are decoded strictly by the judge.
        let fields: BTreeSet<String> = kubelet_fields(minor).unwrap().into_iter().collect();
        let is_known = |name: &str| {
            let start = format!("KubeletConfiguration.{name} ");
            ["apiVersion", "kind"].contains(&name) || fields.iter().any(|line| line.starts_with(&start))
        };
        let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let documents: Vec<[Value; 2]> = (0..cases)
            .map(|i| {
                let mut files = document(i, runner.rng(), [&bases, &good, &bad]);
                for file in &mut files {
                    file.as_object_mut().unwrap().retain(|name, _| is_known(name));
                }
                files
            })
            .collect();
        let text = |[file, drop_in]: &[Value; 2]| format!("{file}\n---\n{drop_in}");
        let texts: Vec<String> = documents.iter().map(text).collect();
        let (theirs, statements) = kubelet_validation(minor, &texts).unwrap();

        let mut differences = Vec::new();
        for (files, theirs) in documents.iter().zip(&theirs) {
            let ours = ours(files, &pool);
            if ours.is_ok() != theirs.is_empty() {
                let [file, drop_in] = files;
                let opinions = format!("ours: {ours:?}\ntheirs: {theirs:?}");
                differences.push(format!("{file}\n{drop_in}\n{opinions}"));
            }
        }
        let differ = differences.len();
        differences.truncate(10);
        let shown = differences.join("\n\n");
        assert_eq!(differ, 0, "{minor}: of {cases} differ:\n{shown}");
        let valid = theirs.iter().filter(|complaints| complaints.is_empty()).count();
        assert!(valid * 3 >= cases, "{minor}: {valid} of {cases} are valid");
        let refusals = refusals(minor, &statements);
        let mut rare = refusals.clone();
        rare.retain(|statement| statement.count < TIMES);
        assert!(rare.is_empty(), "{minor}: {rare:#?}");
        let refusals = refusals.len();
        println!("{minor}: {cases} documents, {valid} valid, {refusals} statements refuse something");
    }
}

/// The statements that refuse something and can be reached.
fn refusals<'s>(minor: &str, statements: &'s [Statement]) -> Vec<&'s Statement> {
    let gates = kubelet_feature_gates(minor).unwrap();
    let locked = gates.iter().filter_map(|line| {
        let name = line.contains(" on locked").then(|| line.split(' ').next())??;
        Some(format!("!localFeatureGate.Enabled(features.{name})"))
    });
    let mut never = OUT_OF_REACH.map(str::to_owned).to_vec();
    never.extend(locked);
    let refuses = |statement: &&Statement| {
        let has = |words: &str| statement.source.contains(words);
        // Longer ones contain others.
        statement.source.lines().count() <= 4
            && ["append(allErrors", "append(errors", "return fmt.Errorf"]
                .into_iter()
                .any(has)
            && !never.iter().any(|words| has(words))
    };
    statements.iter().filter(refuses).collect()
}
