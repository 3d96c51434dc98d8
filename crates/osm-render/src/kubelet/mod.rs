//! Validates the configuration of the kubelet before any machine gets it: a kubelet exits at start when a
//! field has another type, when it does not know a feature gate, or when values break its [rules]. Two
//! checks:
//!
//! - [`check`] validates the names and types of the settings' fields, which the kubelet itself would ignore
//!   or name without a path.
//! - [`judge`] validates what the kubelet will read. The settings' `kubelet.configuration` becomes a drop-in
//!   of the configuration file that the profile writes, and the kubelet merges both: maps by key, lists as a
//!   whole (KEP-3983).

mod merged;
mod rules;
mod schema;

use osm_api::content::Content;
use osm_api::kubelet_value::{NO_DURATION, NO_QUANTITY, duration, quantity};
use osm_api::pool::Pool;
use osm_api::profile::OperatingSystem;
use osm_api::settings::KubeletDefaults;
use osm_user_data::stage::Stage;
use osm_user_data::units::unit_files;
use osm_user_data::yaml;
use serde_json::{Map, Value, json};

use self::merged::{CONFIGURATION, Merged};
use self::schema::Kubelet;

pub(crate) use self::schema::TESTED_MINORS;

/// Most mistakes that are listed: a longer message helps no reader.
const MAX_MISTAKES: usize = 50;

/// Most configuration files that are judged, each with all drop-ins: a machine has one kubelet.
const MAX_FILES: usize = 4;

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KIND: &str = "KubeletConfiguration";

/// Thresholds that a kubelet has on its own (`DefaultEvictionHard` in
/// pkg/kubelet/eviction/defaults_linux.go).
pub(crate) const DEFAULT_THRESHOLDS: [&str; 5] = [
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
];

/// Fields that are the profile's, with the reason. The list is short on purpose: without these a node does
/// not join, does not stay, or is open to everyone; or a credential would be in a custom resource.
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

/// The mistakes in the settings for the kubelet of a pool: what a kubelet would not start with. Each names
/// its path in the settings, and repeats no value. A field that only a kubelet of an unknown version could
/// know is not reported.
pub(crate) fn check(pool: &Pool, settings: &KubeletDefaults) -> Vec<String> {
    let mut judge = Judge {
        kubelet: Kubelet::of(pool),
        is_lenient: false,
        mistakes: Vec::new(),
    };
    for (name, value) in &settings.feature_gates {
        judge.gate(&format!("kubelet.featureGates.{name}"), name, *value);
    }
    if let Some(configuration) = &settings.configuration {
        judge.document(configuration);
    }
    limited(judge.mistakes)
}

fn limited(mut mistakes: Vec<String>) -> Vec<String> {
    if mistakes.len() > MAX_MISTAKES {
        let more = mistakes.len() - MAX_MISTAKES;
        mistakes.truncate(MAX_MISTAKES);
        mistakes.push(format!("and {more} more"));
    }
    mistakes
}

/// What [`judge`] finds.
#[derive(Default)]
pub(crate) struct Verdict {
    /// Why the kubelet would not start. No value that can be secret is repeated.
    pub(crate) problems: Vec<String>,
    /// What depends on the image of the machine, or may not be what was meant.
    pub(crate) warnings: Vec<String>,
}

