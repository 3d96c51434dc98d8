//! Checks what a kubelet refuses at its start although each field has its type: the rules of
//! `ValidateKubeletConfiguration` in pkg/kubelet/apis/config/validation/validation.go of Kubernetes 1.33 to
//! 1.37 and of what it calls, and those of what its program does next. tests/it/kubelet_values.rs holds the
//! former against Kubernetes' own code.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use osm_api::{kubelet_value, labels, system_names};
use regex::Regex;
use serde_json::Value;

use super::merged::{Merged, is_zero};

/// Checks an entry of a field: its name and value.
type Check = fn(&str, &str) -> Result<(), &'static str>;

/// Fields with quantities by name, and what checks their entries.
const ENTRIES: [(&str, Check); 5] = [
    ("evictionHard", kubelet_value::eviction_threshold),
    ("evictionMinimumReclaim", kubelet_value::minimum_reclaim),
    ("evictionSoft", kubelet_value::eviction_threshold),
    ("kubeReserved", kubelet_value::reservation),
    ("systemReserved", kubelet_value::reservation),
];

/// A rule that a configuration breaks: the fields that it is about, and what they must be.
pub(super) struct Broken {
    pub(super) fields: Vec<String>,
    pub(super) rule: String,
}

/// Numbers, with the least and the largest that they may be.
const NUMBERS: [(&str, f64, f64); 24] = [
    ("containerLogMaxFiles", 2.0, MAX),
    ("containerLogMaxWorkers", 1.0, MAX),
    ("eventBurst", 0.0, MAX),
    ("eventRecordQPS", 0.0, MAX),
    ("healthzPort", 0.0, 65535.0),
    ("imageGCHighThresholdPercent", 0.0, 100.0),
    ("imageGCLowThresholdPercent", 0.0, 100.0),
    ("iptablesDropBit", 0.0, 31.0),
    ("iptablesMasqueradeBit", 0.0, 31.0),
    ("kubeAPIBurst", 0.0, MAX),
    ("kubeAPIQPS", 0.0, MAX),
    ("logging.verbosity", 0.0, 2_147_483_647.0),
    ("maxOpenFiles", 0.0, MAX),
    ("maxParallelImagePulls", 1.0, MAX),
    ("maxPods", 0.0, MAX),
    ("nodeLeaseDurationSeconds", 1.0, MAX),
    ("nodeStatusMaxImages", -1.0, MAX),
    ("oomScoreAdj", -1000.0, 1000.0),
    ("podsPerCore", 0.0, MAX),
    ("port", 1.0, 65535.0),
    ("readOnlyPort", 0.0, 65535.0),
    ("registryBurst", 0.0, MAX),
    ("registryPullQPS", 0.0, MAX),
    ("tracing.samplingRatePerMillion", 0.0, 1_000_000.0),
];

/// For fields that have only a lower bound.
const MAX: f64 = f64::INFINITY;

/// Fields that may only be set while a feature gate is on, and the gate.
const GATED: [(&str, &str); 15] = [
    (
        "crashLoopBackOff.maxContainerRestartPeriod",
        "KubeletCrashLoopBackOffMax",
    ),
    ("defaultPodSysctls", "DefaultPodSysctls"),
    ("enableSystemLogQuery", "NodeLogQuery"),
    ("imageMaximumGCAge", "ImageMaximumGCAge"),
    (
        "imagePullCredentialsVerificationPolicy",
        "KubeletEnsureSecretPulledImages",
    ),
    ("logging.options.json.infoBufferSize", "LoggingAlphaOptions"),
    ("logging.options.json.splitStream", "LoggingAlphaOptions"),
    ("logging.options.text.infoBufferSize", "LoggingAlphaOptions"),
    ("logging.options.text.splitStream", "LoggingAlphaOptions"),
    ("memorySwap.swapBehavior", "NodeSwap"),
    (
        "preloadedImagesVerificationAllowlist",
        "KubeletEnsureSecretPulledImages",
    ),
    ("serverTLSBootstrap", "RotateKubeletServerCertificate"),
    (
        "shutdownGracePeriodByPodPriority",
        "GracefulNodeShutdownBasedOnPodPriority",
    ),
    ("topologyManagerPolicyOptions", "TopologyManagerPolicyOptions"),
    ("tracing", "KubeletTracing"),
];

