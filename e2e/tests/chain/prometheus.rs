//! Debian's Prometheus, which scrapes services every second.

use std::net::Ipv4Addr;

use anyhow::{Context, Result, bail, ensure};
use osm_judges::packages;
use osm_testkit::control_plane::free_port;
use osm_testkit::process::{ScratchDir, Service};
use osm_testkit::wait_for;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::world::DEADLINE;

/// A running Prometheus. Its fields are dropped in this order.
pub struct Prometheus {
    process: Service,
    port: u16,
    _folder: ScratchDir,
}

impl Prometheus {
    /// Starts it with a file of rules. As a PodMonitor does, it gives all targets the same job, and the namespace of their pods.
    pub async fn start(targets: &[String], namespace: &str, rules: &str) -> Result<Self> {
        packages::ensure(&["prometheus"])?;
        let folder = ScratchDir::new("osm-prometheus-")?;
        let file = |name: &str| folder.path().join(name);
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{"job_name": format!("{namespace}/osm"),
                "static_configs": [{"targets": targets, "labels": {"namespace": namespace}}]}],
        });
        std::fs::write(file("prometheus.yaml"), config.to_string())?;
        std::fs::write(file("rules.yaml"), rules)?;
        let port = free_port(Ipv4Addr::LOCALHOST)?;
        let arguments = [
            format!("--config.file={}", file("prometheus.yaml").display()),
            format!("--storage.tsdb.path={}", file("data").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ];
        let none: [(&str, &str); 0] = [];
        let process = Service::spawn("/usr/bin/prometheus".as_ref(), arguments, none, &file("log"))?;
        let mut started = Self {
            process,
            port,
            _folder: folder,
        };
        started.answers().await?;
        Ok(started)
    }

    async fn answers(&mut self) -> Result<()> {
        let ended = wait_for("Prometheus to answer", DEADLINE, async || {
            if self.process.exited()?.is_some() {
                return Ok(Some(true));
            }
            self.get("/api/v1/status/buildinfo").await.map(|_| Some(false))
        });
        ensure!(!ended.await?, "Prometheus ended:\n{}", self.process.log_tail(20));
        Ok(())
    }

    /// The field `data` of what it answers.
    async fn get(&self, path: &str) -> Result<Value> {
        let mut stream = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
        // The body of an answer to HTTP/1.0 has no chunks.
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (_, body) = answer.split_once("\r\n\r\n").context("an HTTP answer")?;
        let mut answer: Value = serde_json::from_str(body).with_context(|| body.to_owned())?;
        if answer["status"] != "success" {
            bail!("{}: {}", answer["errorType"], answer["error"]);
        }
        Ok(answer["data"].take())
    }

    /// The time series of a query, now.
    pub async fn query(&self, query: &str) -> Result<Vec<Value>> {
        let query = utf8_percent_encode(query, NON_ALPHANUMERIC);
        Self::result(self.get(&format!("/api/v1/query?query={query}")).await?)
    }

    /// The time series of a query in a range of time, with a value for each second.
    pub async fn query_range(&self, query: &str, from: i64, to: i64) -> Result<Vec<Value>> {
        let query = utf8_percent_encode(query, NON_ALPHANUMERIC);
        let path = format!("/api/v1/query_range?query={query}&start={from}&end={to}&step=1");
        Self::result(self.get(&path).await?)
    }

    fn result(mut data: Value) -> Result<Vec<Value>> {
        Ok(serde_json::from_value(data["result"].take())?)
    }

    /// Alerts that fire.
    pub async fn firing(&self) -> Result<Vec<Value>> {
        let mut data = self.get("/api/v1/alerts").await?;
        let mut alerts: Vec<Value> = serde_json::from_value(data["alerts"].take())?;
        alerts.retain(|alert| alert["state"] == "firing");
        Ok(alerts)
    }

    /// Waits until an alert fires; gives it with its labels and annotations. Some fire only after several attempts of a service have failed.
    pub async fn fires(&self, name: &str) -> Result<Value> {
        wait_for(&format!("the alert {name}"), DEADLINE * 3, async || {
            let alerts = self.firing().await?;
            Ok(alerts
                .into_iter()
                .find(|alert| alert["labels"]["alertname"] == name))
        })
        .await
    }
}