/// Judges the configuration of the kubelet in rendered content: each file that is one, with all of its
/// drop-ins, whose names end with `.conf`.
pub(crate) fn judge(pool: &Pool, content: &Content) -> Verdict {
    let kubelet = Kubelet::of(pool);
    let mut verdict = Verdict::default();
    let stages = Stage::ALL.map(|stage| stage.of_content(content));
    let files = stages.iter().flat_map(|stage| &stage.files);
    let (mut bases, mut drop_ins) = (Vec::new(), Vec::new());
    for file in files.filter(|file| file.content.text().contains(KIND)) {
        let documents = yaml::read(file.content.text()).unwrap_or_default();
        let Some(document) = documents
            .into_iter()
            .next()
            .filter(|document| document["kind"] == KIND)
        else {
            continue;
        };
        let is_drop_in = file.path.ends_with(".conf");
        let list = if is_drop_in { &mut drop_ins } else { &mut bases };
        list.push((file.path.as_str(), document));
    }
    // The kubelet reads them in this order.
    drop_ins.sort_by_key(|(path, _)| *path);
    if bases.is_empty() && !drop_ins.is_empty() {
        bases.push(drop_ins.remove(0));
    }
    for base in bases.into_iter().take(MAX_FILES) {
        let mut files = vec![base];
        files.extend(drop_ins.iter().cloned());
        judge_merged(
            &Merged::new(&kubelet, &files),
            pool.operating_system,
            &mut verdict,
        );
    }
    let texts = stages.iter().flat_map(|stage| {
        let files = stage
            .files
            .iter()
            .map(|file| (file.path.clone(), file.content.text()));
        files.chain(stage.units.iter().flat_map(unit_files))
    });
    verdict
        .problems
        .extend(texts.filter_map(|(path, text)| too_old(pool, &path, text)));
    verdict
}

fn judge_merged(merged: &Merged, os: OperatingSystem, verdict: &mut Verdict) {
    let mut types = Judge {
        kubelet: merged.kubelet().clone(),
        is_lenient: true,
        mistakes: Vec::new(),
    };
    types.structure("", KIND, merged.fields().unwrap_or(&Map::new()));
    if !types.mistakes.is_empty() {
        return verdict.problems.extend(limited(types.mistakes));
    }
    let broken = rules::broken(merged);
    let more = broken.len().saturating_sub(MAX_MISTAKES);
    for rules::Broken { fields, rule } in broken.into_iter().take(MAX_MISTAKES) {
        // The one that people can find, and then the others.
        let is_of_settings = |field: &&String| merged.is_of_settings(field);
        let first = fields.iter().find(is_of_settings).or(fields.first());
        let place = first.map(|field| merged.place(field)).unwrap_or_default();
        let subject = match fields.first() {
            named if named == first => String::new(),
            named => format!("{} ", named.map_or("", String::as_str)),
        };
        let others = fields.iter().filter(|field| Some(*field) != first);
        let others: String = others.filter_map(|field| merged.told(field)).collect();
        verdict.problems.push(format!("{place}: {subject}{rule}{others}"));
    }
    if more > 0 {
        verdict.problems.push(format!("and {more} more"));
    }
    verdict.warnings.extend(warnings(merged, os));
}

/// What a kubelet would not start with on some machines, or what it would do without a word.
fn warnings(c: &Merged, os: OperatingSystem) -> Vec<String> {
    // Their images have had cgroup v2 for as long as they have been supported here.
    let has_v2 = matches!(os, OperatingSystem::Ubuntu | OperatingSystem::Flatcar);
    let is_limited = c.text("memorySwap.swapBehavior") == "LimitedSwap";
    let enforced: Vec<&str> = c.texts("enforceNodeAllocatable").collect();
    let needs_cgroup = |of: &str| enforced.iter().any(|name| name.starts_with(of));
    // Of a field: whether there is a warning, and what it says. From `run` in cmd/kubelet/app/server.go,
    // `validateKubeletOSConfiguration` in pkg/kubelet/apis/config/validation/validation_linux.go, and
    // `NewContainerManager` and `enforceNodeAllocatableCgroups` in pkg/kubelet/cm.
    let of_machines: [(&str, bool, &str); 6] = [
        (
            "memorySwap.swapBehavior",
            is_limited && !has_v2,
            "on a machine with cgroup v1, the kubelet would not start",
        ),
        (
            "memorySwap.swapBehavior",
            is_limited && c.get("failSwapOn") != Some(&Value::Bool(false)),
            "the kubelet does not start on a machine that has swap, unless failSwapOn is false",
        ),
        (
            "failCgroupV1",
            c.is_true("failCgroupV1") && !has_v2,
            "on a machine with cgroup v1, the kubelet would not start",
        ),
        (
            "singleProcessOOMKill",
            c.get("singleProcessOOMKill") == Some(&Value::Bool(false)) && !has_v2,
            "on a machine with cgroup v1, the kubelet would not start",
        ),
        (
            "systemReservedCgroup",
            needs_cgroup("system-reserved") && c.is_set("systemReservedCgroup"),
            "the kubelet does not start on a machine without this cgroup",
        ),
        (
            "kubeReservedCgroup",
            needs_cgroup("kube-reserved") && c.is_set("kubeReservedCgroup"),
            "the kubelet does not start on a machine without this cgroup",
        ),
    ];
    let of_machines = of_machines.into_iter().filter(|(_, is_so, _)| *is_so);
    let mut warnings: Vec<_> = of_machines
        .map(|(field, _, text)| format!("{}: {text}", c.place(field)))
        .collect();
    warnings.extend(lost_thresholds(c));
    warnings
}

