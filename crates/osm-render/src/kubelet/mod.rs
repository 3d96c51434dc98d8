//! Validates the settings for the kubelet before any machine gets them: a kubelet exits at start when a field has another type, or when
//! it does not know a feature gate. Of the values that it refuses, only those are found that people get wrong often: quantities and
//! thresholds of evictions. The journal of the machine has all others.
//!
//! The settings' `kubelet.configuration` becomes a drop-in of the kubelet's configuration file, which the kubelet merges into the one
//! that the profile writes: maps by key, lists as a whole (KEP-3983).

mod schema;

use osm_api::Pool;
use osm_api::kubelet_value::{self, NO_DURATION, NO_QUANTITY, duration, quantity};
use osm_api::settings::KubeletDefaults;
use serde_json::{Map, Value, json};

use self::schema::Kubelet;

/// Oldest and newest minor version of Kubernetes 1 that templates are tested with.
pub(crate) const TESTED_MINORS: (u64, u64) = (33, 36);

/// Most mistakes that are listed. A longer message helps no reader.
const MAX_MISTAKES: usize = 50;

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KIND: &str = "KubeletConfiguration";

/// Where the settings have fields of it.
const CONFIGURATION: &str = "kubelet.configuration";

/// Fields that are the profile's, with the reason. The list is short on purpose: without these a node does not join, does
/// not stay, or is open to everyone; or a credential would be in a custom resource.
const OURS: [(&str, &str); 11] = [
    (
        "authentication.anonymous.enabled",
        "nodes must refuse anonymous requests",
    ),
    (
        "authentication.x509.clientCAFile",
        "it is the cluster's CA, by which nodes know the API server",
    ),
    ("authorization.mode", "nodes ask the API server who may do what"),
    ("cgroupDriver", "it is containerd's"),
    ("containerRuntimeEndpoint", "it is containerd's"),
    (
        "healthzBindAddress",
        "a health check asks there, and would restart the kubelet",
    ),
    (
        "healthzPort",
        "a health check asks there, and would restart the kubelet",
    ),
    ("registerNode", "a machine that does not register isn't a node"),
    (
        "rotateCertificates",
        "a node would be lost when its first certificate ends",
    ),
    ("staticPodURL", "a credential in it would be in a custom resource"),
    (
        "staticPodURLHeader",
        "a credential in it would be in a custom resource",
    ),
];

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

/// The mistakes in the settings for the kubelet of a pool: what a kubelet would not start with. Each names its path in the settings, and
/// repeats no value. What a kubelet of a version that is not known here may know is no mistake.
pub(crate) fn check(pool: &Pool, settings: &KubeletDefaults) -> Vec<String> {
    let mut judge = Judge {
        kubelet: Kubelet::of(pool),
        mistakes: Vec::new(),
    };
    for (name, value) in &settings.feature_gates {
        judge.gate(&format!("kubelet.featureGates.{name}"), name, *value);
    }
    if let Some(configuration) = &settings.configuration {
        judge.document(configuration);
        judge.values(configuration);
    }
    let mut mistakes = judge.mistakes;
    if mistakes.len() > MAX_MISTAKES {
        let more = mistakes.len() - MAX_MISTAKES;
        mistakes.truncate(MAX_MISTAKES);
        mistakes.push(format!("and {more} more"));
    }
    mistakes
}

/// The drop-in: the settings' configuration, with the fields that the kubelet requires of every file. `None` if it would be empty.
pub(crate) fn drop_in(settings: &KubeletDefaults) -> Option<Value> {
    let configuration = settings
        .configuration
        .as_ref()
        .filter(|configuration| !configuration.is_empty())?;
    let mut document = Map::new();
    document.insert("apiVersion".to_owned(), json!(API_VERSION));
    document.insert("kind".to_owned(), json!(KIND));
    document.extend(configuration.clone());
    Some(document.into())
}

/// How long the kubelet delays a shutdown of its machine, in seconds. `None` if the settings don't want it to.
pub(crate) fn shutdown_seconds(settings: &KubeletDefaults) -> Option<i64> {
    const NANOSECONDS: i64 = 1_000_000_000;
    let configuration = settings.configuration.as_ref()?;
    let period = configuration.get("shutdownGracePeriod").and_then(Value::as_str);
    let by_priority = configuration
        .get("shutdownGracePeriodByPodPriority")
        .and_then(Value::as_array);
    // Pods are shut down one priority after the other.
    let sum = by_priority
        .into_iter()
        .flatten()
        .filter_map(|pods| pods.get("shutdownGracePeriodSeconds")?.as_i64())
        .fold(0, i64::saturating_add);
    let whole = period
        .and_then(duration)
        .map(|period| period.saturating_add(NANOSECONDS - 1) / NANOSECONDS);
    Some(whole.unwrap_or_default().max(sum)).filter(|seconds| *seconds > 0)
}

struct Judge {
    kubelet: Kubelet,
    mistakes: Vec<String>,
}

