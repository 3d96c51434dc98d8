//! A Prometheus that scrapes the services of a test, and evaluates the alerts of the chart without their delay.

use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Result, ensure};
use osm_api::rbac::Service;
use osm_judges::packages;
use osm_testkit::control_plane::free_port;
use osm_testkit::installation::Installed;
use osm_testkit::process::{self, ScratchDir};
use osm_testkit::wait_for;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::alerts::rendered;
use crate::fleet::DEADLINE;

pub struct Prometheus {
    url: String,
    process: process::Service,
    // Dropped after what writes to it.
    _folder: ScratchDir,
}

impl Prometheus {
    /// With these alerts.
    pub async fn start(installed: &Installed, alerts: &[&str]) -> Result<Self> {
        packages::ensure(&["prometheus"])?;
        let program = Path::new("/usr/bin/prometheus");
        let now = alerts
            .iter()
            .map(|alert| format!("--set=metrics.prometheusRule.alerts.{alert}.for=0s"));
        let now: Vec<String> = now.collect();
        let now: Vec<&str> = now.iter().map(String::as_str).collect();
        let (_, rules) = rendered(&now).await?;
        let targets = Service::ALL.into_iter().map(|service| {
            // As Prometheus Operator adds them to what a ServiceMonitor selects.
            let labels = json!({"namespace": "osm", "component": service.name()});
            Ok(json!({"targets": [installed.address(service)?], "labels": labels}))
        });
        let targets = targets.collect::<Result<Vec<Value>>>()?;
        let config = json!({"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": ["rules.yaml"],
            "scrape_configs": [{"job_name": "osm", "static_configs": targets}]});
        let folder = ScratchDir::new("osm-prometheus-")?;
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("rules.yaml"), rules)?;
        std::fs::write(path("config.yaml"), config.to_string())?;
        let flag = |name: &str, value: &Path| format!("--{name}={}", value.display());
        let address = format!("127.0.0.1:{}", free_port(Ipv4Addr::LOCALHOST)?);
        let arguments = [
            flag("config.file", &path("config.yaml")),
            flag("storage.tsdb.path", &path("data")),
            format!("--web.listen-address={address}"),
        ];
        const NO_ENV: [(&str, &str); 0] = [];
        let process = process::Service::spawn(program, arguments, NO_ENV, &path("log"))?;
        let url = format!("http://{address}");
        Ok(Self {
            url,
            process,
            _folder: folder,
        })
    }

    /// The alerts don't fire, although the services are scraped.
    pub async fn is_silent(&self) -> Result<()> {
        let scraped =
            "count(osm_ready{component=\"osc-controller\"}) == 1 unless on () ALERTS{alertstate=\"firing\"}";
        self.finds("no alert", scraped).await
    }

    /// Waits until the alert fires with these labels.
    pub async fn fires(&self, alert: &str, labels: &[(&str, &str)]) -> Result<()> {
        let labels: String = labels
            .iter()
            .map(|(name, value)| format!(", {name}={value:?}"))
            .collect();
        let query = format!("ALERTS{{alertstate=\"firing\", alertname={alert:?}{labels}}}");
        self.finds(alert, &query).await
    }

    /// Waits until the query has a result.
    async fn finds(&self, what: &str, query: &str) -> Result<()> {
        wait_for(what, DEADLINE, async || {
            let mut promtool = Command::new("promtool");
            let output = promtool
                .args(["query", "instant", &self.url, query])
                .output()
                .await?;
            let [out, err] =
                [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
            let log = self.process.log_tail(5);
            ensure!(
                output.status.success() && !out.trim().is_empty(),
                "{query}: {out}{err}\n{log}"
            );
            Ok(Some(()))
        })
        .await
    }
}
