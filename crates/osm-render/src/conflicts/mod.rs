//! Finds what can't work together in the texts that a profile renders to: the pool's kubelet with its flags and feature gates, and
//! containerd with its configuration.
//!
//! A profile may have been written for other versions than those of the pool. What is found here is told as a warning, because a script
//! can decide on the machine what it installs and runs.

mod containerd;
mod flags;

use std::borrow::Cow;
use std::fmt;

use osm_api::config::StageConfig;
use osm_api::content::Content;
use osm_api::pool::Pool;
use serde_json::Value;

use crate::Stage;
use crate::kubelet::{API_VERSION, KIND, Kubelet, Lookup};
use crate::user_data::{drop_in_path, unit_path};

pub use flags::REMOVED as REMOVED_FLAGS;

/// Two things in the documents of a pool that can't work together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub stage: Stage,
    /// The file on the machine, or the module.
    pub path: String,
    /// What is in it, such as a flag.
    pub subject: String,
    /// Why that can't work, and what to do. It repeats no value.
    pub problem: String,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            path,
            subject,
            problem,
            ..
        } = self;
        write!(f, "{path}: {subject} {problem}")
    }
}

/// A text of a document.
struct Text<'a> {
    stage: Stage,
    path: String,
    text: Cow<'a, str>,
}

impl Text<'_> {
    fn conflict(&self, subject: impl Into<String>, problem: impl Into<String>) -> Conflict {
        Conflict {
            stage: self.stage,
            path: self.path.clone(),
            subject: subject.into(),
            problem: problem.into(),
        }
    }
}

/// All conflicts in the documents of a pool, each once.
pub(crate) fn find(spec: &Content, pool: &Pool) -> Vec<Conflict> {
    let texts: Vec<Text<'_>> = [
        (Stage::Bootstrap, &spec.bootstrap_config),
        (Stage::Provisioning, &spec.provisioning_config),
    ]
    .into_iter()
    .flat_map(|(stage, config)| texts(stage, config))
    .collect();
    let mut found = containerd::conflicts(&texts);
    let mut cgroup_drivers = Vec::new();
    for text in &texts {
        flags::conflicts(text, pool, &mut found);
        if text.text.contains(KIND) {
            let documents = crate::yaml::read(&text.text).unwrap_or_default();
            for document in documents
                .iter()
                .filter(|document| text_at(document, "kind") == Some(KIND))
            {
                configuration(text, document, pool, &mut found);
                cgroup_drivers
                    .extend(text_at(document, "cgroupDriver").map(|driver| (text, driver == "systemd")));
            }
        }
    }
    if let Some((config, by_systemd)) = containerd::systemd_cgroup(&texts) {
        let others = cgroup_drivers
            .into_iter()
            .filter(|(_, systemd)| *systemd != by_systemd);
        found.extend(others.map(|(text, _)| {
            let problem = format!(
                "differs from SystemdCgroup in {}, so that pods may fail; use systemd in both",
                config.path
            );
            text.conflict("cgroupDriver", problem)
        }));
    }
    let mut distinct = Vec::new();
    for conflict in found {
        if !distinct.contains(&conflict) {
            distinct.push(conflict);
        }
    }
    distinct
}

/// A configuration of the kubelet. Fields that it does not know are no conflict: it logs them.
fn configuration(text: &Text<'_>, document: &Value, pool: &Pool, found: &mut Vec<Conflict>) {
    if text_at(document, "apiVersion").is_some_and(|version| version != API_VERSION) {
        found.push(text.conflict(
            "apiVersion",
            format!("is not {API_VERSION}, the only one that kubelets read"),
        ));
    }
    let gates = document.get("featureGates").and_then(Value::as_object);
    for (name, value) in gates.into_iter().flatten() {
        gate(text, name, value.as_bool(), pool, found);
    }
}

/// A feature gate. A kubelet does not start with one that it does not know.
fn gate(text: &Text<'_>, name: &str, value: Option<bool>, pool: &Pool, found: &mut Vec<Conflict>) {
    let kubelet = Kubelet::of(pool);
    // What other versions know is not known here.
    if !kubelet.known {
        return;
    }
    let version = &kubelet.judged_as;
    let problem = match kubelet.gate(name) {
        Lookup::Unknown | Lookup::Elsewhere(_) => {
            format!(
                "is unknown to kubelet {version}, which does not start with it; remove it, or write it only for kubelets that know it"
            )
        }
        Lookup::Known(Some(only)) if value.is_some_and(|value| value != only) => {
            format!(
                "can only be {only} in kubelet {version}, which does not start with another value; remove it"
            )
        }
        Lookup::Known(_) => return,
    };
    found.push(text.conflict(format!("feature gate {name}"), problem));
}

fn text_at<'v>(document: &'v Value, key: &str) -> Option<&'v str> {
    document.get(key).and_then(Value::as_str)
}

/// Files, units, drop-ins and commands.
fn texts(stage: Stage, config: &StageConfig) -> Vec<Text<'_>> {
    let mut texts = Vec::new();
    let mut add = |path: String, text| texts.push(Text { stage, path, text });
    for file in &config.files {
        let data = file
            .content
            .inline
            .as_ref()
            .map_or("", |inline| inline.data.as_str());
        add(file.path.clone(), Cow::Borrowed(data));
    }
    for unit in &config.units {
        add(
            unit_path(unit),
            Cow::Borrowed(unit.content.as_deref().unwrap_or_default()),
        );
        for drop_in in &unit.drop_ins {
            add(
                drop_in_path(unit, drop_in),
                Cow::Borrowed(drop_in.content.as_str()),
            );
        }
    }
    for (module, value) in config
        .modules
        .as_ref()
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        for item in value.as_array().into_iter().flatten() {
            let words = |words: &Vec<Value>| {
                words
                    .iter()
                    .filter_map(Value::as_str)
                    .collect::<Vec<_>>()
                    .join(" ")
            };
            let text = match item {
                Value::String(text) => Cow::Borrowed(text.as_str()),
                // A package with its version.
                Value::Array(items) if module == "packages" => Cow::Owned(words(items).replace(' ', "=")),
                Value::Array(items) => Cow::Owned(words(items)),
                _ => continue,
            };
            add(format!("{}.modules.{module}", stage.field()), text);
        }
    }
    texts
}

/// The lines of a shell script, a unit or an environment file, without comments, and with lines joined that end in a backslash.
fn statements(text: &str) -> Vec<String> {
    let mut statements: Vec<String> = Vec::new();
    let mut continued = false;
    for line in text.lines() {
        // systemd allows comments between continued lines.
        if line.trim_start().starts_with(['#', ';']) {
            continue;
        }
        let (line, continues) = match line.trim_end().strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        match statements.last_mut().filter(|_| continued) {
            Some(last) => last.extend([" ", line]),
            None => statements.push(line.to_owned()),
        }
        continued = continues;
    }
    statements
}

#[cfg(test)]
mod tests;
