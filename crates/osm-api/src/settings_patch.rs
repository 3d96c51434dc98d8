//! Documents that change settings: those of a pool, and that of a cluster of a fleet.

use serde_json::{Map, Value};

use crate::names::WORKER_CLUSTER;
use crate::settings::{Settings, SettingsError};

/// Why such a document can't be used. No message repeats a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {}", .mistakes.join("; "))]
pub struct PatchError {
    pub(crate) place: String,
    pub(crate) mistakes: Vec<String>,
}

/// The fields that a document must not change, and why.
pub(crate) struct Fixed {
    pub fields: &'static [&'static str],
    pub why: &'static str,
}

/// osp-controller reads it, and serves no single cluster.
const OF_CLUSTERS: Fixed = Fixed {
    fields: &["defaultProfiles"],
    why: "is the same for all clusters; set it in the settings of the release",
};

impl Settings {
    /// The settings of a cluster of a fleet: those of the release, with `spec.settings` of the WorkerCluster
    /// in this namespace merged in as a JSON merge patch (RFC 7386).
    ///
    /// # Errors
    /// All mistakes at once. `null` is one, because the value that it takes away would differ with the
    /// release.
    pub fn of_cluster(&self, namespace: &str, patch: &Map<String, Value>) -> Result<Self, PatchError> {
        let mut mistakes = Vec::new();
        for (field, value) in patch {
            note_nulls(value, field, &mut mistakes);
        }
        let merged = self.patched(patch.clone(), &OF_CLUSTERS).map_err(|more| {
            mistakes.extend(more);
        });
        match merged {
            Ok(settings) if mistakes.is_empty() => Ok(settings),
            _ => Err(PatchError {
                place: format!("WorkerCluster {namespace}/{WORKER_CLUSTER}, spec.settings"),
                mistakes,
            }),
        }
    }

    /// These settings with a JSON merge patch applied: maps are merged, lists replaced, null means the
    /// default.
    pub(crate) fn patched(&self, mut patch: Map<String, Value>, fixed: &Fixed) -> Result<Self, Vec<String>> {
        let is_there = |field: &&&str| patch.remove(**field).is_some();
        let changed = fixed.fields.iter().filter(is_there);
        let mut mistakes: Vec<_> = changed.map(|field| format!("{field}: {}", fixed.why)).collect();
        // Settings always have a JSON form.
        let mut merged = serde_json::to_value(self).unwrap_or_default();
        json_patch::merge(&mut merged, &Value::Object(patch));
        match Self::from_document(merged) {
            Ok(settings) if mistakes.is_empty() => return Ok(settings),
            Ok(_) => {}
            Err(SettingsError(more)) => mistakes.extend(more),
        }
        Err(mistakes)
    }
}

fn note_nulls(value: &Value, path: &str, mistakes: &mut Vec<String>) {
    match value {
        Value::Null => mistakes.push(format!(
            "{path}: is null, but a value of the release can only be replaced; write another value, or remove the field"
        )),
        Value::Object(fields) => {
            for (field, value) in fields {
                note_nulls(value, &format!("{path}.{field}"), mistakes);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                note_nulls(item, &format!("{path}[{at}]"), mistakes);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_cluster(patch: &str) -> Result<Settings, String> {
        let release = "proxy: {http: 'http://proxy:3128', noProxy: .svc}\npauseImage: pause:1\n\
                       system: {swap: {}}\ncontainerd: {registries: [{host: docker.io}, {host: quay.io}]}\n";
        let Ok(Value::Object(patch)) = Settings::document(patch) else {
            panic!("{patch} is no map")
        };
        let release = Settings::parse(release).unwrap();
        let merged = release.of_cluster("cluster-a", &patch);
        merged.map_err(|error| error.to_string())
    }

    /// Documents, and what the settings with each are.
    const MERGED: &str = r#"
{} => http://proxy:3128 .svc pause:1 docker.io quay.io
proxy: {noProxy: .a} => http://proxy:3128 .a pause:1 docker.io quay.io
pauseImage: pause:2 => http://proxy:3128 .svc pause:2 docker.io quay.io
containerd: {registries: [{host: ghcr.io}]} => http://proxy:3128 .svc pause:1 ghcr.io
containerd: {registries: []} => http://proxy:3128 .svc pause:1
"#;

    /// Documents, and how the only mistake of each begins.
    const REFUSED: &str = r#"
pauseImage: null => pauseImage: is null, but a value of the release can only be replaced; write another value, or remove the field
proxy: null => proxy: is null
kubelet: {featureGates: {A: null}} => kubelet.featureGates.A: is null
initialTaints: [{key: a, value: null, effect: NoSchedule}] => initialTaints[0].value: is null
prxy: hunter2 => prxy: unknown field
downloads: {containerd: {version: 2.1}} => downloads.containerd.version: is a number; put it in quotes
proxy: {http: 'http://u:hunter2@p'} => proxy.http: must be http://host:port, without
kubelet: {featureGates: {NodeSwap: false}} => system.swap: contradicts the feature gate
defaultProfiles: {enabled: false} => defaultProfiles: is the same for all clusters; set it in the settings of the release
"#;

    #[test]
    fn a_cluster_has_the_settings_of_the_release_with_its_own_merged_in() {
        let merged = |patch: &str| {
            let settings = of_cluster(patch).unwrap();
            let hosts = settings.containerd.registries.into_iter().map(|one| one.host);
            let proxy = [settings.proxy.http, settings.proxy.no_proxy].map(Option::unwrap_or_default);
            [&proxy[..], &[settings.pause_image.unwrap_or_default()]]
                .concat()
                .join(" ")
                + &hosts.map(|host| format!(" {host}")).collect::<String>()
        };
        for case in MERGED.trim_matches('\n').lines() {
            let (patch, expected) = case.split_once(" => ").unwrap();
            assert_eq!(merged(patch), expected, "{patch}");
        }
        let digests = ["", "pauseImage: pause:1", "pauseImage: pause:2"];
        let digests = digests.map(|patch| of_cluster(patch).unwrap().digest().unwrap());
        assert!(
            digests[0] == digests[1] && digests[1] != digests[2],
            "{digests:?}"
        );
    }

    #[test]
    fn mistakes_have_their_place_and_path_and_no_value() {
        for case in REFUSED.trim().lines() {
            let (patch, expected) = case.split_once(" => ").unwrap();
            let error = of_cluster(patch).unwrap_err();
            let expected = format!("WorkerCluster cluster-a/worker, spec.settings: {expected}");
            let is_one = error.starts_with(&expected) && !error.contains("hunter2");
            assert!(is_one, "{patch}: {error}");
        }
        let error = of_cluster("defaultProfiles: {}\nprxy: 1\npauseImage: null\n").unwrap_err();
        for part in [
            "defaultProfiles: is the same",
            "prxy: unknown field",
            "pauseImage: is null",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
}
