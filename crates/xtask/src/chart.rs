//! `cargo xtask chart`: the parts of the Helm chart that stand elsewhere, too: rights, the schema of the settings, and the table of values in its README.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use osm_api::Settings;
use osm_api::rbac::{Grant, Installation, Service};
use serde_json::{Map, Value, json};

use crate::generated::{self, File};

/// Write the parts of charts/operating-system-manager that follow from the code: rights, the settings' schema, the README's table
#[derive(clap::Args)]
pub struct Chart {
    /// Write nothing; fail when a file is not what it should be
    #[arg(long)]
    check: bool,
}

impl Chart {
    /// Writes or checks.
    ///
    /// # Errors
    /// A file that differs (with `--check`), or can't be written.
    pub fn run(&self) -> Result<()> {
        let bad = "not what the code says (run `cargo xtask chart`)";
        generated::settle(&stale()?, self.check, "the chart is up to date", bad)
    }
}

/// The chart's directory.
pub fn directory() -> PathBuf {
    crate::root().join("charts/operating-system-manager")
}

/// The files that are not what they should be, with what they should hold.
fn stale() -> Result<Vec<File>> {
    let read = |name: &str| {
        let path = directory().join(name);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    let files = [
        ("files/rights.yaml".to_owned(), rights()?),
        ("values.schema.json".to_owned(), schema(&read("values.schema.json")?, &read("values.yaml")?)?),
        ("README.md".to_owned(), with_table(&read("README.md")?, &read("values.yaml")?)?),
    ];
    Ok(generated::stale(files.into_iter().map(|(name, text)| (directory().join(name), text))))
}

/// The table of rights, with names in braces for what the chart's values say.
fn rights() -> Result<String> {
    let none = Installation {
        namespace: "{namespace}".to_owned(),
        settings: "{settings}".to_owned(),
        profile_namespaces: vec!["{profileNamespaces}".to_owned()],
        pool_settings_namespaces: vec!["{poolSettingsNamespaces}".to_owned()],
        bootstrap_tokens: false,
        go_finalizers: false,
    };
    let wanted = [
        ("bootstrapTokens", Installation { bootstrap_tokens: true, ..none.clone() }),
        ("goFinalizers", Installation { go_finalizers: true, ..none.clone() }),
    ];
    let mut services = Map::new();
    for service in Service::ALL {
        let always = service.grants(&none);
        let mut grants: Vec<Value> =
            always.iter().map(|grant| entry(grant, "always")).collect::<Result<_>>()?;
        for (when, installation) in &wanted {
            for mut grant in service.grants(installation) {
                let same =
                    |known: &&Grant| (known.cluster, &known.namespace) == (grant.cluster, &grant.namespace);
                if let Some(known) = always.iter().find(same) {
                    grant.rights.retain(|right| !known.rights.contains(right));
                }
                if !grant.rights.is_empty() {
                    grants.push(entry(&grant, when)?);
                }
            }
        }
        services.insert(service.name().to_owned(), grants.into());
    }
    let body = serde_saphyr::to_string(&services)?;
    Ok(format!("# Generated from crates/osm-api/src/rbac.rs by `cargo xtask chart`. Don't edit.\n{body}"))
}

fn entry(grant: &Grant, when: &str) -> Result<Value> {
    let mut rules = Vec::new();
    for right in &grant.rights {
        let rule = serde_json::to_value(&right.rule)?;
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    // An empty namespace: a ClusterRole.
    let namespace = grant.namespace.as_deref().unwrap_or_default();
    Ok(json!({"cluster": grant.cluster.name(), "namespace": namespace, "when": when, "rules": rules}))
}

/// The schema of values, with that of the settings in its place, and with what can't be taken away.
fn schema(schema: &str, values: &str) -> Result<String> {
    let mut schema: Value = serde_json::from_str(schema).context("values.schema.json")?;
    with_settings(&mut schema)?;
    let values: Value = serde_saphyr::from_str(values).context("values.yaml")?;
    with_required(&mut schema, "", &values)?;
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}

fn with_settings(schema: &mut Value) -> Result<()> {
    let mut settings = schemars::schema_for!(Settings).to_value();
    let fields = settings.as_object_mut().context("a schema")?;
    fields.remove("$schema");
    let parts = fields.remove("$defs").context("the parts of the settings")?;
    simplify(&mut settings);
    let own = schema.get_mut("$defs").and_then(Value::as_object_mut).context("$defs")?;
    // Those of the settings have names with capitals, as types have.
    own.retain(|name, _| name.starts_with(char::is_lowercase));
    for (name, mut part) in parts.as_object().context("the parts of the settings")?.clone() {
        simplify(&mut part);
        own.insert(name, part);
    }
    own.insert("Settings".to_owned(), settings);
    Ok(())
}

/// Helm takes away what somebody sets to null, and templates would stumble over it. So every value is required whose default is not
/// empty, unless the schema says that it may be null. `place`: a JSON pointer to the schema of these values.
fn with_required(schema: &mut Value, place: &str, values: &Value) -> Result<()> {
    let place = referred(schema, place);
    let here = schema.pointer(&place).with_context(|| format!("values.schema.json has no {place}"))?;
    let (Some(_), Some(values)) = (here.get("properties"), values.as_object()) else { return Ok(()) };
    let of = |name: &str| format!("{place}/properties/{name}");
    let nullable = |name: &str| {
        let types = schema.pointer(&(referred(schema, &of(name)) + "/type")).and_then(Value::as_array);
        types.is_some_and(|types| types.contains(&json!("null")))
    };
    let wanted = values.iter().filter(|(name, value)| !is_empty(value) && !nullable(name));
    let required: Vec<String> = wanted.map(|(name, _)| name.clone()).collect();
    let fields = schema.pointer_mut(&place).and_then(Value::as_object_mut).context("a schema")?;
    fields.remove("required");
    if !required.is_empty() {
        fields.insert("required".to_owned(), required.into());
    }
    values.iter().try_for_each(|(name, value)| with_required(schema, &of(name), value))
}

/// Where the schema stands that is at this place or referred to from there.
fn referred(schema: &Value, place: &str) -> String {
    let reference = schema.pointer(place).and_then(|here| here.get("$ref")).and_then(Value::as_str);
    reference.map_or(place, |reference| reference.trim_start_matches('#')).to_owned()
}

fn is_empty(value: &Value) -> bool {
    [json!(null), json!(""), json!([]), json!({})].contains(value)
}

/// Without defaults, which the services know, and formats, which say how Rust keeps a number.
fn simplify(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("default");
            fields.remove("format");
            for (keyword, value) in fields {
                match value.as_object_mut().filter(|_| keyword == "properties") {
                    Some(properties) => properties.values_mut().for_each(simplify),
                    None => simplify(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}

const BEGIN: &str = "<!-- values: generated from values.yaml by `cargo xtask chart` -->";
const END: &str = "<!-- end of values -->";

/// The README, with the table of values in its place.
fn with_table(readme: &str, values: &str) -> Result<String> {
    let (before, rest) = readme.split_once(BEGIN).context("the README has no place for the values")?;
    let (_, after) = rest.split_once(END).context("the README's table has no end")?;
    let mut table = format!("{before}{BEGIN}\n\n| Value | Default | Meaning |\n|---|---|---|\n");
    for Documented { path, default, meaning } in documented(values)? {
        table.push_str(&format!("| `{path}` | `{default}` | {} |\n", meaning.replace('|', "\\|")));
    }
    Ok(format!("{table}\n{END}{after}"))
}

/// A value of the chart.
#[derive(Debug, PartialEq)]
struct Documented {
    path: String,
    /// As JSON.
    default: String,
    meaning: String,
}

/// What stands in `values.yaml` under comments that begin with `# --`, in order.
///
/// # Errors
/// A value without such a comment.
fn documented(text: &str) -> Result<Vec<Documented>> {
    let values: Value = serde_saphyr::from_str(text).context("values.yaml")?;
    let (mut documented, mut comment) = (Vec::new(), Vec::<&str>::new());
    let mut keys: Vec<(usize, &str)> = Vec::new();
    for line in text.lines() {
        let content = line.trim_start();
        let indent = line.len() - content.len();
        if let Some(words) = content.strip_prefix("# -- ") {
            comment = vec![words];
        } else if let Some(words) = content.strip_prefix('#') {
            if !comment.is_empty() {
                comment.push(words.trim());
            }
        } else if let Some((key, _)) = content.split_once(':') {
            keys.retain(|(outer, _)| *outer < indent);
            keys.push((indent, key));
            if !comment.is_empty() {
                let names: Vec<&str> = keys.iter().map(|(_, key)| *key).collect();
                let default = names.iter().try_fold(&values, |value, name| value.get(name));
                let path = names.join(".");
                let default = default.with_context(|| format!("values.yaml: {path}"))?.to_string();
                documented.push(Documented { path, default, meaning: comment.join(" ") });
                comment.clear();
            }
        }
    }
    let known: BTreeSet<&str> = documented.iter().map(|value| value.path.as_str()).collect();
    let mut silent = Vec::new();
    undocumented(&values, "", &known, &mut silent);
    ensure!(silent.is_empty(), "values.yaml says nothing about: {}", silent.join(", "));
    Ok(documented)
}

fn undocumented(values: &Value, path: &str, known: &BTreeSet<&str>, silent: &mut Vec<String>) {
    if known.contains(path) {
        return;
    }
    match values.as_object().filter(|fields| !fields.is_empty()) {
        Some(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                undocumented(value, &path, known, silent);
            }
        }
        None => silent.push(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_files_are_what_the_code_says() {
        let stale: Vec<_> = stale().unwrap().into_iter().map(|(path, _)| path).collect();
        assert!(stale.is_empty(), "run `cargo xtask chart`: {stale:?}");
    }

    #[test]
    fn the_chart_has_the_version_of_the_workspace() {
        let chart: Value =
            serde_saphyr::from_str(&fs::read_to_string(directory().join("Chart.yaml")).unwrap()).unwrap();
        assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    }

    /// It is read where it is packaged, away from the repository.
    #[test]
    fn what_the_chart_points_to_is_named_by_its_address_and_is_there() {
        let mut links = 0;
        for file in ["README.md", "values.yaml", "templates/NOTES.txt"] {
            let text = fs::read_to_string(directory().join(file)).unwrap();
            assert!(!text.contains("../"), "{file} points to a file that is not in the package");
            for (before, page) in text.match_indices("docs/").map(|(at, _)| text.split_at(at)) {
                let page: String = page.chars().take_while(|c| !c.is_whitespace() && *c != ')').collect();
                assert!(before.ends_with("/blob/main/"), "{file}: {page}");
                let page = page.trim_end_matches('.');
                assert!(crate::root().join(page).is_file(), "{file}: {page}");
                links += 1;
            }
        }
        assert!(links > 5, "{links}");
    }

    #[test]
    fn what_is_not_empty_is_required_unless_it_may_be_null() {
        let mut schema = json!({
            "properties": {"a": {"type": "string"}, "b": {"$ref": "#/$defs/b"}, "c": {"type": ["object", "null"]}, "d": {}},
            "$defs": {"b": {"properties": {"e": {}, "f": {}, "g": {"$ref": "#/$defs/g"}}, "required": ["old"]}, "g": {"type": ["object", "null"]}},
        });
        with_required(
            &mut schema,
            "",
            &json!({"a": "x", "b": {"e": 1, "f": "", "g": {"x": 1}}, "c": {"x": 1}, "d": []}),
        )
        .unwrap();
        assert_eq!(schema["required"], json!(["a", "b"]));
        assert_eq!(schema["$defs"]["b"]["required"], json!(["e"]));
    }

    #[test]
    fn every_value_is_documented() {
        let values = "a:\n  # -- One\n  # or two\n  b: 1\n# -- All\nc: {d: []}\n";
        let found = documented(values).unwrap();
        let of = |path: &str, default: &str, meaning: &str| Documented {
            path: path.to_owned(),
            default: default.to_owned(),
            meaning: meaning.to_owned(),
        };
        assert_eq!(found, [of("a.b", "1", "One or two"), of("c", "{\"d\":[]}", "All")]);
        let error = documented("a:\n  b: 1\n# -- All\nc: 1\n").unwrap_err().to_string();
        assert_eq!(error, "values.yaml says nothing about: a.b");
    }
}
