//! The requests that an implementation sends for each change of a pool.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// A change that makes an implementation write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Change {
    /// A MachineDeployment was created, with its revision.
    Created,
    /// Template and revision of a MachineDeployment changed.
    Rotated,
    /// Only the revision changed.
    Revision,
    /// The profile has another version.
    Profile,
    /// The settings of the installation changed.
    Settings,
    /// The MachineDeployment was deleted.
    Deleted,
}

/// The requests for each change, in order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Writes(pub BTreeMap<Change, Vec<Step>>);

/// One request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Verb and resource, such as `create secrets`.
    pub kind: String,
    /// HTTP method.
    pub method: String,
    /// Path and query.
    pub uri: Template,
    /// Media type of the body.
    pub content_type: String,
    /// Body; empty for none.
    pub body: Template,
    /// Number of the object that the request is about, within all requests. The uid and the resourceVersion of an answer become the
    /// values [`uid`] and [`version`] of this number.
    pub object: usize,
    /// Whether the request is sent with the token that the last TokenRequest returned.
    #[serde(default)]
    pub as_node: bool,
}

impl Step {
    /// Whether all values of the request are known.
    #[must_use]
    pub fn is_known(&self, values: &Values) -> bool {
        [&self.uri, &self.body]
            .iter()
            .all(|template| template.fill(values).is_ok())
    }
}

/// Name of the value that holds the uid of an object.
#[must_use]
pub fn uid(object: usize) -> String {
    format!("uid.{object}")
}

/// Name of the value that holds the last resourceVersion of an object.
#[must_use]
pub fn version(object: usize) -> String {
    format!("version.{object}")
}

/// Values by name, of one pool.
pub type Values = BTreeMap<String, String>;

/// A text with places for values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Part {
    Text(String),
    /// Name of a value.
    Value(String),
}

impl Template {
    /// `text` with a place for a value wherever its recorded text occurs. `recorded` is pairs of a text and the name of a value; an
    /// earlier pair wins.
    #[must_use]
    pub fn of(text: &str, recorded: &[(String, String)]) -> Self {
        let mut parts = vec![Part::Text(text.to_owned())];
        for (found, name) in recorded.iter().filter(|(found, _)| !found.is_empty()) {
            parts = parts
                .into_iter()
                .flat_map(|part| match part {
                    Part::Text(text) => split(&text, found, name),
                    value => vec![value],
                })
                .collect();
        }
        Self(parts)
    }

    /// The text with these values.
    ///
    /// # Errors
    /// A value that is missing.
    pub fn fill(&self, values: &Values) -> Result<String> {
        let mut text = String::new();
        for part in &self.0 {
            text.push_str(match part {
                Part::Text(text) => text,
                Part::Value(name) => values
                    .get(name)
                    .with_context(|| format!("the value {name} is not known yet"))?,
            });
        }
        Ok(text)
    }

    /// Whether the text is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0
            .iter()
            .all(|part| matches!(part, Part::Text(text) if text.is_empty()))
    }
}

fn split(text: &str, found: &str, name: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    for (i, piece) in text.split(found).enumerate() {
        if i > 0 {
            parts.push(Part::Value(name.to_owned()));
        }
        if !piece.is_empty() {
            parts.push(Part::Text(piece.to_owned()));
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_texts_become_places_for_values() {
        let recorded = [("pool-1-x", "id"), ("pool-1", "name")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        let template = Template::of("pool-1: pool-1-x, pool-1-x.", &recorded);
        let values = [("id", "7"), ("name", "p")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(template.fill(&values.into()).unwrap(), "p: 7, 7.");
        let error = template.fill(&Values::new()).unwrap_err().to_string();
        assert_eq!(error, "the value name is not known yet");
        assert!(Template::of("", &recorded).is_empty() && !template.is_empty());
    }
}
