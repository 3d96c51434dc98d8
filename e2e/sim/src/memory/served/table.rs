//! Tables, as `kubectl get` prints them: of custom kinds with the columns of their definitions, of others
//! with name and age.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::kinds::Kind;
use super::definition;
use crate::memory::State;

/// How objects of a kind are shown in rows.
pub(super) struct Table {
    columns: Vec<Column>,
    now: Timestamp,
    /// What is shown of each object besides: `None`, `Metadata` or `Object`.
    include: String,
}

struct Column {
    name: String,
    type_: String,
    priority: i64,
    description: String,
    cell: Cell,
}

/// What is in a cell.
enum Cell {
    /// The value at a path such as `.status.conditions[?(@.type=="Ready")].status`.
    Path(String),
    /// The time since the one at this path.
    Age(String),
}

impl Table {
    pub fn of(kind: &Kind, state: &State, include: &str) -> Self {
        let name = column("Name", Cell::Path(".metadata.name".to_owned()));
        let of_definition = definition(kind, state)
            .and_then(|definition| definition.pointer("/spec/versions/0/additionalPrinterColumns"))
            .and_then(Value::as_array);
        let columns = match of_definition {
            Some(defined) => [name]
                .into_iter()
                .chain(defined.iter().map(defined_column))
                .collect(),
            None => vec![
                name,
                column("Age", Cell::Age(".metadata.creationTimestamp".to_owned())),
            ],
        };
        Self {
            columns,
            now: state.now(),
            include: include.to_owned(),
        }
    }

    /// The table of an object, or of a list of them.
    pub fn show(&self, object: &Value) -> Value {
        let rows: Vec<Value> = match object.get("items").and_then(Value::as_array) {
            Some(items) => items.iter().map(|item| self.row(item)).collect(),
            None => vec![self.row(object)],
        };
        let columns = self.columns.iter().enumerate().map(|(index, column)| {
            let format = if index == 0 { "name" } else { "" };
            json!({"name": column.name, "type": column.type_, "format": format, "priority": column.priority,
                "description": column.description})
        });
        let metadata = object.get("metadata");
        let of = |key: &str| metadata.and_then(|metadata| metadata.get(key)).cloned();
        json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": of("resourceVersion"), "continue": of("continue").unwrap_or_else(|| "".into())},
            "columnDefinitions": columns.collect::<Vec<_>>(), "rows": rows})
    }

    fn row(&self, object: &Value) -> Value {
        let cells: Vec<Value> = self
            .columns
            .iter()
            .map(|column| self.cell(object, &column.cell))
            .collect();
        let shown = match self.include.as_str() {
            "None" => Value::Null,
            "Object" => object.clone(),
            _ => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object.get("metadata")})
            }
        };
        json!({"cells": cells, "object": shown})
    }

    fn cell(&self, object: &Value, cell: &Cell) -> Value {
        match cell {
            Cell::Path(path) => find(object, path).cloned().unwrap_or_default(),
            Cell::Age(path) => {
                let time = find(object, path)
                    .and_then(Value::as_str)
                    .and_then(|time| time.parse::<Timestamp>().ok());
                time.map_or(Value::Null, |time| {
                    age(self.now.duration_since(time).as_secs()).into()
                })
            }
        }
    }
}

fn column(name: &str, cell: Cell) -> Column {
    Column {
        name: name.to_owned(),
        type_: "string".to_owned(),
        priority: 0,
        description: String::new(),
        cell,
    }
}

/// An item of `additionalPrinterColumns`.
fn defined_column(defined: &Value) -> Column {
    let of = |key: &str| {
        defined
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let path = of("jsonPath");
    Column {
        name: of("name"),
        type_: of("type"),
        priority: defined.get("priority").and_then(Value::as_i64).unwrap_or(0),
        description: of("description"),
        cell: match of("type").as_str() {
            "date" => Cell::Age(path),
            _ => Cell::Path(path),
        },
    }
}

/// The first value at a path of keys and conditions.
fn find<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    if path.is_empty() {
        return Some(value);
    }
    if let Some(condition) = path.strip_prefix("[?(@.") {
        let (condition, rest) = condition.split_once(")]")?;
        let (key, wanted) = condition.split_once("==")?;
        let wanted = wanted.trim_matches(['"', '\'']);
        let holds = |item: &&Value| item.get(key).and_then(Value::as_str) == Some(wanted);
        let mut items = value.as_array()?.iter().filter(holds);
        return items.find_map(|item| find(item, rest));
    }
    let path = path.strip_prefix('.')?;
    let (key, rest) = path.split_at(path.find(['.', '[']).unwrap_or(path.len()));
    find(value.get(key)?, rest)
}

/// A duration as kubectl shows it, such as `45s`, `3m20s` or `2d`.
fn age(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match seconds {
        ..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 if seconds % 60 != 0 => format!("{minutes}m{}s", seconds % 60),
        120..10_800 => format!("{minutes}m"),
        10_800..172_800 => format!("{hours}h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_the_first_value_that_fits() {
        let object = json!({"status": {"conditions": [
            {"type": "Rendered", "status": "True", "reason": "Rendered"},
            {"type": "Published", "status": "False", "message": "waits for a revision"},
        ], "profile": {"name": "osp-ubuntu"}}});
        for (path, expected) in [
            (
                r#".status.conditions[?(@.type=="Rendered")].reason"#,
                Some("Rendered"),
            ),
            (
                r#".status.conditions[?(@.status=="False")].message"#,
                Some("waits for a revision"),
            ),
            (r#".status.conditions[?(@.type=="Ready")].status"#, None),
            (".status.profile.name", Some("osp-ubuntu")),
            (".status.missing.name", None),
        ] {
            assert_eq!(find(&object, path).and_then(Value::as_str), expected, "{path}");
        }
    }

    #[test]
    fn ages_are_kubectls() {
        for (seconds, expected) in [
            (-5, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (601, "10m"),
            (10_800, "3h"),
            (200_000, "2d"),
        ] {
            assert_eq!(age(seconds), expected);
        }
    }
}
