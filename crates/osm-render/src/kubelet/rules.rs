//! What a kubelet wants of values beyond their types: it exits at start over any other.

use osm_api::kubelet_value::{self, NO_DURATION, duration};
use osm_api::labels;

type Check = Result<(), &'static str>;

/// A condition on a value.
#[derive(Clone, Copy)]
pub(super) enum Rule {
    /// A whole number of these.
    Range(i64, i64),
    /// A number above 0, at most 1.
    Share,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// Only false.
    False,
    /// A text that passes.
    Text(fn(&str) -> Check),
    /// A map whose keys and values pass.
    Entries(fn(&str, &str) -> Check),
    /// An object that has these fields.
    Has(&'static [&'static str]),
}

const FROM_0: Rule = Rule::Range(0, i64::MAX);
const FROM_1: Rule = Rule::Range(1, i64::MAX);

/// By path, with `[]` for any item of a list.
const RULES: &[(&str, Rule)] = &[
    (
        "configMapAndSecretChangeDetectionStrategy",
        Rule::OneOf(&["Get", "Cache", "Watch"]),
    ),
    ("containerLogMaxFiles", Rule::Range(2, i64::MAX)),
    ("containerLogMaxSize", Rule::Text(kubelet_value::log_size)),
    ("containerLogMaxWorkers", FROM_1),
    (
        "containerLogMonitorInterval",
        Rule::Text(|text| between(text, "3s", None, "must be 3s or longer")),
    ),
    (
        "cpuCFSQuotaPeriod",
        Rule::Text(|text| between(text, "1ms", Some("1s"), "must be from 1ms to 1s")),
    ),
    ("cpuManagerPolicy", Rule::OneOf(&["none", "static"])),
    (
        "crashLoopBackOff.maxContainerRestartPeriod",
        Rule::Text(|text| between(text, "1s", Some("300s"), "must be from 1s to 300s")),
    ),
    (
        "enforceNodeAllocatable[]",
        Rule::OneOf(&[
            "none",
            "pods",
            "system-reserved",
            "system-reserved-compressible",
            "kube-reserved",
            "kube-reserved-compressible",
        ]),
    ),
    ("eventBurst", FROM_0),
    ("eventRecordQPS", FROM_0),
    ("evictionHard", Rule::Entries(kubelet_value::eviction_threshold)),
    (
        "evictionMinimumReclaim",
        Rule::Entries(kubelet_value::minimum_reclaim),
    ),
    ("evictionSoft", Rule::Entries(kubelet_value::eviction_threshold)),
    ("evictionSoftGracePeriod", Rule::Entries(grace_period)),
    (
        "hairpinMode",
        Rule::OneOf(&["promiscuous-bridge", "hairpin-veth", "none"]),
    ),
    ("imageGCHighThresholdPercent", Rule::Range(0, 100)),
    ("imageGCLowThresholdPercent", Rule::Range(0, 100)),
    ("imageMaximumGCAge", Rule::Text(not_negative)),
    (
        "imagePullCredentialsVerificationPolicy",
        Rule::OneOf(&[
            "NeverVerify",
            "NeverVerifyPreloadedImages",
            "NeverVerifyAllowlistedImages",
            "AlwaysVerify",
        ]),
    ),
    ("iptablesDropBit", Rule::Range(0, 31)),
    ("iptablesMasqueradeBit", Rule::Range(0, 31)),
    ("kubeAPIBurst", FROM_0),
    ("kubeAPIQPS", FROM_0),
    ("kubeReserved", Rule::Entries(kubelet_value::reservation)),
    ("logging.format", Rule::OneOf(&["text", "json"])),
    ("maxOpenFiles", FROM_0),
    ("maxParallelImagePulls", FROM_1),
    ("maxPods", FROM_0),
    ("memoryManagerPolicy", Rule::OneOf(&["None", "Static"])),
    (
        "memoryReservationPolicy",
        Rule::OneOf(&["None", "TieredReservation"]),
    ),
    ("memorySwap.swapBehavior", Rule::OneOf(&["NoSwap", "LimitedSwap"])),
    ("memoryThrottlingFactor", Rule::Share),
    ("nodeLeaseDurationSeconds", FROM_1),
    ("nodeStatusMaxImages", Rule::Range(-1, i64::MAX)),
    ("oomScoreAdj", Rule::Range(-1000, 1000)),
    ("podsPerCore", FROM_0),
    ("port", Rule::Range(1, 65535)),
    ("readOnlyPort", Rule::Range(0, 65535)),
    ("registerWithTaints[]", Rule::Has(&["key", "effect"])),
    (
        "registerWithTaints[].effect",
        Rule::OneOf(&["NoSchedule", "PreferNoSchedule", "NoExecute"]),
    ),
    ("registerWithTaints[].key", Rule::Text(label_key)),
    ("registerWithTaints[].value", Rule::Text(label_value)),
    ("registryBurst", FROM_0),
    ("registryPullQPS", FROM_0),
    ("runOnce", Rule::False),
    ("shutdownGracePeriod", Rule::Text(shutdown)),
    ("shutdownGracePeriodCriticalPods", Rule::Text(shutdown)),
    ("staticPodURL", Rule::Text(without_credentials)),
    ("systemReserved", Rule::Entries(kubelet_value::reservation)),
    (
        "tlsMinVersion",
        Rule::OneOf(&["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"]),
    ),
    (
        "topologyManagerPolicy",
        Rule::OneOf(&["none", "best-effort", "restricted", "single-numa-node"]),
    ),
    ("topologyManagerScope", Rule::OneOf(&["container", "pod"])),
    ("tracing.samplingRatePerMillion", Rule::Range(0, 1_000_000)),
    ("userNamespaces.idsPerPod", Rule::Range(65536, u32::MAX as i64)),
];

