//! The alerts of the chart: what promtool finds in them, when each fires, and what a release can change.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use osm_api::names;
use osm_judges::packages;
use osm_testkit::helm::{Helm, chart};
use osm_testkit::process::ScratchDir;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::page::read;

/// A case of `alerts.yaml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    alert: String,
    fires: Fires,
    quiet: Quiet,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fires {
    series: BTreeMap<String, Value>,
    not_yet: String,
    at: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    summary: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Quiet {
    at: String,
    series: BTreeMap<String, Value>,
}

fn cases() -> Result<Vec<Case>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("chart/alerts.yaml");
    Ok(serde_saphyr::from_str(&std::fs::read_to_string(path)?)?)
}

/// The alerts by name, of a release in the namespace `osm`, and the file of rules with them.
pub async fn rendered(more: &[&str]) -> Result<(BTreeMap<String, Value>, String)> {
    let values = [&["--set=metrics.prometheusRule.enabled=true"], more].concat();
    let objects = Helm::without_cluster()
        .await?
        .template("osm", "osm", &values)
        .await?;
    let rule = objects.iter().find(|object| object["kind"] == "PrometheusRule");
    let rules = &rule.context("a PrometheusRule")?["spec"];
    Ok((by_name(rules)?, rules.to_string()))
}

fn by_name(rules: &Value) -> Result<BTreeMap<String, Value>> {
    let rules = rules["groups"][0]["rules"].as_array().context("rules")?;
    let named = rules
        .iter()
        .map(|rule| (text(&rule["alert"]).to_owned(), rule.clone()));
    let by_name: BTreeMap<_, _> = named.collect();
    ensure!(by_name.len() == rules.len(), "two alerts have the same name");
    Ok(by_name)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

async fn promtool(folder: &ScratchDir, arguments: &[&str]) -> Result<()> {
    let output = Command::new("promtool")
        .args(arguments)
        .current_dir(folder.path())
        .kill_on_drop(true)
        .output()
        .await
        .context("promtool can't be run")?;
    ensure!(
        output.status.success(),
        "promtool {arguments:?}:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn input(series: &BTreeMap<String, Value>) -> Vec<Value> {
    let values = |values: &Value| values.as_str().map_or_else(|| values.to_string(), str::to_owned);
    let series = series
        .iter()
        .map(|(name, samples)| json!({"series": name, "values": values(samples)}));
    series.collect()
}

/// The alert fires with the labels and annotations of its rule. If `is_scoped`, the same in another namespace
/// changes nothing.
fn fires(case: &Case, rule: &Value, is_scoped: bool) -> Value {
    let mut series = case.fires.series.clone();
    if is_scoped {
        let elsewhere = |name: &str| name.replace("namespace=\"osm\"", "namespace=\"other\"");
        let others = case.fires.series.iter();
        series.extend(others.map(|(name, samples)| (elsewhere(name), samples.clone())));
    }
    let mut labels = json!(case.fires.labels);
    labels["namespace"] = json!("osm");
    labels["severity"] = rule["labels"]["severity"].clone();
    let mut annotations = rule["annotations"].clone();
    annotations["summary"] = json!(case.fires.summary);
    let expected = json!([{"exp_labels": labels, "exp_annotations": annotations}]);
    json!({"name": format!("{} fires", case.alert), "interval": "1m", "input_series": input(&series), "alert_rule_test": [
        {"eval_time": case.fires.not_yet, "alertname": case.alert, "exp_alerts": []},
        {"eval_time": case.fires.at, "alertname": case.alert, "exp_alerts": expected},
    ]})
}

/// It does not fire.
fn is_quiet(case: &Case) -> Value {
    json!({"name": format!("{} is quiet", case.alert), "interval": "1m", "input_series": input(&case.quiet.series),
        "alert_rule_test": [{"eval_time": case.quiet.at, "alertname": case.alert, "exp_alerts": []}]})
}

#[tokio::test]
async fn each_alert_fires_when_it_should_and_not_otherwise() -> Result<()> {
    packages::ensure(&["prometheus"])?;
    let (cases, page) = (cases()?, read("monitor.md")?);
    for values in [&[][..], &["--set=metrics.prometheusRule.allNamespaces=true"]] {
        let (rules, file) = rendered(values).await?;
        // A person waits for what the metric says, and then for the rule.
        for (alert, wait, cell) in [
            (
                "OSMReconcilesFail",
                "15m",
                "for 15 minutes, more than 15 reconciles have failed within 15 minutes",
            ),
            (
                "OSMMachinesDoNotJoin",
                "5m",
                "a Machine has no Node after 20 minutes",
            ),
        ] {
            assert_eq!(rules[alert]["for"], wait, "docs/monitor.md: {cell}");
            ensure!(page.contains(cell), "{cell}");
        }
        let named: BTreeSet<&String> = cases.iter().map(|case| &case.alert).collect();
        assert_eq!(
            named,
            rules.keys().collect(),
            "each alert has a case in alerts.yaml"
        );
        let schema = std::fs::read_to_string(chart().join("values.schema.json"))?;
        let schema: Value = serde_json::from_str(&schema)?;
        let taken = &schema["properties"]["metrics"]["properties"]["prometheusRule"]["properties"]["alerts"];
        let taken = taken["properties"].as_object().context("alerts")?;
        assert_eq!(named, taken.keys().collect(), "the values take each alert");
        let mut tests: Vec<Value> = cases
            .iter()
            .map(|case| fires(case, &rules[&case.alert], values.is_empty()))
            .collect();
        if values.is_empty() {
            tests.extend(cases.iter().map(is_quiet));
        } else {
            tests.push(an_uninstalled_release_is_not_down());
        }
        let folder = ScratchDir::new("osm-alerts-")?;
        let unit = json!({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests});
        std::fs::write(folder.path().join("rules.yaml"), file)?;
        std::fs::write(folder.path().join("tests.yaml"), unit.to_string())?;
        promtool(&folder, &["check", "rules", "rules.yaml"]).await?;
        promtool(&folder, &["test", "rules", "tests.yaml"]).await?;
    }
    Ok(())
}

/// The example for kube-state-metrics, with the labels that it exports.
#[tokio::test]
async fn the_rule_on_nodes_fires_if_those_of_a_pool_differ_for_a_week() -> Result<()> {
    packages::ensure(&["prometheus"])?;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/alert-nodes.yaml");
    let example: Value = serde_saphyr::from_str(&std::fs::read_to_string(path)?)?;
    let [pool, content] =
        [names::POOL, names::CONTENT].map(|label| format!("label_{}", label.replace(['.', '/'], "_")));
    let node = |name: &str, labels: &str| json!({"series": format!("kube_node_labels{{node={name:?}{labels}}}"), "values": "1x200"});
    let of =
        |name, of_pool: &str, with: &str| node(name, &format!(", {pool}={of_pool:?}, {content}={with:?}"));
    let series = [
        of("a", "p", "1"),
        of("b", "p", "2"),
        of("c", "q", "2"),
        of("d", "q", "2"),
        node("e", ""),
    ];
    let rule = by_name(&example["spec"])?
        .remove("OSMNodesOfDifferentContents")
        .context("the alert")?;
    let mut annotations = rule["annotations"].clone();
    for (name, template, value) in [
        ("summary", "$value", "2"),
        ("description", &*format!("$labels.{pool}"), "p"),
    ] {
        let filled = text(&annotations[name]).replace(&format!("{{{{ {template} }}}}"), value);
        annotations[name] = json!(filled);
    }
    let expected = json!([{"exp_labels": {&pool: "p", "severity": "info"}, "exp_annotations": annotations}]);
    let alert = |at, expected| json!({"eval_time": at, "alertname": "OSMNodesOfDifferentContents", "exp_alerts": expected});
    let unit = json!({"rule_files": ["rules.yaml"], "evaluation_interval": "1h", "tests": [{"interval": "1h",
        "input_series": series, "alert_rule_test": [alert("160h", json!([])), alert("170h", expected)]}]});
    let folder = ScratchDir::new("osm-alerts-")?;
    std::fs::write(folder.path().join("rules.yaml"), example["spec"].to_string())?;
    std::fs::write(folder.path().join("tests.yaml"), unit.to_string())?;
    promtool(&folder, &["test", "rules", "tests.yaml"]).await
}

/// A rule for all namespaces remembers the services of each for a day.
fn an_uninstalled_release_is_not_down() -> Value {
    let ready = |component: &str| {
        let name = format!("osm_ready{{namespace=\"osm\", component={component:?}}}");
        json!({"series": name, "values": "1x5 stale"})
    };
    json!({"name": "uninstalled", "interval": "1m", "input_series": [ready("osc-controller"), ready("secret-syncer")],
        "alert_rule_test": [{"eval_time": "30m", "alertname": "OSMServiceDown", "exp_alerts": []}]})
}

/// Labels that Prometheus or the chart adds to each series.
const ADDED_LABELS: [&str; 6] = ["namespace", "component", "pod", "job", "instance", "le"];

/// The page with all metrics and their labels is generated from the code of the services.
#[tokio::test]
async fn alerts_and_panels_ask_for_metrics_and_labels_that_exist() -> Result<()> {
    let page = read("metrics.md")?;
    let rows = page.lines().filter(|line| line.starts_with("| `osm_"));
    let labels: BTreeMap<&str, &str> = rows
        .filter_map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            Some((cells.get(1)?.trim_matches('`'), *cells.get(3)?))
        })
        .collect();
    let dashboard = std::fs::read_to_string(chart().join("files/dashboard.json"))?;
    let dashboard: Value = serde_json::from_str(&dashboard)?;
    let panels = dashboard["panels"].as_array().context("panels")?;
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array())
        .flatten();
    let (rules, _) = rendered(&[]).await?;
    let queries: Vec<&str> = targets
        .chain(rules.values())
        .map(|query| text(&query["expr"]))
        .collect();
    ensure!(queries.len() > 40, "{}", queries.len());
    for query in queries {
        for (at, _) in query.match_indices("osm_") {
            let (name, rest) = split_name(&query[at..]);
            let histogram = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|suffix| name.strip_suffix(suffix));
            let known = labels
                .get(name)
                .or_else(|| labels.get(histogram?))
                .with_context(|| format!("there is no {name}: {query}"))?;
            let selected = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            let (selected, _) = selected.unwrap_or_default();
            for (at, _) in selected.match_indices("=") {
                let before = selected[..at].trim_end_matches('!');
                let label = before
                    .rsplit(|c: char| !c.is_ascii_lowercase() && c != '_')
                    .next();
                let label = label.unwrap_or_default();
                ensure!(
                    label.is_empty()
                        || ADDED_LABELS.contains(&label)
                        || known.contains(&format!("`{label}`")),
                    "{name} has no {label}: {query}"
                );
            }
        }
    }
    Ok(())
}

/// The name at the start of a text, and the rest.
fn split_name(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    text.split_at(end.unwrap_or(text.len()))
}
