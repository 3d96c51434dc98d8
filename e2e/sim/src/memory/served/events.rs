//! Events as version v1 has them. `kubectl get events`, `kubectl describe` and osmctl ask for that one, and
//! the services write the newer one.

use serde_json::{Map, Value};

/// What a field of events.k8s.io/v1 is called in v1.
const RENAMED: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedCount", "count"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedSource", "source"),
];

/// Changes the version of an Event.
pub(super) fn to_v1(event: &mut Value) {
    let Some(fields) = event.as_object_mut() else {
        return;
    };
    let renamed: Map<String, Value> = std::mem::take(fields)
        .into_iter()
        .map(|(key, value)| match RENAMED.iter().find(|(new, _)| *new == key) {
            Some((_, old)) => ((*old).to_owned(), value),
            None => (key, value),
        })
        .collect();
    *fields = renamed;
    fields.insert("apiVersion".to_owned(), "v1".into());
}
