//! The equivalents of flags in OSM: a document, values, and messages. Nothing here knows a flag by its name.

use serde_json::{Map, Value, json};

use super::credentials::RegistrySecret;
use super::registries::Registries;
use crate::output::merge;

/// What to do about a flag that cannot be carried over.
pub(super) const MANUAL: &str = "migrate by the manual steps of docs/migration.md";

/// What flags are in OSM.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mapped {
    /// The settings document.
    pub settings: Value,
    /// Whether it is not valid, so that no one looked for passwords in it.
    pub is_invalid: bool,
    /// Values of the chart except for the settings.
    pub values: Map<String, Value>,
    /// Why the migration can't go on: a flag that a person has to decide about.
    pub problems: Vec<String>,
    /// What a person may want to know.
    pub notes: Vec<String>,
    /// Secrets in `cloud-init-settings` that must exist.
    pub secrets: Vec<String>,
    /// Commands of a shell that create Secrets which the settings name.
    pub commands: Vec<String>,
    /// What the Secret with credentials of registries contains.
    pub(super) registry_secret: Option<RegistrySecret>,
    pub(super) registries: Registries,
}

impl Mapped {
    pub(super) fn note(&mut self, flag: &str, reason: &str) {
        self.notes
            .push(format!("the flag -{flag} is not needed: {reason}"));
    }

    pub(super) fn by_hand(&mut self, flag: &str, reason: &str) {
        self.problems.push(format!(
            "the flag -{flag} needs a decision: {reason}. Then pass the settings document with --settings, and add --handled-flag {flag}"
        ));
    }

    pub(super) fn malformed(&mut self, flag: &str, form: &str) {
        self.problems
            .push(format!("the value of the flag -{flag} must be {form}; {MANUAL}"));
    }

    /// Sets a field of the settings.
    pub(super) fn set(&mut self, pointer: &str, value: Value) {
        let mut document = value;
        for part in pointer.rsplit('/').filter(|part| !part.is_empty()) {
            document = Value::Object(Map::from_iter([(part.to_owned(), document)]));
        }
        merge(&mut self.settings, &document);
    }

    /// Sets a value of the chart.
    pub(super) fn value(&mut self, section: &str, key: &str, value: Value) {
        let section = self.values.entry(section).or_insert_with(|| json!({}));
        merge(section, &json!({key: value}));
    }
}
