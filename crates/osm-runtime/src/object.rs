//! Objects as an API server sends them. Each is decoded from its own text, so that an object that can't be
//! decoded affects no other.
//!
//! `serde_json` decodes at most 128 levels of nesting, and an API server accepts objects that are much
//! deeper. So the text of an object is found without a look into it, and its metadata is decoded field by
//! field.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use osm_api::strict;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_path_to_error::{Path, Segment};

/// The largest object that is decoded, in bytes of JSON. etcd takes 1.5 MiB by default, and JSON may need
/// more bytes for the same object.
pub const MAX_OBJECT_BYTES: usize = 4 * 1024 * 1024;

/// Most values of an object that is decoded, counted by the commas in its JSON. In memory, a value takes many
/// times the bytes of a short text.
pub const MAX_VALUES: usize = 250_000;

/// Segments of a path in a message: the author of an object chooses how deep it is. The rest is left out.
const MAX_PATH: usize = 8;

/// The longest name of a field in a message: the author of an object chooses the keys of its maps.
const MAX_FIELD: usize = 64;

/// The path of the whole object.
const OBJECT: &str = "the object";

const CORRECT: &str = "correct the value, or upgrade to the version that knows it";

/// An object that can't be decoded.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// All of it that can be decoded, but `managedFields` and `ownerReferences`, which can be large.
    pub metadata: ObjectMeta,
    /// What is wrong, where, and what to do. It repeats no value.
    pub problem: String,
    text: String,
}

impl Unreadable {
    pub(crate) fn bytes(&self) -> usize {
        self.text.len()
    }

    /// The fields of one part of the object, such as `status`, without those that can't be decoded.
    pub fn part<T: DeserializeOwned + Default>(&self, name: &str) -> T {
        part(&self.text, name, &[])
    }
}

/// The fields of a part, without some and without those that can't be decoded.
fn part<T: DeserializeOwned + Default>(text: &str, name: &str, without: &[&str]) -> T {
    let parts: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap_or_default();
    let mut fields: BTreeMap<String, &RawValue> = parts
        .get(name)
        .and_then(|part| serde_json::from_str(part.get()).ok())
        .unwrap_or_default();
    fields.retain(|field, value| {
        !without.contains(&&**field)
            && !has_too_many_values(value.get())
            && decode_map::<T>(&BTreeMap::from([(field.clone(), *value)])).is_some()
    });
    decode_map(&fields).unwrap_or_default()
}

fn decode_map<T: DeserializeOwned>(fields: &BTreeMap<String, &RawValue>) -> Option<T> {
    let text = serde_json::to_string(fields).ok()?;
    serde_json::from_str(&text).ok()
}

/// Decodes an object.
///
/// # Errors
/// The object can't be decoded. The outer error: not even its name can.
pub fn decode<K: DeserializeOwned>(text: &str) -> Result<Result<K, Unreadable>, serde_json::Error> {
    let problem = if text.len() > MAX_OBJECT_BYTES {
        format!(
            "it has more than {} MiB of JSON; make it smaller",
            MAX_OBJECT_BYTES >> 20
        )
    } else if has_too_many_values(text) {
        format!("it has more than {MAX_VALUES} commas between values and in texts; remove some of them")
    } else {
        match serde_json::from_str(text) {
            Ok(object) => return Ok(Ok(object)),
            Err(_) => problem::<K>(text),
        }
    };
    let metadata: ObjectMeta = part(text, "metadata", &["managedFields", "ownerReferences"]);
    if metadata.name.is_none() {
        return Err(serde::de::Error::custom("it has no name"));
    }
    Ok(Err(Unreadable {
        metadata,
        problem,
        text: text.to_owned(),
    }))
}

fn has_too_many_values(text: &str) -> bool {
    text.bytes().filter(|byte| *byte == b',').count() > MAX_VALUES
}

