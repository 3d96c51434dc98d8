//! Reading manifests and settings: any mix, from files, folders and standard input.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Result;
use osm_api::names::{SETTINGS_CONFIG_MAP, SETTINGS_KEY};
use osm_api::settings::Settings;
use osm_api::{MachineDeployment, OperatingSystemProfile, Reason, strict};
use osm_user_data::yaml;
use serde_json::{Map, Value};

use crate::metadata;
use crate::origin::Origin;
use crate::problem::{Place, Problem, Problems};
use crate::source::{self, Source};
use crate::yaml_tree::{self, Mistake, Node};

/// The kind of profiles that are kept apart from those that a service installs. Its schema is the same.
pub const CUSTOM_PROFILE: &str = "CustomOperatingSystemProfile";

/// What is wrong with YAML whose tree could be read: aliases that expand without end.
const ALIAS_HINT: &str = "write the repeated parts out, or use fewer aliases";

const KINDS: &str =
    "MachineDeployments, OperatingSystemProfiles, CustomOperatingSystemProfiles, ConfigMaps and settings";

/// A manifest with its origin.
#[derive(Clone, Debug)]
pub struct Item<T> {
    pub value: T,
    pub origin: Origin,
}

/// A ConfigMap that holds settings.
#[derive(Clone, Debug)]
pub struct SettingsMap {
    pub namespace: String,
    pub name: String,
    /// The document under the key `settings.yaml`.
    pub text: String,
}

/// Settings, and the document that says so.
#[derive(Clone, Debug)]
pub struct SettingsDocument {
    pub settings: Settings,
    pub document: Value,
}

/// What inputs hold.
#[derive(Clone, Debug, Default)]
pub struct Manifests {
    /// MachineDeployments, in order.
    pub machine_deployments: Vec<Item<MachineDeployment>>,
    /// Profiles of both kinds, in order.
    pub profiles: Vec<Item<OperatingSystemProfile>>,
    /// ConfigMaps with the settings of pools.
    pub settings_maps: Vec<Item<SettingsMap>>,
    /// Settings of the installation: documents without a kind, and the ConfigMap `osm-settings`.
    pub settings: Vec<Item<SettingsDocument>>,
}

impl Manifests {
    fn is_empty(&self) -> bool {
        self.machine_deployments.is_empty() && self.profiles.is_empty() && self.settings_maps.is_empty()
    }
}

/// Reads inputs, and everything that is wrong with them. What is right is returned as well.
pub fn read(paths: &[PathBuf]) -> (Manifests, Vec<Problem>) {
    let (sources, problems) = source::read(paths);
    let mut reader = Reader {
        manifests: Manifests::default(),
        problems,
    };
    sources.into_iter().for_each(|source| reader.source(source));
    (reader.manifests, reader.problems)
}

/// Reads inputs.
///
/// # Errors
/// All problems of all inputs.
pub fn manifests(paths: &[PathBuf]) -> Result<Manifests> {
    let (manifests, problems) = read(paths);
    if problems.is_empty() {
        Ok(manifests)
    } else {
        Err(Problems(problems).into())
    }
}

/// Reads a settings document; without one, the defaults.
///
/// # Errors
/// All problems of the document.
pub fn settings_document(path: Option<&Path>) -> Result<SettingsDocument> {
    let Some(path) = path else {
        return Ok(SettingsDocument {
            settings: Settings::default(),
            document: Value::Object(Map::new()),
        });
    };
    let read = manifests(&[path.to_owned()])?;
    match read.settings.as_slice() {
        [one] => Ok(one.value.clone()),
        [] if read.is_empty() => settings_document(None),
        found => {
            let message = format!("it has {} settings documents; provide one", found.len());
            let file = Place::file(path.display().to_string());
            Err(Problems::from(Problem::error("SettingsInvalid", file, message)).into())
        }
    }
}

/// The settings of inputs: those of `path`, or else the one document that the inputs contain, or else the
/// defaults.
///
/// # Errors
/// Several documents, or a wrong one.
pub fn settings(manifests: &Manifests, path: Option<&Path>) -> Result<SettingsDocument> {
    match manifests.settings.as_slice() {
        [one] if path.is_none() => Ok(one.value.clone()),
        [first, second, ..] if path.is_none() => {
            let message = format!(
                "the inputs contain two settings documents, here and at {}; keep one, or name one with --settings",
                first.origin.start()
            );
            Err(Problems::from(Problem::error("SettingsInvalid", second.origin.start(), message)).into())
        }
        _ => settings_document(path),
    }
}

struct Reader {
    manifests: Manifests,
    problems: Vec<Problem>,
}

