//! `osmctl explain`: what templates can use.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use osm_gotemplate::functions::{self, Function, Parameter, REFUSED};
use osm_render::reference::{FIELDS, GO_VARIABLES, HELPERS, LATE_VALUES};
use serde_json::{Value, json};

use crate::output::Format;
use crate::{output, since};

/// Most similar names in an error.
const MAX_SIMILAR: usize = 5;

/// Explain what templates can use
///
/// TOPIC is a group (data, helpers, late, variables, functions, refused), a field such as kubelet.version or kubelet, a helper, a
/// variable such as .KubeVersion, or a function.
/// Without TOPIC, the command lists the groups.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # All fields of the data
  osmctl explain data

  # The fields below kubelet
  osmctl explain kubelet

  # One function of Go templates
  osmctl explain trimSuffix")]
pub struct Explain {
    /// Group or name
    topic: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// Something that templates can use, or a function that they cannot call.
#[derive(Clone, Debug)]
struct Entry {
    group: &'static str,
    name: &'static str,
    /// Type of a value, or arguments and result of a function.
    kind: String,
    meaning: String,
    /// A value; or a template, and what it renders to.
    example: Option<(String, Option<String>)>,
}

/// The groups: name, and what it holds.
const GROUPS: [(&str, &str); 6] = [
    ("data", "fields of the data, in Handlebars"),
    ("helpers", "helpers and blocks, in Handlebars"),
    (
        "late",
        "late-bound values, in Handlebars: {{late \"ID\" as=\"shell\"}}",
    ),
    ("variables", "variables, in Go templates"),
    ("functions", "functions, in Go templates"),
    (
        "refused",
        "functions of sprig that Go templates can not call, with the reasons",
    ),
];

fn entries() -> Vec<Entry> {
    let fields = FIELDS.iter().map(|field| Entry {
        group: "data",
        name: field.path,
        kind: field.kind.to_owned(),
        meaning: field.meaning.to_owned(),
        example: Some((field.example.to_owned(), None)),
    });
    let helpers = HELPERS.iter().map(|helper| Entry {
        group: "helpers",
        name: helper.name,
        kind: helper.usage.to_owned(),
        meaning: helper.meaning.to_owned(),
        example: Some((helper.example.0.to_owned(), Some(helper.example.1.to_owned()))),
    });
    let late = LATE_VALUES.iter().map(|late| Entry {
        group: "late",
        name: late.id,
        kind: match late.stages {
            "both" => "text, in both stages".to_owned(),
            stage => format!("text, in {stage}"),
        },
        meaning: late.meaning.to_owned(),
        example: Some((format!("{{{{late \"{}\" as=\"shell\"}}}}", late.id), None)),
    });
    let variables = GO_VARIABLES.iter().map(|variable| Entry {
        group: "variables",
        name: variable.name,
        kind: variable.kind.to_owned(),
        meaning: match variable.handlebars {
            "" => variable.meaning.to_owned(),
            same => format!("{} In Handlebars: {same}.", variable.meaning),
        },
        example: Some((format!("{{{{ {} }}}}", variable.usage()), None)),
    });
    let functions = functions::all().map(|function| Entry {
        group: "functions",
        name: function.name,
        kind: signature(function),
        meaning: function.summary.to_owned(),
        example: Some((function.example.0.to_owned(), Some(function.example.1.to_owned()))),
    });
    let refused = REFUSED.iter().flat_map(|refused| {
        refused.names.iter().map(|name| Entry {
            group: "refused",
            name,
            kind: "refused".to_owned(),
            meaning: format!("{name} {}.", refused.reason),
            example: None,
        })
    });
    fields
        .chain(helpers)
        .chain(late)
        .chain(variables)
        .chain(functions)
        .chain(refused)
        .collect()
}

/// A function with the types of its arguments, as Go writes them.
fn signature(function: &Function) -> String {
    let mut parameters: Vec<String> = function
        .parameters
        .iter()
        .map(|kind| go_type(*kind).to_owned())
        .collect();
    parameters.extend(function.variadic.map(|kind| format!("...{}", go_type(kind))));
    format!(
        "{}({}) {}",
        function.name,
        parameters.join(", "),
        function.returns
    )
}

fn go_type(parameter: Parameter) -> &'static str {
    match parameter {
        Parameter::Any | Parameter::Reflected => "any",
        Parameter::Map => "map[string]any",
        other => other.go_type(),
    }
}

