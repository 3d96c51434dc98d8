//! The dashboard of the chart. `alerts.rs` compares its queries with the metrics of the services.

use anyhow::{Context, Result, ensure};
use osm_testkit::helm::{Helm, chart};
use serde_json::Value;

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