/// Thresholds in a configuration file, but not those in a drop-in, replace all defaults (`loadConfigFile` in
/// cmd/kubelet/app/server.go).
fn lost_thresholds(c: &Merged) -> Option<String> {
    let (path, base) = c.first()?;
    base.get("evictionHard")?.as_object()?;
    if base.get("mergeDefaultEvictionSettings") == Some(&Value::Bool(true)) {
        return None;
    }
    let is_off = |name: &&str| !c.entries("evictionHard").any(|(other, _)| other == *name);
    let lost: Vec<&str> = DEFAULT_THRESHOLDS.into_iter().filter(is_off).collect();
    (!lost.is_empty()).then(|| {
        format!(
            "evictionHard in {path} turns off the kubelet's own thresholds for {}; add them to it (the pool's annotation EvictionHard, or the \
             profile), or set single thresholds in kubelet.configuration of the settings, which keeps the others",
            lost.join(", ")
        )
    })
}

/// Drop-ins are an alpha feature of 1.28 and 1.29, which demand an environment variable for it, and older
/// kubelets do not know the flag (cmd/kubelet/app/server.go of Kubernetes 1.29).
fn too_old(pool: &Pool, path: &str, text: &str) -> Option<String> {
    const SINCE: u64 = 30;
    let version = &pool.kubelet_version;
    let is_too_old = version.major == 1 && version.minor < SINCE && text.contains("--config-dir");
    is_too_old.then(|| {
        format!(
            "{path} has the flag --config-dir, which only kubelets from 1.{SINCE} on take; use one of these"
        )
    })
}

/// The drop-in: the settings' configuration, with the fields that the kubelet requires of every file. `None`
/// if it would be empty.
pub(crate) fn drop_in(settings: &KubeletDefaults) -> Option<Value> {
    let configuration = settings
        .configuration
        .as_ref()
        .filter(|configuration| !configuration.is_empty())?;
    let mut document = json!({"apiVersion": API_VERSION, "kind": KIND});
    document.as_object_mut()?.extend(configuration.clone());
    Some(document)
}

/// How long the kubelet delays a shutdown of its machine, in seconds. `None` if the settings don't want it
/// to.
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
    /// As the kubelet is: fields that it does not know are ignored, and `null` counts as absent.
    is_lenient: bool,
    mistakes: Vec<String>,
}

impl Judge {
    fn mistake(&mut self, path: &str, problem: &str) {
        self.mistakes.push(format!("{path}: {problem}"));
    }

    /// A mistake, unless the kubelet is of a version that may know better.
    fn doubt(&mut self, path: &str, problem: &str) {
        if self.kubelet.known && !self.is_lenient {
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
            Some(gate) if gate.is_locked && gate.is_on != value => {
                self.doubt(path, &format!("kubelet {version} takes only {}", gate.is_on));
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
            let path = if path.is_empty() {
                field.clone()
            } else {
                format!("{path}.{field}")
            };
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
            (Value::Null, ..) if self.is_lenient => {}
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
}

/// Whether a value is of a type, and the message if it is not. `None`: the type is a struct, a list or a map.
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