impl Entry {
    fn text(&self) -> String {
        let Self {
            name,
            kind,
            meaning,
            example,
            ..
        } = self;
        let mut text = match kind.starts_with(name) || kind.contains("{{") {
            true => format!("{kind}\n    {meaning}\n"),
            false => format!("{name} ({kind})\n    {meaning}\n"),
        };
        match example {
            Some((example, Some(result))) => {
                text.push_str(&format!(
                    "    Example: {}\n    Result:  {}\n",
                    quoted(example),
                    quoted(result)
                ));
            }
            Some((example, None)) => text.push_str(&format!("    Example: {}\n", quoted(example))),
            None => {}
        }
        if let Some(version) = self.since() {
            text.push_str(&format!("    Since:   {version}\n"));
        }
        text
    }

    /// The first version that has it.
    fn since(&self) -> Option<&'static str> {
        since::version(self.group, self.name)
    }

    fn json(&self) -> Value {
        let (example, result) = match &self.example {
            Some((example, result)) => (Some(example), result.as_ref()),
            None => (None, None),
        };
        json!({
            "group": self.group,
            "name": self.name,
            "type": self.kind,
            "meaning": self.meaning,
            "example": example,
            "result": result,
            "since": self.since(),
        })
    }
}

/// A text on one line.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('\n', "\\n")
        .replace('\t', "\\t")
}

impl Explain {
    /// Finds and prints.
    pub fn run(self) -> Result<ExitCode> {
        let entries = entries();
        let Some(topic) = &self.topic else {
            output::print(&match self.output {
                Format::Text => groups(&entries),
                Format::Json => json_of(&entries.iter().collect::<Vec<_>>()),
            })?;
            return Ok(ExitCode::SUCCESS);
        };
        let found = find(&entries, topic);
        if found.is_empty() {
            bail!(
                "nothing has the name {topic}{}; `osmctl explain` lists the groups",
                similar(&entries, topic)
            );
        }
        output::print(&match self.output {
            Format::Text => found
                .iter()
                .map(|entry| entry.text())
                .collect::<Vec<_>>()
                .join("\n"),
            Format::Json => json_of(&found),
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

fn json_of(entries: &[&Entry]) -> String {
    let entries: Vec<Value> = entries.iter().map(|entry| entry.json()).collect();
    format!("{:#}\n", json!({"entries": entries}))
}

fn groups(entries: &[Entry]) -> String {
    let head = ["TOPIC", "ENTRIES", "CONTENT"].map(str::to_owned);
    let lines = GROUPS.map(|(name, content)| {
        let number = entries.iter().filter(|entry| entry.group == name).count();
        [name.to_owned(), number.to_string(), content.to_owned()]
    });
    output::table(&std::iter::once(head).chain(lines).collect::<Vec<_>>())
}

/// A group, or everything with this name: in both languages, and below a field.
fn find<'e>(entries: &'e [Entry], topic: &str) -> Vec<&'e Entry> {
    let is_below = |entry: &Entry| {
        let rest = entry.name.strip_prefix(topic);
        rest.is_some_and(|rest| {
            rest.is_empty() || (matches!(entry.group, "data" | "variables") && rest.starts_with(['.', '[']))
        })
    };
    // A helper can have the name of a group.
    entries
        .iter()
        .filter(|entry| is_below(entry) || entry.group == topic)
        .collect()
}

fn similar(entries: &[Entry], topic: &str) -> String {
    let names: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
    let mut close = similar::get_close_matches(topic, &names, MAX_SIMILAR, 0.6);
    close.dedup();
    match close.is_empty() {
        true => String::new(),
        false => format!("; similar names are {}", close.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_entry_has_a_version_and_every_version_an_entry() {
        let known: BTreeSet<(&str, &str)> = entries()
            .iter()
            .filter(|entry| entry.group != "refused")
            .map(|entry| (entry.group, entry.name))
            .collect();
        for (group, name) in &known {
            assert!(
                since::version(group, name).is_some(),
                "{name}: name its version in since.rs, group {group}"
            );
        }
        let listed: Vec<_> = since::tests::names().collect();
        let without_entry: Vec<_> = listed.iter().filter(|name| !known.contains(*name)).collect();
        assert!(without_entry.is_empty(), "{without_entry:?}");
        assert_eq!(listed.len(), known.len(), "a name has several versions");
    }

    #[test]
    fn every_entry_is_in_a_listed_group_and_complete() {
        for entry in entries() {
            assert!(GROUPS.iter().any(|(group, _)| *group == entry.group), "{entry:?}");
            assert!(
                entry.meaning.ends_with('.') && !entry.kind.is_empty(),
                "{entry:?}"
            );
            assert!(entry.example.is_some() || entry.group == "refused", "{entry:?}");
            assert!(
                find(&entries(), entry.name)
                    .iter()
                    .any(|found| found.name == entry.name)
            );
        }
    }
}