impl Reader {
    fn mistake(&mut self, file: &str, mistake: Mistake) {
        let place = Place {
            file: file.to_owned(),
            line: Some(mistake.line),
            column: Some(mistake.column).filter(|column| *column > 0),
        };
        let mut problem = Problem::error("yaml", place, mistake.message);
        problem.hint = mistake.hint;
        self.problems.push(problem);
    }

    fn source(&mut self, source: Source) {
        let Source { name, text, is_found } = source;
        let nodes = match yaml_tree::read(&text) {
            Ok(nodes) => nodes,
            Err(mistake) => return self.mistake(&name, mistake),
        };
        let documents = match yaml::read(&text) {
            Ok(documents) => documents,
            Err(error) => {
                let (place, message) = located(&name, &error);
                let problem = Problem::error("yaml", place, format!("not valid YAML: {message}"));
                return self.problems.push(problem.hint(ALIAS_HINT));
            }
        };
        // Both leave out what is empty, in the same way.
        let is_known = nodes.len() == documents.len();
        let mut nodes = nodes.into_iter();
        let name: Rc<str> = name.into();
        for (i, document) in documents.into_iter().enumerate() {
            let node = nodes.next().filter(|_| is_known);
            let origin = |node| Origin::new(name.clone(), node);
            let Some(items) = items(&document) else {
                self.take(document, origin(node), i, is_found);
                continue;
            };
            let of_node = node.and_then(|node| node.get("items").cloned());
            let mut nodes = of_node.map(Node::into_items).unwrap_or_default().into_iter();
            for item in items {
                self.take(item, origin(nodes.next()), i, is_found);
            }
        }
    }

    fn take(&mut self, item: Value, origin: Origin, document: usize, is_found: bool) {
        let kind = item.get("kind").and_then(Value::as_str).map(str::to_owned);
        match kind.as_deref() {
            Some("MachineDeployment") => {
                self.problems
                    .extend(metadata::check("MachineDeployment", &item, &origin));
                if let Some(value) = self.decode("MachineDeployment", item, &origin) {
                    self.problems.extend(metadata::check_template(&value, &origin));
                    let item = Item { value, origin };
                    self.manifests.machine_deployments.push(item);
                }
            }
            Some(kind @ ("OperatingSystemProfile" | CUSTOM_PROFILE)) => self.profile(kind, item, origin),
            Some("ConfigMap") => self.config_map(&item, &origin),
            // Folders may hold manifests for other programs.
            Some(_) if is_found => {}
            Some(kind) => {
                let message = format!("document {}: is a {kind}; provide only {KINDS}", document + 1);
                self.problems
                    .push(Problem::error("kind", origin.place("kind"), message));
            }
            None if is_found && !looks_like_settings(&item) => {}
            None if item.is_object() && item.get("apiVersion").is_none() => {
                let text = yaml::write(&item).unwrap_or_default();
                self.settings(&text, origin);
            }
            None => {
                let message = format!(
                    "document {}: has no kind; provide a complete manifest with apiVersion, kind and metadata, or a settings \
                     document",
                    document + 1
                );
                self.problems
                    .push(Problem::error("kind", origin.start(), message));
            }
        }
    }

    fn profile(&mut self, kind: &str, mut item: Value, origin: Origin) {
        self.problems.extend(metadata::check(kind, &item, &origin));
        if let Some(field) = item.get_mut("kind") {
            *field = Value::from("OperatingSystemProfile");
        }
        let written = item.clone();
        let Some(value) = self.decode::<OperatingSystemProfile>(kind, item, &origin) else {
            return;
        };
        let read = serde_json::to_value(&value.spec).unwrap_or_default();
        let spec = written.get("spec").unwrap_or(&Value::Null);
        let mut unknown = Vec::new();
        unknown_fields(spec, &read, "spec", &mut unknown);
        for path in unknown {
            let message = format!("{path}: unknown field; the API server refuses or drops it");
            let problem = Problem::error("unknown-field", origin.place(&path), message);
            self.problems.push(
                problem.hint("correct its name, or remove it; `osmctl schema profile` lists the fields"),
            );
        }
        self.manifests.profiles.push(Item { value, origin });
    }

