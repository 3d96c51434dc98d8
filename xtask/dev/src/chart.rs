//! `cargo xtask chart`: generates parts of the Helm chart: the rights, the schema of the settings, and the
//! table of values.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use osm_api::Settings;
use osm_api::rbac::{Grant, Installation, Right, Service};
use serde_json::{Map, Value, json};

use crate::generated::File;

pub fn directory() -> PathBuf {
    crate::root().join("charts/operating-system-manager")
}

/// The files that are generated.
pub fn files() -> Result<Vec<File>> {
    let read = |name: &str| {
        let path = directory().join(name);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    let values = read("values.yaml")?;
    let files = [
        ("files/permissions.yaml", rights()?),
        (
            "values.schema.json",
            schema(&read("values.schema.json")?, &values)?,
        ),
        ("README.md", readme(&read("README.md")?, &values)?),
    ];
    Ok(files.map(|(name, text)| (directory().join(name), text)).to_vec())
}

/// The table of rights. Names in braces are placeholders for values of the chart.
fn rights() -> Result<String> {
    let none = Installation {
        namespace: "{namespace}".to_owned(),
        settings: "{settings}".to_owned(),
        profile_namespaces: vec!["{profileNamespaces}".to_owned()],
        fallback_profile_namespace: Some("{fallbackProfileNamespace}".to_owned()),
        pool_settings_namespaces: vec!["{poolSettingsNamespaces}".to_owned()],
        ..Installation::default()
    };
    let with = |change: &dyn Fn(&mut Installation)| {
        let mut installation = none.clone();
        change(&mut installation);
        installation
    };
    let fleet = with(&|it| it.fleet = true);
    // Each condition on the values of the chart, the installation that it makes, and what that is compared with.
    let wanted = [
        ("single", none.clone(), &fleet),
        ("fleet", fleet.clone(), &none),
        (
            "removeUpstreamFinalizers",
            with(&|it| it.go_finalizers = true),
            &none,
        ),
        ("customProfiles", with(&|it| it.custom_profiles = true), &none),
    ];
    let mut services = Map::new();
    for service in Service::ALL {
        let in_fleet = service.grants(&fleet);
        let mut grants = Vec::new();
        for mut grant in service.grants(&none) {
            let kept = known(&in_fleet, &grant);
            grant.rights.retain(|right| kept.contains(right));
            grants.extend(entry(&grant, "always")?);
        }
        for (when, installation, base) in &wanted {
            let base = service.grants(base);
            for mut grant in service.grants(installation) {
                let known = known(&base, &grant);
                grant.rights.retain(|right| !known.contains(right));
                grants.extend(entry(&grant, when)?);
            }
        }
        services.insert(service.name().to_owned(), grants.into());
    }
    let body = serde_saphyr::to_string(&services)?;
    Ok(format!(
        "# Generated from crates/osm-api/src/rbac/table.rs by `cargo xtask chart`. Don't edit.\n{body}"
    ))
}

/// The rights among these that are in the same place as a grant.
fn known<'a>(grants: &'a [Grant], place: &Grant) -> &'a [Right] {
    let same = |known: &&Grant| (known.cluster, &known.namespace) == (place.cluster, &place.namespace);
    grants.iter().find(same).map_or(&[], |known| &known.rights)
}

