//! The dashboard of the chart. `alerts.rs` compares its queries with the metrics of the services.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use osm_testkit::helm::{Helm, chart};
use serde_json::Value;

/// Columns of Grafana's grid.
const COLUMNS: u64 = 24;

fn committed() -> Result<Value> {
    let text = std::fs::read_to_string(chart().join("files/dashboard.json"))?;
    Ok(serde_json::from_str(&text)?)
}

#[tokio::test]
async fn the_config_map_has_the_dashboard_and_the_label_of_the_sidecar() -> Result<()> {
    let helm = Helm::without_cluster().await?;
    let find = async |values: &[&str]| -> Result<Option<Value>> {
        let objects = helm.template("osm", "osm", values).await?;
        Ok(objects
            .into_iter()
            .find(|object| object["metadata"]["name"] == "osm-dashboard"))
    };
    ensure!(find(&[]).await?.is_none());
    let values = [
        "--set=metrics.dashboard.enabled=true",
        "--set=metrics.dashboard.annotations.grafana_folder=Nodes",
    ];
    let found = find(&values).await?.context("the ConfigMap")?;
    assert_eq!(found["metadata"]["labels"]["grafana_dashboard"], "1");
    assert_eq!(found["metadata"]["annotations"]["grafana_folder"], "Nodes");
    let text = found["data"]["operating-system-manager.json"].as_str();
    assert_eq!(
        serde_json::from_str::<Value>(text.context("a file")?)?,
        committed()?
    );
    Ok(())
}

#[test]
fn panels_have_places_words_and_queries_of_the_chosen_namespace() -> Result<()> {
    let dashboard = committed()?;
    let variables = dashboard["templating"]["list"].as_array().context("variables")?;
    let names: Vec<_> = variables.iter().map(|variable| &variable["name"]).collect();
    assert_eq!(names, ["datasource", "namespace"]);
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().context("panels")? {
        let title = panel["title"].as_str().context("a title")?;
        ensure!(
            ids.insert(panel["id"].as_u64()),
            "{title}: another panel has its id"
        );
        let place = |field: &str| panel["gridPos"][field].as_u64().context("a place");
        let (x, y, width, height) = (place("x")?, place("y")?, place("w")?, place("h")?);
        ensure!(x + width <= COLUMNS, "{title}");
        for column in x..x + width {
            for line in y..y + height {
                ensure!(taken.insert((column, line)), "{title} covers another panel");
            }
        }
        if panel["type"] == "row" {
            continue;
        }
        ensure!(panel["description"].is_string(), "{title}");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        for target in panel["targets"].as_array().context("queries")? {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
            let query = target["expr"].as_str().context("a query")?;
            let chosen = query.matches("{namespace=~\"$namespace\"").count();
            // Of histograms, processes and alerts, too.
            let metrics = query.matches('{').count();
            ensure!(chosen >= 1 && chosen == metrics, "{title}: {query}");
        }
    }
    ensure!(ids.len() > 20, "{}", ids.len());
    Ok(())
}