/// Texts, with all that they may be. One that has a gate is judged while its gate is on.
const CHOICES: [(&str, &[&str]); 10] = [
    ("cpuManagerPolicy", &["none", "static"]),
    ("hairpinMode", &["none", "hairpin-veth", "promiscuous-bridge"]),
    ("logging.format", &["text", "json"]),
    ("memoryManagerPolicy", &["None", "Static"]),
    ("memoryReservationPolicy", &["None", "TieredReservation"]),
    (
        "tlsMinVersion",
        &["", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"],
    ),
    (
        "topologyManagerPolicy",
        &["none", "best-effort", "restricted", "single-numa-node"],
    ),
    ("topologyManagerScope", &["container", "pod"]),
    ("memorySwap.swapBehavior", &["", "NoSwap", "LimitedSwap"]),
    (
        "imagePullCredentialsVerificationPolicy",
        &[
            "NeverVerify",
            "NeverVerifyPreloadedImages",
            "NeverVerifyAllowlistedImages",
            "AlwaysVerify",
        ],
    ),
];

/// What `enforceNodeAllocatable` may list, and the cgroup that an entry needs.
const ENFORCED: [(&str, Option<&str>); 6] = [
    ("none", None),
    ("pods", None),
    ("system-reserved", Some("systemReservedCgroup")),
    ("system-reserved-compressible", Some("systemReservedCgroup")),
    ("kube-reserved", Some("kubeReservedCgroup")),
    ("kube-reserved-compressible", Some("kubeReservedCgroup")),
];

/// Kernel parameters that each pod can have for itself, besides those with the beginnings
/// [`NAMESPACED_STARTS`] (`namespaceOf` in node/util/sysctl/namespace.go of k8s.io/component-helpers).
const NAMESPACED: [&str; 11] = [
    "kernel.domainname",
    "kernel.msg",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
    "kernel.shm",
    "kernel.shm_rmid_forced",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
];

const NAMESPACED_STARTS: [&str; 3] = ["fs.mqueue.", "net.", "user."];

type Contradicts = fn(&Merged) -> bool;

/// Fields that contradict each other, when they do, and what to do about it.
const PAIRS: [(&[&str], Contradicts, &str); 16] = [
    (
        &["systemCgroups", "cgroupRoot"],
        |c| c.is_set("systemCgroups") && !c.is_set("cgroupRoot"),
        "needs cgroupRoot",
    ),
    (
        &["imageGCHighThresholdPercent", "imageGCLowThresholdPercent"],
        |c| c.number("imageGCLowThresholdPercent") >= c.number("imageGCHighThresholdPercent"),
        "must be above imageGCLowThresholdPercent, which is 80 unless it is set",
    ),
    (
        &["imageMaximumGCAge", "imageMinimumGCAge"],
        |c| {
            let longest = c.seconds("imageMaximumGCAge");
            longest > 0.0 && longest <= c.seconds("imageMinimumGCAge")
        },
        "must be longer than imageMinimumGCAge, which is 2m unless it is set",
    ),
    (
        &["serializeImagePulls", "maxParallelImagePulls"],
        |c| c.is_true("serializeImagePulls") && c.number("maxParallelImagePulls") > Some(1.0),
        "does not go with a maxParallelImagePulls above 1; set maxParallelImagePulls: 1, or serializeImagePulls: false",
    ),
    (
        &["shutdownGracePeriodCriticalPods", "shutdownGracePeriod"],
        |c| {
            c.is_on("GracefulNodeShutdown")
                && c.seconds("shutdownGracePeriodCriticalPods") > c.seconds("shutdownGracePeriod")
        },
        "is a part of shutdownGracePeriod, so it must not be longer",
    ),
    (
        &["shutdownGracePeriodByPodPriority", "shutdownGracePeriod"],
        |c| {
            c.is_on("GracefulNodeShutdownBasedOnPodPriority")
                && !c.list("shutdownGracePeriodByPodPriority").is_empty()
                && (c.seconds("shutdownGracePeriod") > 0.0
                    || c.seconds("shutdownGracePeriodCriticalPods") > 0.0)
        },
        "does not go with shutdownGracePeriod; remove one of them",
    ),
    (
        &["shutdownGracePeriod", "shutdownGracePeriodCriticalPods"],
        |c| {
            c.is_off("GracefulNodeShutdown")
                && (c.seconds("shutdownGracePeriod") > 0.0
                    || c.seconds("shutdownGracePeriodCriticalPods") > 0.0)
        },
        "needs the feature gate GracefulNodeShutdown",
    ),
    (
        &[
            "preloadedImagesVerificationAllowlist",
            "imagePullCredentialsVerificationPolicy",
        ],
        |c| {
            c.is_on("KubeletEnsureSecretPulledImages")
                && !c.list("preloadedImagesVerificationAllowlist").is_empty()
                && c.text("imagePullCredentialsVerificationPolicy") != "NeverVerifyAllowlistedImages"
        },
        "needs imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages",
    ),
    (
        &["reservedSystemCPUs", "systemReservedCgroup", "kubeReservedCgroup"],
        |c| {
            !c.text("reservedSystemCPUs").is_empty()
                && (c.is_set("systemReservedCgroup") || c.is_set("kubeReservedCgroup"))
        },
        "does not go with systemReservedCgroup and kubeReservedCgroup",
    ),
    (
        &["logging.vmodule", "logging.format"],
        |c| !c.list("logging.vmodule").is_empty() && c.text("logging.format") != "text",
        "needs logging.format: text",
    ),
    (
        &["enableSystemLogQuery", "enableSystemLogHandler"],
        |c| c.is_true("enableSystemLogQuery") && !c.is_true("enableSystemLogHandler"),
        "needs enableSystemLogHandler: true",
    ),
    (
        &["memoryReservationPolicy", "featureGates.MemoryQoS"],
        |c| c.is_off("MemoryQoS") && c.since(36) && c.text("memoryReservationPolicy") == "TieredReservation",
        "can only be TieredReservation with the feature gate MemoryQoS",
    ),
    (
        &["memoryThrottlingFactor", "featureGates.MemoryQoS"],
        // The default of older kubelets, which files may still have.
        #[expect(clippy::float_cmp, reason = "Kubernetes compares the same two numbers.")]
        |c| {
            c.is_off("MemoryQoS")
                && c.since(37)
                && c.number("memoryThrottlingFactor")
                    .is_some_and(|factor| factor != 0.9)
        },
        "can only be another number than 0.9 with the feature gate MemoryQoS",
    ),
    (
        &["logging.format", "featureGates.LoggingBetaOptions"],
        |c| c.is_off("LoggingBetaOptions") && c.text("logging.format") == "json",
        "can only be json with the feature gate LoggingBetaOptions",
    ),
    (&["runOnce"], |c| c.is_true("runOnce"), "must not be true"),
    // `NewManager` in pkg/kubelet/cm/cpumanager/cpu_manager.go.
    (
        &["cpuManagerPolicy", "systemReserved", "kubeReserved"],
        |c| {
            let is_reserved = |list: &str| {
                c.entries(list)
                    .any(|(name, value)| name == "cpu" && !is_zero(value))
            };
            c.text("cpuManagerPolicy") == "static"
                && !(!c.text("reservedSystemCPUs").is_empty()
                    || is_reserved("systemReserved")
                    || is_reserved("kubeReserved"))
        },
        "can only be static if CPU is reserved by systemReserved, kubeReserved or reservedSystemCPUs",
    ),
];

type IsWrong = fn(&Merged, f64) -> bool;

/// Durations that have bounds, in seconds.
const DURATIONS: [(&str, IsWrong, &str); 9] = [
    ("imageMaximumGCAge", |_, age| age < 0.0, "must not be negative"),
    (
        "imageMinimumGCAge",
        |c, age| c.since(36) && age < 0.0,
        "must not be negative",
    ),
    (
        "containerLogMonitorInterval",
        |_, pause| pause < 3.0,
        "must be at least 3s",
    ),
    (
        "logging.flushFrequency",
        |c, pause| c.since(35) && pause <= 0.0,
        "must be above 0s",
    ),
    (
        "cpuCFSQuotaPeriod",
        #[expect(clippy::float_cmp, reason = "Both are the same quotient.")]
        |c, period| c.is_off("CustomCPUCFSQuotaPeriod") && period != 0.1,
        "can only be another time than 100ms with the feature gate CustomCPUCFSQuotaPeriod",
    ),
    (
        "cpuCFSQuotaPeriod",
        |c, period| c.is_on("CustomCPUCFSQuotaPeriod") && !(0.001..=1.0).contains(&period),
        "must be from 1ms to 1s",
    ),
    (
        "shutdownGracePeriod",
        is_short_shutdown,
        "must be 0s, or at least 1s",
    ),
    (
        "shutdownGracePeriodCriticalPods",
        is_short_shutdown,
        "must be 0s, or at least 1s",
    ),
    (
        "crashLoopBackOff.maxContainerRestartPeriod",
        // Whole milliseconds count.
        |c, period| c.is_on("KubeletCrashLoopBackOffMax") && !(1.0..300.001).contains(&period),
        "must be from 1s to 300s",
    ),
];

fn is_short_shutdown(c: &Merged, period: f64) -> bool {
    c.is_on("GracefulNodeShutdown") && period < 1.0 && period != 0.0
}

/// The rules that a configuration breaks, whose fields have their types.
pub(super) fn broken(c: &Merged) -> Vec<Broken> {
    let mut all = Found(Vec::new());
    numbers(c, &mut all);
    for (field, gate) in GATED {
        // Newer kubelets have no gate of it.
        let is_asked_for = field != "tracing" || !c.since(34);
        all.check(field, is_asked_for && c.is_off(gate) && is_used(c, field), || {
            format!("can only be set with the feature gate {gate}")
        });
    }
    for (field, choices) in CHOICES {
        let gate = GATED.iter().find(|(gated, _)| *gated == field);
        let is_judged = gate.is_none_or(|(_, gate)| c.is_on(gate));
        let is_known = field != "memoryReservationPolicy" || c.since(36);
        let is_one = choices.contains(&c.text(field));
        all.choice(field, choices, is_judged && is_known && !is_one);
    }
    for (field, is_wrong, rule) in DURATIONS {
        let is_set = c.get(field).is_some();
        all.check(field, is_set && is_wrong(c, c.seconds(field)), || rule.to_owned());
    }
    for (fields, contradict, rule) in PAIRS {
        if contradict(c) {
            all.0.push(Broken {
                fields: fields.iter().map(ToString::to_string).collect(),
                rule: rule.to_owned(),
            });
        }
    }
    gates(c, &mut all);
    enforced(c, &mut all);
    reserved_memory(c, &mut all);
    pod_sysctls(c, &mut all);
    texts(c, &mut all);
    all.0
}

/// Whether a field differs from its default. A pointer counts if it is there at all.
fn is_used(c: &Merged, field: &str) -> bool {
    match field {
        "tracing" | "crashLoopBackOff.maxContainerRestartPeriod" | "topologyManagerPolicyOptions" => {
            c.get(field).is_some()
        }
        // Even if all parameters are 0.
        "defaultPodSysctls" => c.entries(field).next().is_some(),
        _ => c.is_set(field),
    }
}

struct Found(Vec<Broken>);

impl Found {
    fn check(&mut self, field: &str, is_wrong: bool, rule: impl FnOnce() -> String) {
        if is_wrong {
            self.0.push(Broken {
                fields: vec![field.to_owned()],
                rule: rule(),
            });
        }
    }

    fn choice(&mut self, field: &str, choices: &[&str], is_wrong: bool) {
        let named: Vec<&str> = choices
            .iter()
            .copied()
            .filter(|choice| !choice.is_empty())
            .collect();
        self.check(field, is_wrong, || format!("must be one of {}", named.join(", ")));
    }
}

fn numbers(c: &Merged, all: &mut Found) {
    for (field, least, largest) in NUMBERS {
        let is_wrong = c
            .number(field)
            .is_some_and(|number| !(least..=largest).contains(&number));
        all.check(field, is_wrong, || {
            if largest == MAX {
                format!("must be at least {least}")
            } else {
                format!("must be from {least} to {largest}")
            }
        });
    }
    let factor = c.number("memoryThrottlingFactor").unwrap_or(1.0);
    all.check("memoryThrottlingFactor", !(factor > 0.0 && factor <= 1.0), || {
        "must be above 0 and at most 1".to_owned()
    });
    let ids = c.get("userNamespaces.idsPerPod").and_then(Value::as_i64);
    let fits = |ids: i64| (65536..=i64::from(u32::MAX)).contains(&ids) && ids % 65536 == 0;
    all.check(
        "userNamespaces.idsPerPod",
        ids.is_some_and(|ids| !fits(ids)),
        || "must be a multiple of 65536, and fit into 32 bits".to_owned(),
    );
}

/// `SetFromMap` in featuregate/feature_gate.go of k8s.io/component-base, which also minds what gates depend
/// on.
fn gates(c: &Merged, all: &mut Found) {
    let kubelet = c.kubelet();
    if !kubelet.known {
        return;
    }
    let version = &kubelet.judged_as;
    for (name, value) in c.entries("featureGates") {
        let field = format!("featureGates.{name}");
        match kubelet.gate(name) {
            None => all.check(&field, true, || {
                format!("kubelet {version} knows no such feature gate")
            }),
            Some(gate) => all.check(&field, gate.is_locked && *value != gate.is_on, || {
                format!("kubelet {version} takes only {}", gate.is_on)
            }),
        }
    }
    for (name, gate) in kubelet.gates_with_needs() {
        let is_off = |needed: &&str| kubelet.gate(needed).is_some_and(|gate| !c.value(needed, &gate));
        let missing = gate
            .needs
            .split(',')
            .find(is_off)
            .filter(|_| c.value(name, &gate));
        let field = format!("featureGates.{name}");
        all.check(&field, missing.is_some(), || {
            format!("needs the feature gate {}", missing.unwrap_or_default())
        });
    }
}

fn enforced(c: &Merged, all: &mut Found) {
    let list = "enforceNodeAllocatable";
    let listed: BTreeSet<&str> = c.texts(list).collect();
    let mut seen = BTreeSet::new();
    for name in c.texts(list) {
        let Some((_, cgroup)) = ENFORCED.iter().find(|(known, _)| *known == name) else {
            all.choice(list, &ENFORCED.map(|(known, _)| known), true);
            continue;
        };
        all.check(list, !seen.insert(name), || format!("must not list {name} twice"));
        let compressible = format!("{name}-compressible");
        all.check(list, listed.contains(&*compressible), || {
            format!("must not list both {name} and {compressible}")
        });
        if let Some(cgroup) = cgroup {
            all.check(list, !c.is_set(cgroup), || {
                format!("can only list {name} with {cgroup}")
            });
        }
        match name {
            "none" => all.check(list, listed.len() > 1, || {
                "must list nothing besides none".to_owned()
            }),
            _ => all.check("cgroupsPerQOS", !c.is_true("cgroupsPerQOS"), || {
                format!("must be true while {list} has {name}; set {list}: []")
            }),
        }
    }
}

fn reserved_memory(c: &Merged, all: &mut Found) {
    let list = "reservedMemory";
    let mut seen = BTreeSet::new();
    for (i, item) in c.list(list).iter().enumerate() {
        let node = item.get("numaNode").and_then(Value::as_i64).unwrap_or_default();
        let limits = item.get("limits").and_then(Value::as_object);
        for (name, value) in limits.into_iter().flatten() {
            let at = format!("{list}[{i}].limits.{name}");
            let is_known = name == "memory" || name.starts_with("hugepages-");
            all.check(list, !is_known, || {
                format!("must have no {at}: only memory and hugepages-<size> can be reserved")
            });
            all.check(list, is_zero(value), || format!("must not be zero in {at}"));
            all.check(list, !seen.insert((node, name)), || {
                format!("must have {name} of NUMA node {node} only once")
            });
        }
    }
}

fn pod_sysctls(c: &Merged, all: &mut Found) {
    let list = "defaultPodSysctls";
    if !c.is_on("DefaultPodSysctls") {
        return;
    }
    let mut seen = BTreeSet::new();
    for (name, _) in c.entries(list) {
        let field = format!("{list}.{name}");
        let dotted = system_names::dotted(name);
        let is_valid = is_sysctl(name);
        all.check(&field, !is_valid, || {
            "must be the name of a kernel parameter, such as net.core.somaxconn".to_owned()
        });
        let is_namespaced =
            NAMESPACED.contains(&&*dotted) || NAMESPACED_STARTS.iter().any(|start| dotted.starts_with(start));
        all.check(&field, is_valid && !is_namespaced, || {
            "must be a kernel parameter that a pod can have for itself, such as net.core.somaxconn".to_owned()
        });
        all.check(&field, is_valid && !seen.insert(dotted), || {
            "must not be listed twice, with dots and with slashes".to_owned()
        });
    }
}

fn texts(c: &Merged, all: &mut Found) {
    for (i, taint) in c.list("registerWithTaints").iter().enumerate() {
        let text = |name| taint.get(name).and_then(Value::as_str).unwrap_or_default();
        let field = format!("registerWithTaints[{i}]");
        all.check("registerWithTaints", !labels::is_key(text("key")), || {
            format!("{field}.key {}", labels::KEY_RULE)
        });
        all.check("registerWithTaints", !labels::is_value(text("value")), || {
            format!("{field}.value {}", labels::VALUE_RULE)
        });
        let effects = ["", "NoSchedule", "PreferNoSchedule", "NoExecute"];
        all.check("registerWithTaints", !effects.contains(&text("effect")), || {
            format!("{field}.effect must be NoSchedule, PreferNoSchedule or NoExecute")
        });
    }
    all.check(
        "reservedSystemCPUs",
        !is_cpu_list(c.text("reservedSystemCPUs")),
        || "must be a list of CPUs such as 0-3,8".to_owned(),
    );
    let previous = format!("1.{}", c.kubelet().minor.saturating_sub(1));
    let shown = c.text("showHiddenMetricsForVersion");
    // Which version is the previous one is known of every kubelet.
    all.check(
        "showHiddenMetricsForVersion",
        !shown.is_empty() && shown != previous,
        || format!("can only be {previous} here; remove it"),
    );
    for (i, item) in c.list("logging.vmodule").iter().enumerate() {
        let pattern = item
            .get("filePattern")
            .and_then(Value::as_str)
            .unwrap_or_default();
        all.check(
            "logging.vmodule",
            pattern.is_empty() || pattern.contains(['=', ',']),
            || format!("[{i}].filePattern must be a pattern without = and commas"),
        );
        let verbosity = item.get("verbosity").and_then(Value::as_f64);
        all.check("logging.vmodule", verbosity > Some(2_147_483_647.0), || {
            format!("[{i}].verbosity must be at most 2147483647")
        });
    }
    let endpoint = c.get("tracing.endpoint").and_then(Value::as_str);
    all.check(
        "tracing.endpoint",
        endpoint.is_some_and(|text| !is_endpoint(text)),
        || "must be an address such as localhost:4317, or a URL with dns, unix or unix-abstract".to_owned(),
    );
    let logs = c.text("podLogsDir");
    let is_clean = logs == "/"
        || logs
            .split('/')
            .skip(1)
            .all(|part| !["", ".", ".."].contains(&part));
    all.check(
        "podLogsDir",
        !(logs.starts_with('/') && is_clean && logs.is_ascii()),
        || {
            "must be an absolute path of ASCII characters without //, /. and /.., and not end with /"
                .to_owned()
        },
    );
    let images = "preloadedImagesVerificationAllowlist";
    let is_judged = c.is_on("KubeletEnsureSecretPulledImages")
        && c.text("imagePullCredentialsVerificationPolicy") == "NeverVerifyAllowlistedImages";
    let wrong = c.texts(images).position(|pattern| !is_image_pattern(pattern));
    all.check(images, is_judged && wrong.is_some(), || {
        format!(
            "[{}] must be an image without tag and digest, or end with /*",
            wrong.unwrap_or_default()
        )
    });
    after_validation(c, all);
}

/// What the program refuses after it has validated its configuration, as `run` in cmd/kubelet/app/server.go
/// and what that calls.
fn after_validation(c: &Merged, all: &mut Found) {
    // `ParseThresholdConfig` in pkg/kubelet/eviction/helpers.go, and `parseResourceList` in
    // cmd/kubelet/app/server.go.
    for (list, check) in ENTRIES {
        for (name, value) in c.entries(list) {
            if let Some(Err(rule)) = value.as_str().map(|text| check(name, text)) {
                all.check(&format!("{list}.{name}"), true, || rule.to_owned());
            }
        }
    }
    let periods = "evictionSoftGracePeriod";
    for (name, value) in c.entries(periods) {
        let period = value.as_str().and_then(kubelet_value::duration);
        let rule = match (kubelet_value::signal(name), period) {
            (Err(rule), _) => rule,
            (_, None) => kubelet_value::NO_DURATION,
            (_, Some(period)) if period < 0 => "must not be negative",
            _ => continue,
        };
        all.check(&format!("{periods}.{name}"), true, || rule.to_owned());
    }
    for (name, _) in c.entries("evictionSoft") {
        let has_period = c.get(periods).is_some_and(|periods| periods.get(name).is_some());
        all.check("evictionSoft", !has_period, || {
            format!("needs {periods} for {name}")
        });
    }
    // `NewContainerLogManager` in pkg/kubelet/logs/container_log_manager.go.
    let size = c
        .get("containerLogMaxSize")
        .and_then(Value::as_str)
        .filter(|size| !size.is_empty());
    if let Some(Err(rule)) = size.map(kubelet_value::log_size) {
        all.check("containerLogMaxSize", true, || rule.to_owned());
    }
}

/// `isValidSysctlName` in pkg/kubelet/apis/config/validation/validation.go.
fn is_sysctl(name: &str) -> bool {
    static NAME: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let part = "[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?";
        Regex::new(&format!("^(?:{part}[./])*{part}$")).ok()
    });
    name.len() <= 253 && NAME.as_ref().is_none_or(|form| form.is_match(name))
}

