//! A kubelet's configuration as it counts: the file, its drop-ins, and the defaults that the kubelet sets.

use osm_api::kubelet_value::{duration, quantity};
use serde_json::{Map, Value, json};

use super::schema::{Gate, Kubelet};

/// Where the settings have fields of it.
pub(super) const CONFIGURATION: &str = "kubelet.configuration";

/// The drop-in with these.
pub(super) const SETTINGS_PATH: &str = "/etc/kubernetes/kubelet.conf.d/90-settings.conf";

/// A file of the kubelet's configuration: its path on the machine, and what it contains.
pub(super) type File<'a> = (&'a str, Value);

pub(super) struct Merged<'a> {
    kubelet: &'a Kubelet,
    files: &'a [File<'a>],
    fields: Value,
}

impl<'a> Merged<'a> {
    /// Merges files in their order as `mergeKubeletConfigurations` in cmd/kubelet/app/server.go of Kubernetes
    /// does: the first one gets its defaults before drop-ins change it.
    pub(super) fn new(kubelet: &'a Kubelet, files: &'a [File<'a>]) -> Self {
        let mut merged = Self {
            kubelet,
            files,
            fields: json!({}),
        };
        for (i, (_, file)) in files.iter().enumerate() {
            json_patch::merge(&mut merged.fields, file);
            if i == 0 {
                merged.be_first();
            }
        }
        merged.set_defaults();
        merged
    }

    /// Only the first file loses empty lists, and its paths can be relative.
    fn be_first(&mut self) {
        if let Some(fields) = self.fields.as_object_mut() {
            fields.retain(|name, value| {
                let is_relative = || value.as_str().is_some_and(|path| !path.starts_with('/'));
                value.as_array().is_none_or(|list| !list.is_empty())
                    && !(name == "podLogsDir" && is_relative())
            });
        }
        self.set_defaults();
    }

    /// Those of `SetDefaults_KubeletConfiguration` in pkg/kubelet/apis/config/v1beta1/defaults.go that a rule
    /// looks at.
    fn set_defaults(&mut self) {
        let is_serial = self
            .number("maxParallelImagePulls")
            .is_none_or(|limit| limit < 2.0);
        let defaults = json!({
            "cgroupsPerQOS": true, "containerLogMaxFiles": 5, "containerLogMaxWorkers": 1, "containerLogMonitorInterval": "10s",
            "cpuCFSQuotaPeriod": "100ms", "enableSystemLogHandler": true, "enforceNodeAllocatable": ["pods"], "eventRecordQPS": 50,
            "imageGCHighThresholdPercent": 85, "imageGCLowThresholdPercent": 80, "serializeImagePulls": is_serial,
        });
        let of_zero = json!({
            "cpuManagerPolicy": "none", "hairpinMode": "promiscuous-bridge", "imageMinimumGCAge": "2m",
            "logging": {"flushFrequency": "5s", "format": "text"}, "maxPods": 110, "memoryManagerPolicy": "None",
            "memoryReservationPolicy": "None", "nodeLeaseDurationSeconds": 40, "podLogsDir": "/var/log/pods", "port": 10250,
            "topologyManagerPolicy": "none", "topologyManagerScope": "container",
        });
        add(&mut self.fields, &defaults, |_| false);
        add(&mut self.fields, &of_zero, is_zero);
        if self.is_on("KubeletCrashLoopBackOffMax") {
            let longest = json!({"crashLoopBackOff": {"maxContainerRestartPeriod": "300s"}});
            add(&mut self.fields, &longest, |_| false);
        }
        if self.is_on("KubeletEnsureSecretPulledImages") {
            let policy = json!({"imagePullCredentialsVerificationPolicy": "NeverVerifyPreloadedImages"});
            add(&mut self.fields, &policy, is_zero);
        }
    }

    pub(super) fn fields(&self) -> Option<&Map<String, Value>> {
        self.fields.as_object()
    }

    /// A field by its path, such as `memorySwap.swapBehavior`, if it is not `null`.
    pub(super) fn get(&self, path: &str) -> Option<&Value> {
        at(&self.fields, path)
    }

    pub(super) fn is_set(&self, path: &str) -> bool {
        self.get(path).is_some_and(|value| !is_zero(value))
    }

    pub(super) fn is_true(&self, path: &str) -> bool {
        self.get(path) == Some(&Value::Bool(true))
    }

    pub(super) fn number(&self, path: &str) -> Option<f64> {
        self.get(path)?.as_f64()
    }

    pub(super) fn text(&self, path: &str) -> &str {
        self.get(path).and_then(Value::as_str).unwrap_or_default()
    }

    /// A duration in seconds, 0 if it is not set.
    #[expect(
        clippy::cast_precision_loss,
        reason = "Only beyond 104 days does it lose a nanosecond."
    )]
    pub(super) fn seconds(&self, path: &str) -> f64 {
        let value = self.get(path);
        let nanoseconds = value.and_then(|value| value.as_str().map_or_else(|| value.as_i64(), duration));
        nanoseconds.unwrap_or_default() as f64 / 1e9
    }

    pub(super) fn list(&self, path: &str) -> &[Value] {
        self.get(path)
            .and_then(Value::as_array)
            .map_or(&[], Vec::as_slice)
    }

    pub(super) fn texts(&self, path: &str) -> impl Iterator<Item = &str> {
        self.list(path).iter().filter_map(Value::as_str)
    }

    pub(super) fn entries(&self, path: &str) -> impl Iterator<Item = (&str, &Value)> {
        let entries = self.get(path).and_then(Value::as_object).into_iter().flatten();
        entries.map(|(name, value)| (name.as_str(), value))
    }

    /// Whether a feature gate is on. `None`: the kubelet's version is not known, or has no such gate.
    fn gate(&self, name: &str) -> Option<bool> {
        let gate = self.kubelet.gate(name).filter(|_| self.kubelet.known)?;
        Some(self.value(name, &gate))
    }

    /// The value of a gate. One that is named counts more than all of its stage.
    pub(super) fn value(&self, name: &str, gate: &Gate) -> bool {
        let set = |name: &str| self.fields.get("featureGates")?.get(name)?.as_bool();
        let of_stage = || match gate.stage {
            "alpha" => set("AllAlpha"),
            "beta" => set("AllBeta"),
            _ => None,
        };
        set(name).or_else(of_stage).unwrap_or(gate.is_on)
    }

    pub(super) fn is_on(&self, gate: &str) -> bool {
        self.gate(gate) == Some(true)
    }

    /// Whether a gate is known to be off.
    pub(super) fn is_off(&self, gate: &str) -> bool {
        self.gate(gate) == Some(false)
    }

    /// Whether the kubelet is judged as one of this minor version or a newer one.
    pub(super) fn since(&self, minor: u64) -> bool {
        self.kubelet.minor >= minor
    }

    /// The configuration file itself.
    pub(super) fn first(&self) -> Option<&File<'a>> {
        self.files.first()
    }

    pub(super) fn kubelet(&self) -> &Kubelet {
        self.kubelet
    }

    /// The path of the last file that sets a field, and the field's value if that can't be secret. `None`: it
    /// has its default.
    fn source(&self, field: &str) -> Option<(&'a str, Option<&'a Value>)> {
        let mut files = self.files.iter().rev();
        let (path, value) = files.find_map(|(path, file)| Some((*path, at(file, field)?)))?;
        Some((
            path,
            matches!(value, Value::Bool(_) | Value::Number(_)).then_some(value),
        ))
    }

    pub(super) fn is_of_settings(&self, field: &str) -> bool {
        self.source(field).is_some_and(|(path, _)| path == SETTINGS_PATH)
    }

    /// Where people find a field: its path in the settings, or in a file.
    pub(super) fn place(&self, field: &str) -> String {
        let Some((path, value)) = self.source(field) else {
            return format!("{field}, which has its default");
        };
        let value = value.map_or_else(String::new, |value| format!(" ({value})"));
        match path {
            SETTINGS_PATH => format!("{CONFIGURATION}.{field}{value}"),
            _ => format!("{field}{value} in {path}"),
        }
    }

    /// What to say of a field that is not the first one. `None`: it has its default.
    pub(super) fn told(&self, field: &str) -> Option<String> {
        let (path, value) = self.source(field)?;
        let value = value.map_or_else(|| "set".to_owned(), Value::to_string);
        let place = if path == SETTINGS_PATH {
            CONFIGURATION
        } else {
            path
        };
        Some(format!("; {field} is {value} in {place}"))
    }
}

/// A field by its path. A name can have dots, as those of eviction signals do.
fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    let found = value.get(path).or_else(|| {
        let (name, rest) = path.split_once('.')?;
        at(value.get(name)?, rest)
    })?;
    (!found.is_null()).then_some(found)
}

/// Adds what is absent, or is present and `counts_as_absent`.
fn add(to: &mut Value, defaults: &Value, counts_as_absent: fn(&Value) -> bool) {
    let (Some(to), Some(defaults)) = (to.as_object_mut(), defaults.as_object()) else {
        return;
    };
    for (name, default) in defaults {
        match to.get_mut(name) {
            Some(value @ Value::Object(_)) if default.is_object() => add(value, default, counts_as_absent),
            Some(value) if !value.is_null() && !counts_as_absent(value) => {}
            _ => drop(to.insert(name.clone(), default.clone())),
        }
    }
}

/// Whether Go has this value where nothing is set.
pub(super) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => {
            text.is_empty() || duration(text) == Some(0) || quantity(text).is_some_and(|it| it.zero)
        }
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_zero),
    }
}
