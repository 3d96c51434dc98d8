//! What the services count of a change, and how it is followed in their logs.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use osm_api::rbac::Service;
use osm_testkit::{Options, check, wait_for};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::world::{DEADLINE, World};

const POOL: &str = "kube-system/pool";

/// Scrapes of each service at the same time.
const SLOW_SCRAPES: usize = 50;

/// `terminationGracePeriodSeconds` by default.
const GRACE_PERIOD: Duration = Duration::from_secs(30);

impl World {
    /// The lines that a service has logged about a revision of the pool.
    fn logged(&self, service: Service, revision: u64) -> Result<Vec<Value>> {
        let log = std::fs::read_to_string(self.installed.log_file(service))?;
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let is_of_revision = |line: &Value| line["pool"] == POOL && line["revision"] == *revision.to_string();
        Ok(lines.filter(is_of_revision).collect())
    }

    /// Publishes further revisions until one is logged, or until one is not; returns the last.
    async fn publish_until_logged(&self, mut revision: u64, wanted: bool) -> Result<u64> {
        for _ in 0..50 {
            revision += 1;
            self.stamp("pool", revision).await?;
            self.machine("pool", revision).await?;
            let mut logged = Vec::new();
            for service in [Service::OscController, Service::SecretSyncer] {
                // The lines of this revision may still be missing, but those of the one before it are complete.
                logged.push(!self.logged(service, revision - 1)?.is_empty());
            }
            if logged == [wanted, wanted] {
                return Ok(revision);
            }
        }
        anyhow::bail!("the log level does not change:\n{}", self.installed.logs())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_counted_and_followed_by_its_digest_and_the_log_level_changes() -> Result<()> {
    let world = World::start(Options::default()).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("pool", "osp-tiny").await?;
    for revision in [1, 2] {
        world.stamp("pool", revision).await?;
        world.machine("pool", revision).await?;
        wait_for("the change to be counted", DEADLINE, async || {
            let name = "osm_pool_publish_duration_seconds_count";
            let count = world.metric(Service::OscController, 0, name, "").await?;
            check(count as u64 == revision)
        })
        .await
        .map_err(|error| error.context(world.installed.logs()))?;
    }
    let of = async |name: &str| world.metric(Service::OscController, 0, name, "").await;
    assert!(of("osm_render_duration_seconds_count").await? >= 2.0);
    assert!(of("osm_user_data_limit_bytes").await? > of("osm_user_data_bytes").await? / 2.0);

    let published = world
        .config("pool")
        .await?
        .status
        .and_then(|status| status.published);
    let digest = published.context("what is published")?.digest;
    for (service, field, value) in [
        (Service::OscController, "rendered", Value::from(true)),
        (
            Service::SecretSyncer,
            "message",
            Value::from("user data is published"),
        ),
    ] {
        wait_for("the digest in the log", DEADLINE, async || {
            let is_it = |line: &Value| line["digest"] == *digest && line[field] == value;
            check(world.logged(service, 2)?.iter().any(is_it))
        })
        .await
        .map_err(|error| error.context(world.installed.logs()))?;
    }

    are_documented(&world).await?;

    world.set_settings("logLevel: error").await?;
    let revision = world.publish_until_logged(2, false).await?;
    world.set_settings("").await?;
    world.publish_until_logged(revision, true).await?;
    Ok(())
}

/// Real services have only metrics and values of labels that docs/metrics.md lists, and all that read settings have the same.
async fn are_documented(world: &World) -> Result<()> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = std::fs::read_to_string(page)?;
    let (metrics, labels) = page.split_once("\n## Labels\n").context("the labels")?;
    let (mut texts, mut hashes) = (Vec::new(), Vec::new());
    for service in Service::ALL {
        let (_, text) = world.installed.get(service, "/metrics").await?;
        let hash = text
            .lines()
            .find_map(|line| line.strip_prefix("osm_settings_hash "));
        hashes.extend(hash.map(str::to_owned));
        let mut metric = "";
        for line in text.lines() {
            if let Some(type_) = line.strip_prefix("# TYPE ") {
                let (name, kind) = type_.split_once(' ').context("a type")?;
                let row = format!("\n| `{name}` | {kind} |");
                ensure!(metrics.contains(&row), "{}: {line}", service.name());
                metric = name;
            }
            let Some((_, sample)) = line.split_once('{').filter(|_| !line.starts_with('#')) else {
                continue;
            };
            let (sample, _) = sample.split_once("} ").context("a sample")?;
            for (label, value) in sample.split("\",").filter_map(|label| label.split_once("=\"")) {
                let value = format!("`{}`", value.trim_end_matches('"'));
                let has = |row: &str| match row.split(" | ").collect::<Vec<_>>()[..] {
                    [name, values, metrics] => {
                        // A large set is described in words.
                        let is_in_words = !values.starts_with('`');
                        name == format!("| `{label}`")
                            && metrics.contains(&format!("`{metric}`"))
                            && (is_in_words || values.contains(&value))
                    }
                    _ => false,
                };
                let has = label == "le" || labels.lines().any(has);
                ensure!(has, "{}: {metric} has {label}={value}", service.name());
            }
        }
        texts.push((service.name(), text));
    }
    ensure!(hashes.len() == 3, "{hashes:?}");
    ensure!(
        hashes.iter().all(|hash| *hash == hashes[0] && hash != "0"),
        "{hashes:?}"
    );
    let texts: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (*name, text.as_str())).collect();
    osm_judges::metrics(&texts)?;
    Ok(())
}

/// Scrapes that read one byte after the other, until they are dropped.
fn scrape_slowly(address: &str, scrapes: &mut JoinSet<()>) {
    for _ in 0..SLOW_SCRAPES {
        let address = address.to_owned();
        scrapes.spawn(async move {
            loop {
                if let Ok(mut stream) = TcpStream::connect(&address).await {
                    let _ = stream
                        .write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
                        .await;
                    while let Ok(1..) = stream.read(&mut [0]).await {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_scrapes_and_scrapes_at_start_and_end_disturb_nothing() -> Result<()> {
    let mut world = World::start(Options::default()).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("pool", "osp-tiny").await?;
    let mut scrapes = JoinSet::new();
    for service in Service::ALL {
        scrape_slowly(&world.installed.address(service)?, &mut scrapes);
    }
    for revision in 1..=5 {
        world.stamp("pool", revision).await?;
        world.machine("pool", revision).await?;
    }
    for service in Service::ALL {
        ensure!(world.installed.is_ready(service).await, "{}", service.name());
        // A service that scrapes hold up would be killed after the grace period of its pod.
        let status = world.installed.terminate(service, GRACE_PERIOD).await?;
        ensure!(status.success(), "{}: {status}", service.name());
        world.installed.start(service).await?;
        scrape_slowly(&world.installed.address(service)?, &mut scrapes);
    }
    world.stamp("pool", 6).await?;
    world.machine("pool", 6).await?;
    world.installed.ready(DEADLINE).await?;
    let (status, text) = world.installed.get(Service::OscController, "/metrics").await?;
    ensure!(status == 200 && text.contains("osm_ready"), "{status}: {text}");
    Ok(())
}