/// `Parse` in cpuset/cpuset.go of k8s.io/utils.
fn is_cpu_list(text: &str) -> bool {
    let number = |text: &str| text.parse::<i64>().ok();
    let is_range = |range: &str| match range.split_once('-') {
        None => number(range).is_some(),
        Some((first, last)) => number(first)
            .zip(number(last))
            .is_some_and(|(first, last)| first <= last),
    };
    text.is_empty() || text.split(',').all(is_range)
}

/// `validateEndpoint` in tracing/api/v1/config.go of k8s.io/component-base.
fn is_endpoint(text: &str) -> bool {
    static URL: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let host = r"(?:\[[0-9a-fA-F:.]+\]|[^\s:/?#\[\]%\x00-\x20\x7f]*)(?::[0-9]*)?";
        Regex::new(&format!(
            r"(?i)^(?:dns|unix|unix-abstract)://{host}(?:[/?#][^\s\x00-\x1f\x7f%]*)?$"
        ))
        .ok()
    });
    let url = if text.contains("//") {
        text.to_owned()
    } else {
        format!("dns://{text}")
    };
    URL.as_ref().is_none_or(|form| form.is_match(&url))
}

/// `getAllowlistImagePattern` in pkg/kubelet/images/pullmanager/image_pull_policies.go, with the grammar of
/// names in reference.go of
/// <https://github.com/distribution/reference>.
fn is_image_pattern(pattern: &str) -> bool {
    static NAME: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let label = "(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])";
        let domain = format!(r"(?:{label}(?:\.{label})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?");
        let part = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*";
        Regex::new(&format!("^(?:{domain}/)?{part}(?:/{part})*$")).ok()
    });
    let is_name = |text: &str| text.len() <= 255 && NAME.as_ref().is_none_or(|form| form.is_match(text));
    match pattern.strip_suffix("/*") {
        Some(prefix) => !prefix.is_empty() && !prefix.contains('*') && pattern.trim() == pattern,
        None => is_name(pattern),
    }
}