/// `None`: the grant has no rights.
fn entry(grant: &Grant, when: &str) -> Result<Option<Value>> {
    if grant.rights.is_empty() {
        return Ok(None);
    }
    let mut rules = Vec::new();
    for right in &grant.rights {
        let mut rule = serde_json::to_value(&right.rule)?;
        let fields = rule.as_object_mut().context("a rule")?;
        fields.insert("purpose".to_owned(), right.why.into());
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    // An empty namespace: a ClusterRole.
    let namespace = grant.namespace.as_deref().unwrap_or_default();
    Ok(Some(
        json!({"cluster": grant.cluster.name(), "namespace": namespace, "when": when, "rules": rules}),
    ))
}

/// The schema of values with the schema of the settings, the comments of `values.yaml` as descriptions, and
/// the values that are required.
fn schema(schema: &str, values: &str) -> Result<String> {
    let mut schema: Value = serde_json::from_str(schema).context("values.schema.json")?;
    with_settings(&mut schema)?;
    for (path, _, text) in described(values)? {
        let place = format!("/properties/{}", path.replace('.', "/properties/"));
        // The services share a schema, so their values have none here.
        if let Some(Value::Object(fields)) = schema.pointer_mut(&place) {
            fields.insert("description".to_owned(), text.into());
        }
    }
    let values: Value = serde_saphyr::from_str(values).context("values.yaml")?;
    with_required(&mut schema, "", &values)?;
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}

/// The README with the values as its last part, which starts after this line.
fn readme(readme: &str, values: &str) -> Result<String> {
    const START: &str = "| Value | Default | Description |\n|---|---|---|\n";
    let (before, _) = readme
        .split_once(START)
        .context("README.md: no table of values")?;
    let rows = described(values)?.into_iter().map(|(path, default, text)| {
        let text = text.replace('|', "\\|");
        format!("| `{path}` | `{default}` | {text} |\n")
    });
    Ok(format!("{before}{START}{}", rows.collect::<String>()))
}

/// Path, default and description of each value that has a comment `# -- …` in the line before it.
fn described(text: &str) -> Result<Vec<(String, Value, &str)>> {
    let values: Value = serde_saphyr::from_str(text).context("values.yaml")?;
    let (mut path, mut comment, mut found) = (Vec::new(), None, Vec::new());
    for line in text.lines() {
        let content = line.trim_start();
        if let Some(text) = content.strip_prefix("# -- ") {
            comment = Some(text);
        } else if let (Some((key, _)), false) = (content.split_once(':'), content.starts_with(['#', '-'])) {
            path.truncate((line.len() - content.len()) / 2);
            path.push(key);
            if let Some(text) = comment.take() {
                let default = values.pointer(&format!("/{}", path.join("/")));
                found.push((path.join("."), default.context("a default")?.clone(), text));
            }
        }
    }
    Ok(found)
}

fn with_settings(schema: &mut Value) -> Result<()> {
    let mut settings = schemars::schema_for!(Settings).to_value();
    let fields = settings.as_object_mut().context("a schema")?;
    fields.remove("$schema");
    let parts = fields.remove("$defs").context("the parts of the settings")?;
    simplify(&mut settings);
    let own = schema
        .get_mut("$defs")
        .and_then(Value::as_object_mut)
        .context("$defs")?;
    // Definitions of the settings are named after types, in upper case.
    own.retain(|name, _| name.starts_with(char::is_lowercase));
    for (name, mut part) in parts.as_object().context("the parts of the settings")?.clone() {
        simplify(&mut part);
        own.insert(name, part);
    }
    own.insert("Settings".to_owned(), settings);
    Ok(())
}

/// Marks values as required. Helm removes a value that a user sets to null, and templates would fail without
/// it. So every value with a default is required, unless its schema allows null. `place` is a JSON pointer to
/// the schema of `values`.
fn with_required(schema: &mut Value, place: &str, values: &Value) -> Result<()> {
    let place = referred(schema, place);
    let here = schema
        .pointer(&place)
        .with_context(|| format!("values.schema.json has no {place}"))?;
    let (Some(_), Some(values)) = (here.get("properties"), values.as_object()) else {
        return Ok(());
    };
    let of = |name: &str| format!("{place}/properties/{name}");
    let nullable = |name: &str| {
        let types = schema
            .pointer(&(referred(schema, &of(name)) + "/type"))
            .and_then(Value::as_array);
        types.is_some_and(|types| types.contains(&json!("null")))
    };
    let wanted = values
        .iter()
        .filter(|(name, value)| !is_empty(value) && !nullable(name));
    let required: Vec<String> = wanted.map(|(name, _)| name.clone()).collect();
    let fields = schema
        .pointer_mut(&place)
        .and_then(Value::as_object_mut)
        .context("a schema")?;
    fields.remove("required");
    if !required.is_empty() {
        fields.insert("required".to_owned(), required.into());
    }
    values
        .iter()
        .try_for_each(|(name, value)| with_required(schema, &of(name), value))
}

/// A pointer to the schema at this place, or to the one that it refers to.
fn referred(schema: &Value, place: &str) -> String {
    let reference = schema
        .pointer(place)
        .and_then(|here| here.get("$ref"))
        .and_then(Value::as_str);
    reference
        .map_or(place, |reference| reference.trim_start_matches('#'))
        .to_owned()
}

fn is_empty(value: &Value) -> bool {
    [json!(null), json!(""), json!([]), json!({})].contains(value)
}

/// Removes defaults, which the services apply, and formats, which name Rust's number types.
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

#[cfg(test)]
mod tests {
    use osm_api::rbac::ClusterKind;

    use super::*;
    use crate::generated::Generate;

    #[test]
    fn the_committed_files_are_what_the_code_says() {
        Generate::CHECK.run("chart", files()).unwrap();
    }

    /// Templates and workflows name the services, because they cannot read the table.
    #[test]
    fn templates_and_workflows_name_every_service_of_the_table() {
        let read = |path: &str| fs::read_to_string(crate::root().join(path)).unwrap();
        let helpers = read("charts/operating-system-manager/templates/_helpers.tpl");
        let (_, services) = helpers.split_once("define \"osm.services\"").unwrap();
        let (services, _) = services.split_once("{{- end -}}").unwrap();
        let named: Vec<&str> = services.lines().filter(|line| line.contains(": ")).collect();
        let expected = Service::ALL.map(|service| format!("{}: {}", service.name(), service.values_key()));
        assert_eq!(named, expected);
        let checks = read("charts/operating-system-manager/templates/checks.yaml");
        let keys: Vec<String> = Service::ALL
            .into_iter()
            .filter(|service| service.clusters().contains(&ClusterKind::Worker))
            .map(|service| format!("{:?}", service.values_key()))
            .collect();
        assert!(checks.contains(&format!("list {} -", keys.join(" "))), "{keys:?}");
        let names = crate::build::programs_of_images().collect::<Vec<_>>().join(" ");
        let release = read(".github/workflows/release.yaml");
        for list in release.split("for service in ").skip(1) {
            assert_eq!(list.split(';').next(), Some(names.as_str()));
        }
    }

    #[test]
    fn the_chart_has_the_version_of_the_workspace() {
        let chart: Value =
            serde_saphyr::from_str(&fs::read_to_string(directory().join("Chart.yaml")).unwrap()).unwrap();
        assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn every_file_names_the_repository_of_the_workspace() {
        let repository = env!("CARGO_PKG_REPOSITORY");
        let host = repository.rsplit_once('/').unwrap().0;
        let found = std::process::Command::new("git")
            .args([
                "grep",
                "--only-matching",
                "--extended-regexp",
                &format!("{host}/[a-z0-9-]*"),
            ])
            .current_dir(crate::root())
            .output()
            .unwrap();
        let found = String::from_utf8(found.stdout).unwrap();
        let other: Vec<&str> = found.lines().filter(|line| !line.ends_with(repository)).collect();
        assert!(found.lines().count() > 20 && other.is_empty(), "{other:?}");
    }

    /// It is read where it is packaged, away from the repository.
    #[test]
    fn what_the_chart_points_to_is_named_by_its_address_and_is_there() {
        let mut links = 0;
        for file in ["README.md", "values.yaml", "templates/NOTES.txt"] {
            let text = fs::read_to_string(directory().join(file)).unwrap();
            assert!(
                !text.contains("../"),
                "{file} points to a file that is not in the package"
            );
            for (before, page) in text.match_indices("docs/").map(|(at, _)| text.split_at(at)) {
                let page: String = page
                    .chars()
                    .take_while(|c| !c.is_whitespace() && !matches!(c, ')' | '#' | '"' | '{'))
                    .collect();
                // What is printed in a terminal names pages by their path.
                let has_address = before.ends_with("/blob/main/");
                assert_eq!(has_address, !file.ends_with(".txt"), "{file}: {page}");
                let page = page.trim_end_matches('.');
                assert!(crate::root().join(page).exists(), "{file}: {page}");
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
}