impl Judge {
    fn mistake(&mut self, path: &str, problem: &str) {
        self.mistakes.push(format!("{path}: {problem}"));
    }

    /// A mistake, unless the kubelet is of a version that may know better.
    fn doubt(&mut self, path: &str, problem: &str) {
        if self.kubelet.known {
            self.mistake(path, problem);
        }
    }

    fn document(&mut self, configuration: &Map<String, Value>) {
        for (name, ours) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            if configuration.get(name).is_some_and(|value| value != ours) {
                let path = format!("{CONFIGURATION}.{name}");
                self.mistake(&path, &format!("must be {ours}, or left out"));
            }
        }
        self.structure(CONFIGURATION, KIND, configuration);
        if let Some(Value::Object(gates)) = configuration.get("featureGates") {
            for (name, value) in gates {
                if let Value::Bool(value) = value {
                    let path = format!("{CONFIGURATION}.featureGates.{name}");
                    self.gate(&path, name, *value);
                }
            }
        }
    }

    fn gate(&mut self, path: &str, name: &str, value: bool) {
        let version = self.kubelet.judged_as.clone();
        match self.kubelet.gate(name) {
            None => self.doubt(path, &format!("kubelet {version} knows no such feature gate")),
            Some(Some(only)) if only != value => {
                self.doubt(path, &format!("kubelet {version} takes only {only}"));
            }
            Some(_) if name == "RotateKubeletServerCertificate" && !value => {
                self.mistake(
                    path,
                    "must stay on: nodes ask for their serving certificates by it",
                );
            }
            Some(_) => {}
        }
    }

    /// Judges the fields of a struct.
    fn structure(&mut self, path: &str, name: &str, fields: &Map<String, Value>) {
        for (field, value) in fields {
            let path = format!("{path}.{field}");
            match self.kubelet.field(name, field) {
                Some(kind) => self.value(&path, kind, value),
                None => {
                    let problem = format!("kubelet {} has no such field", self.kubelet.judged_as);
                    self.doubt(&path, &problem);
                }
            }
        }
    }

    fn value(&mut self, path: &str, kind: &str, value: &Value) {
        let is_at = |ours: &str| path.strip_prefix(CONFIGURATION) == Some(&format!(".{ours}"));
        if let Some((_, reason)) = OURS.iter().find(|(ours, _)| is_at(ours)) {
            return self.mistake(path, &format!("is set by the profile ({reason}); remove it"));
        }
        let (of_items, of_entries) = (kind.strip_prefix("[]"), kind.strip_prefix("map[string]"));
        match (value, of_items, of_entries, scalar(kind, value)) {
            (Value::Null, ..) => self.mistake(path, "is empty; set a value, or remove it"),
            (Value::Array(items), Some(kind), ..) => {
                for (i, item) in items.iter().enumerate() {
                    self.value(&format!("{path}[{i}]"), kind, item);
                }
            }
            (_, Some(_), ..) => self.mistake(path, "must be a list"),
            (Value::Object(entries), _, Some(kind), _) => {
                for (key, entry) in entries {
                    self.value(&format!("{path}.{key}"), kind, entry);
                }
            }
            (.., Some((true, _))) => {}
            (.., Some((false, problem))) => self.mistake(path, problem),
            (Value::Object(fields), ..) => self.structure(path, kind, fields),
            _ => self.mistake(path, "must be a map"),
        }
    }

    /// Judges values as those of the annotations of a pool.
    fn values(&mut self, configuration: &Map<String, Value>) {
        for (name, check) in ENTRIES {
            let entries = configuration.get(name).and_then(Value::as_object);
            for (key, entry) in entries.into_iter().flatten() {
                if let Some(Err(problem)) = entry.as_str().map(|text| check(key, text)) {
                    self.mistake(&format!("{CONFIGURATION}.{name}.{key}"), problem);
                }
            }
        }
    }
}

/// Whether a value is of a type, and what a mistake is told. `None`: the type is a struct, a list or a map.
fn scalar(kind: &str, value: &Value) -> Option<(bool, &'static str)> {
    let text = |check: fn(&str) -> bool| value.as_str().is_some_and(check);
    let whole = |fits: fn(i64) -> bool| value.as_i64().is_some_and(fits);
    let is_duration = text(|text| duration(text).is_some());
    let is_quantity = text(|text| quantity(text).is_some());
    Some(match kind {
        "string" => (value.is_string(), "must be a text"),
        "bool" => (value.is_boolean(), "must be true or false"),
        "int32" => (whole(|n| i32::try_from(n).is_ok()), "must be a whole number"),
        "uint32" => (
            whole(|n| u32::try_from(n).is_ok()),
            "must be a whole number from 0",
        ),
        "int64" => (value.is_i64(), "must be a whole number"),
        "float64" => (value.is_number(), "must be a number"),
        "duration" => (is_duration, NO_DURATION),
        "duration-or-nanoseconds" => (is_duration || value.is_i64(), NO_DURATION),
        "quantity" => (is_quantity || value.is_number(), NO_QUANTITY),
        "time" => (false, "can't be set"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