    fn config_map(&mut self, item: &Value, origin: &Origin) {
        let text_at = |pointer| item.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let Some(text) = item
            .get("data")
            .and_then(|data| data.get(SETTINGS_KEY))
            .and_then(Value::as_str)
        else {
            // It configures something else.
            return;
        };
        self.problems.extend(metadata::check("ConfigMap", item, origin));
        let map = SettingsMap {
            namespace: text_at("/metadata/namespace").unwrap_or_default(),
            name: text_at("/metadata/name").unwrap_or_default(),
            text: text.to_owned(),
        };
        let path = format!("data.{SETTINGS_KEY}");
        if let Err(mistake) = yaml_tree::read(text) {
            let place = origin.place_in_text(&path, mistake.line, Some(mistake.column));
            let mut problem = Problem::error("SettingsInvalid", place, mistake.message);
            problem.hint = mistake.hint;
            return self.problems.push(problem);
        }
        if map.name != SETTINGS_CONFIG_MAP {
            self.manifests.settings_maps.push(Item {
                value: map,
                origin: origin.clone(),
            });
            return;
        }
        self.settings_with(text, origin.clone(), |mistake| {
            let inner = yaml_tree::read(text)
                .ok()
                .and_then(|nodes| nodes.into_iter().next());
            let inner = Origin::new("".into(), inner).place(mistake);
            origin.place_in_text(&path, inner.line.unwrap_or(1), inner.column)
        });
    }

    fn settings(&mut self, text: &str, origin: Origin) {
        let places = origin.clone();
        self.settings_with(text, origin, |path| places.place(path));
    }

    fn settings_with(&mut self, text: &str, origin: Origin, place: impl Fn(&str) -> Place) {
        let read = Settings::document(text).and_then(|document| {
            let settings = Settings::from_document(document.clone())?;
            Ok(SettingsDocument { settings, document })
        });
        match read {
            Ok(value) => self.manifests.settings.push(Item { value, origin }),
            Err(error) => self.problems.extend(error.0.into_iter().map(|line| {
                let (path, _) = line.split_once(": ").unwrap_or_default();
                let hint = match path {
                    "settings" => "these are values of the chart: copy what is below settings to a file, and check that file",
                    _ => "docs/settings.md lists all fields; `osmctl schema settings` prints the schema",
                };
                Problem::error("SettingsInvalid", place(path), format!("the settings' {line}")).hint(hint)
            })),
        }
    }

    fn decode<T: serde::de::DeserializeOwned>(
        &mut self,
        kind: &str,
        item: Value,
        origin: &Origin,
    ) -> Option<T> {
        match strict::decode(item) {
            Ok(value) => Some(value),
            Err(errors) => {
                self.problems.extend(errors.into_iter().map(|line| {
                    let (path, _) = line.split_once(": ").unwrap_or_default();
                    let message = format!("this {kind} is invalid: {line}");
                    Problem::error(unreadable(kind).as_str(), origin.place(path), message)
                }));
                None
            }
        }
    }
}

/// The place and the rest of an error of the form `error: line 6 column 14: what is wrong`.
fn located(file: &str, error: &str) -> (Place, String) {
    let parts = || {
        let (at, message) = error.strip_prefix("error: line ")?.split_once(": ")?;
        let (line, column) = at.split_once(" column ")?;
        Some((
            line.parse::<usize>().ok()?,
            column.parse::<usize>().ok()?,
            message,
        ))
    };
    let mut place = Place::file(file);
    let Some((line, column, message)) = parts() else {
        return (place, error.to_owned());
    };
    (place.line, place.column) = (Some(line), Some(column));
    (place, message.to_owned())
}

/// The reason with which a service reports an object of this kind that it can't read.
fn unreadable(kind: &str) -> Reason {
    match kind {
        "MachineDeployment" => Reason::ObjectUnreadable,
        CUSTOM_PROFILE => Reason::CustomProfileInvalid,
        _ => Reason::ProfileInvalid,
    }
}

/// Whether a document without a kind has a field of the settings. In folders, there are also files such as
/// Chart.yaml.
fn looks_like_settings(document: &Value) -> bool {
    // Settings always have a JSON form.
    let known = serde_json::to_value(Settings::default()).unwrap_or_default();
    let fields = document
        .as_object()
        .filter(|fields| !fields.contains_key("apiVersion"));
    fields.is_some_and(|fields| fields.keys().any(|field| known.get(field).is_some()))
}

/// The items of a List.
fn items(document: &Value) -> Option<Vec<Value>> {
    let kind = document.get("kind").and_then(Value::as_str)?;
    let items = document.get("items").and_then(Value::as_array)?;
    kind.ends_with("List").then(|| items.clone())
}

/// Paths of what is `written` but was not `read`. What was read leaves out what is empty.
fn unknown_fields(written: &Value, read: &Value, path: &str, unknown: &mut Vec<String>) {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => {
            for (key, value) in written {
                let path = format!("{path}.{key}");
                match read.get(key) {
                    Some(read) => unknown_fields(value, read, &path, unknown),
                    None if is_empty(value) => {}
                    None => unknown.push(path),
                }
            }
        }
        (Value::Array(written), Value::Array(read)) => {
            for (i, (written, read)) in written.iter().zip(read).enumerate() {
                unknown_fields(written, read, &format!("{path}[{i}]"), unknown);
            }
        }
        _ => {}
    }
}
