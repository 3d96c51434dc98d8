//! Sets every value of the chart, and looks for its effect in what Helm renders. `values.yaml` beside this
//! file has the values and the effects.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use osm_testkit::helm::{Helm, chart};
use serde::Deserialize;
use serde_json::Value;

/// Values with the same ones set before, and the lines that each changes the number of.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    with: String,
    values: BTreeMap<String, Vec<String>>,
}

fn groups() -> Result<Vec<Group>> {
    Ok(serde_saphyr::from_str(include_str!("values.yaml"))?)
}

/// What a release is rendered to with values, as text.
async fn rendered(helm: &Helm, values: &[&str]) -> Result<String> {
    let chart = chart().display().to_string();
    let registry = "--set=image.registry=registry.example.com/osm";
    let mut arguments = vec!["template", "one", &chart, "--namespace=osm", registry];
    let set: Vec<String> = values
        .iter()
        .map(|values| {
            if values.contains("=[") {
                format!("--set-json={values}")
            } else {
                format!("--set={values}")
            }
        })
        .collect();
    arguments.extend(set.iter().map(String::as_str));
    helm.run(arguments).await.with_context(|| format!("{values:?}"))
}

#[tokio::test]
async fn every_value_has_the_effect_that_the_table_says() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    let mut wrong = Vec::new();
    for group in groups()? {
        let before = rendered(&helm, &[&group.with]).await?;
        for (value, lines) in &group.values {
            let after = rendered(&helm, &[&group.with, value]).await?;
            for line in lines {
                let (wanted, line) = match (line.strip_prefix('!'), line.strip_prefix('=')) {
                    (Some(line), _) => (std::cmp::Ordering::Less, line),
                    (_, Some(line)) => (std::cmp::Ordering::Equal, line),
                    _ => (std::cmp::Ordering::Greater, line.as_str()),
                };
                let count = |text: &str| text.lines().filter(|found| found.trim() == line).count();
                if count(&after).cmp(&count(&before)) != wanted {
                    wrong.push(format!(
                        "{} and {value}: {line:?} is there {} times, before {}",
                        group.with,
                        count(&after),
                        count(&before)
                    ));
                }
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Every new value needs a row here, with its effect.
#[test]
fn the_table_has_every_value_of_the_chart() -> Result<()> {
    let defaults: Value = serde_saphyr::from_str(&std::fs::read_to_string(chart().join("values.yaml"))?)?;
    let groups = groups()?;
    let set = groups.iter().flat_map(|group| group.values.keys());
    // Several values that are set at once end in the one of the row.
    let set: BTreeSet<String> = set
        .filter_map(|set| {
            Some(
                set.rsplit(',')
                    .find_map(|one| one.split_once('='))?
                    .0
                    .replace("[0]", ""),
            )
        })
        .collect();
    let mut missing = Vec::new();
    leaves(&defaults, "", &mut |path| {
        let has = set.iter().any(|set| {
            let related = |short: &str, long: &str| {
                long.strip_prefix(short)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            related(path, set) || whole(path).is_some_and(|whole| related(whole, set))
        });
        if !has {
            missing.push(path.to_owned());
        }
    });
    ensure!(missing.is_empty(), "not in values.yaml of the test: {missing:?}");
    Ok(())
}

/// The value that `values.yaml` documents as a whole, of which this is a part.
fn whole(path: &str) -> Option<&str> {
    let (first, _) = path.split_once('.')?;
    let whole = [
        "resources",
        "podSecurityContext",
        "securityContext",
        "nodeSelector",
    ];
    whole.contains(&first).then_some(first)
}

fn leaves(value: &Value, path: &str, found: &mut impl FnMut(&str)) {
    match value.as_object().filter(|fields| !fields.is_empty()) {
        Some(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                leaves(value, &path, found);
            }
        }
        None => found(path),
    }
}