/// The condition on the value at a path.
pub(super) fn rule(path: &str) -> Option<Rule> {
    RULES
        .iter()
        .find_map(|(known, rule)| (*known == path).then_some(*rule))
}

/// A duration from `least` to `most`. Its type has been checked before.
fn between(text: &str, least: &str, most: Option<&str>, problem: &'static str) -> Check {
    let Some(found) = duration(text) else {
        return Ok(());
    };
    let fits = Some(found) >= duration(least) && most.is_none_or(|most| Some(found) <= duration(most));
    fits.then_some(()).ok_or(problem)
}

fn not_negative(text: &str) -> Check {
    between(text, "0", None, "must not be negative")
}

fn label_key(text: &str) -> Check {
    labels::is_key(text).then_some(()).ok_or(labels::KEY_RULE)
}

fn label_value(text: &str) -> Check {
    labels::is_value(text).then_some(()).ok_or(labels::VALUE_RULE)
}

fn shutdown(text: &str) -> Check {
    if duration(text) == Some(0) {
        Ok(())
    } else {
        between(text, "1s", None, "must be 0s, or 1s or longer")
    }
}

fn grace_period(signal: &str, text: &str) -> Check {
    kubelet_value::signal(signal)?;
    match duration(text) {
        None => Err(NO_DURATION),
        Some(_) => not_negative(text),
    }
}

fn without_credentials(url: &str) -> Check {
    let authority = url
        .split_once("://")
        .map_or(url, |(_, rest)| rest)
        .split('/')
        .next();
    match authority {
        Some(authority) if authority.contains('@') => {
            Err("must not hold a user name or password, which would be in a custom resource")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubelet::schema::{Kubelet, Lookup};

    #[test]
    fn every_rule_is_for_a_field_of_a_type_that_it_can_judge() {
        let kubelet = Kubelet {
            judged_as: "1.36".to_owned(),
            known: true,
        };
        for (path, rule) in RULES {
            let mut kind = "KubeletConfiguration";
            for name in path.split('.') {
                let (name, items) = name.strip_suffix("[]").map_or((name, false), |name| (name, true));
                let Lookup::Known(found) = kubelet.field(kind, name) else {
                    panic!("{path}: no field {name}")
                };
                kind = if items {
                    found.strip_prefix("[]").unwrap()
                } else {
                    found
                };
            }
            let fits = match rule {
                Rule::Range(..) => matches!(kind, "int32" | "int64"),
                Rule::Share => kind == "float64",
                Rule::OneOf(_) => kind == "string",
                Rule::False => kind == "bool",
                Rule::Text(_) => matches!(kind, "string" | "duration"),
                Rule::Entries(_) => kind == "map[string]string",
                Rule::Has(fields) => fields
                    .iter()
                    .all(|field| matches!(kubelet.field(kind, field), Lookup::Known(_))),
            };
            assert!(fits, "{path} is {kind}");
        }
    }
}