/// Decodes the object once more, to know the path of what is wrong.
fn problem<K: DeserializeOwned>(text: &str) -> String {
    let mut decoder = serde_json::Deserializer::from_str(text);
    let error = serde_path_to_error::deserialize::<_, K>(&mut decoder).err();
    let path = error
        .as_ref()
        .map_or_else(|| OBJECT.to_owned(), |error| short(error.path()));
    let message = error
        .map(|error| error.into_inner().to_string())
        .unwrap_or_default();
    if message.starts_with("recursion limit exceeded") {
        return format!("{path} is nested too deeply; remove levels until at most 100 are left");
    }
    match wrong_type(&message) {
        Some(rule) if rule.contains("; ") => format!("{path} {rule}"),
        Some(rule) => format!("{path} {rule}; {CORRECT}"),
        None => format!("this version does not know the value of {path}; {CORRECT}"),
    }
}

fn short(path: &Path) -> String {
    let mut text = String::new();
    for segment in path.iter().take(MAX_PATH) {
        match segment {
            Segment::Seq { index } => text.push_str(&format!("[{index}]")),
            Segment::Map { key } => {
                text.push_str(if text.is_empty() { "" } else { "." });
                text.extend(key.chars().take(MAX_FIELD));
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    if text.is_empty() { OBJECT.to_owned() } else { text }
}

/// What the message of a decoder reports about a value of the wrong type.
fn wrong_type(message: &str) -> Option<String> {
    // serde_json appends " at line N", which is a position in our buffer.
    let (message, _) = message.rsplit_once(" at line ").unwrap_or((message, ""));
    message
        .starts_with("invalid type: ")
        .then(|| strict::without_values(message))
}

#[cfg(test)]
mod tests {
    use osm_api::MachineDeployment;
    use osm_api::config::{OperatingSystemConfig, OperatingSystemConfigSpec, OperatingSystemConfigStatus};
    use serde_json::json;

    use super::*;

    fn deep(levels: usize) -> String {
        format!("{}{}", "[".repeat(levels), "]".repeat(levels))
    }

    fn machine_deployment(spec: &str) -> String {
        format!(
            r#"{{"apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
                "spec": {{"template": {{"spec": {{"providerSpec": {{"value": {{"operatingSystemSpec": {spec}}}}}}}}}}},
                "metadata": {{"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 3,
                    "annotations": {{"a": "b"}}, "managedFields": [{{"fieldsV1": {}}}]}}}}"#,
            deep(1000)
        )
    }

    #[test]
    fn a_deep_object_keeps_its_metadata_and_its_place_is_named() {
        let text = machine_deployment(&format!(r#"{{"x": {}}}"#, deep(200)));
        let unreadable = decode::<MachineDeployment>(&text).unwrap().unwrap_err();
        let meta = &unreadable.metadata;
        assert_eq!(
            (meta.name.as_deref(), meta.namespace.as_deref()),
            (Some("p"), Some("n"))
        );
        assert_eq!(
            (meta.uid.as_deref(), meta.resource_version.as_deref()),
            (Some("u"), Some("7"))
        );
        assert_eq!(meta.generation, Some(3));
        assert_eq!(
            unreadable.problem,
            "spec.template.spec.providerSpec.value.operatingSystemSpec.x[0] is nested too deeply; remove levels until at most 100 are left"
        );
    }

    #[test]
    fn what_is_wrong_is_named_without_the_value() {
        let config = r#"{"apiVersion": "x", "kind": "y", "metadata": {"name": "c"}, "spec": {"osName": "hunter2", "osVersion": "1",
            "poolRef": "hunter2"}, "status": {"retired": {"uid": "u", "generation": 1}, "published": "hunter2"}}"#;
        let unreadable = decode::<OperatingSystemConfig>(config).unwrap().unwrap_err();
        let problem = &unreadable.problem;
        assert!(
            problem.contains("the value of spec.osName;") && !problem.contains("hunter2"),
            "{problem}"
        );
        // What can be decoded is.
        let spec: OperatingSystemConfigSpec = unreadable.part("spec");
        assert_eq!(
            (spec.os_name, spec.os_version.as_str(), spec.pool_ref),
            (None, "1", None)
        );
        let status: OperatingSystemConfigStatus = unreadable.part("status");
        assert_eq!(status.retired.map(|retired| retired.uid).as_deref(), Some("u"));
        assert_eq!(status.published, None);
    }

    #[test]
    fn an_object_with_too_many_values_is_not_decoded() {
        let object =
            |values: &str| format!(r#"{{"metadata": {{"name": "p"}}, "spec": {{"template": [{values}0]}}}}"#);
        let text = object(&"0,".repeat(MAX_VALUES + 1));
        let unreadable = decode::<MachineDeployment>(&text).unwrap().unwrap_err();
        assert!(
            unreadable.problem.contains("250000 commas"),
            "{}",
            unreadable.problem
        );
        assert_eq!(unreadable.metadata.name.as_deref(), Some("p"));
        assert!(!has_too_many_values(&object(&"0,".repeat(MAX_VALUES - 1))));
    }

    #[test]
    fn a_value_of_the_wrong_type_is_called_that() {
        for (spec, expected) in [
            (
                json!({"osVersion": 24.04}),
                "spec.osVersion is a number; put it in quotes",
            ),
            (
                json!({"osVersion": ["hunter2 at line 1"]}),
                "spec.osVersion is a list, expected a string; correct the value, or upgrade to the version that knows it",
            ),
            (
                json!({"bootstrapConfig": {"files": "hunter2, expected a list at line 1"}}),
                "spec.bootstrapConfig.files is a string, expected a list; correct the value, or upgrade to the version that knows it",
            ),
            (
                json!("hunter2"),
                "spec is a string, expected a map; correct the value, or upgrade to the version that knows it",
            ),
        ] {
            let object = json!({"apiVersion": "x", "kind": "y", "metadata": {"name": "c"}, "spec": spec});
            let text = object.to_string();
            let unreadable = decode::<OperatingSystemConfig>(&text).unwrap().unwrap_err();
            assert_eq!(unreadable.problem, expected);
        }
    }

    #[test]
    fn the_path_leads_to_the_value_that_is_wrong() {
        for (text, expected) in [
            (
                r#"{"metadata": {"name": "c"}, "spec": {"osVersion": "}\"{,", "bootstrapConfig": {"files": [{"path": "a"}]}}}"#,
                "spec.bootstrapConfig.files[0]",
            ),
            (
                "{\"metadata\": {\"name\": \"c\"},\n \"spec\": {\"bootstrapConfig\": {\"files\": [\n {\"path\": \"ä\", \"content\": {}}, {\"path\": 1}]}}}",
                "spec.bootstrapConfig.files[1].path",
            ),
            (
                r#"{"metadata": {"name": "c"}, "spec": {"bootstrapConfig": {"files": [[]]}}}"#,
                "spec.bootstrapConfig.files[0]",
            ),
            (
                r#"{"metadata": {"name": "c", "generation": "1"}, "spec": {}}"#,
                "metadata.generation",
            ),
            // Where the decoder has read a part of the wrong value.
            (
                r#"{"metadata": {"name": "c", "ownerReferences": [[1]]}, "spec": {}}"#,
                "metadata.ownerReferences[0]",
            ),
            (
                r#"{"metadata": {"name": "c", "labels": []}, "spec": {}}"#,
                "metadata.labels",
            ),
            (
                r#"{"metadata": {"name": "c"}, "spec": {"osName": {"hunter2": 1}}}"#,
                "spec.osName",
            ),
            (
                r#"{"metadata": {"name": "c"}, "spec": {"osName": [1]}}"#,
                "spec.osName",
            ),
        ] {
            let problem = problem::<OperatingSystemConfig>(text);
            let path = problem.trim_start_matches("this version does not know the value of ");
            let path = path.split([' ', ';']).next();
            assert_eq!(path, Some(expected), "{problem}");
        }
    }

    #[test]
    fn a_large_object_is_not_decoded_and_garbage_is_an_error() {
        let text = machine_deployment(&format!(r#"{{"x": "{}"}}"#, "x".repeat(MAX_OBJECT_BYTES)));
        let unreadable = decode::<MachineDeployment>(&text).unwrap().unwrap_err();
        assert!(unreadable.problem.contains("4 MiB"), "{}", unreadable.problem);
        assert_eq!(unreadable.metadata.name.as_deref(), Some("p"));
        for garbage in [
            "",
            "x",
            "[]",
            "{",
            r#"{"metadata": 1}"#,
            r#"{"metadata": {"name": 1}}"#,
        ] {
            assert!(decode::<MachineDeployment>(garbage).is_err(), "{garbage}");
        }
    }
}
