//! What an installation asks of the API server while nothing happens.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use osm_api::rbac::Installation;
use osm_testkit::control_plane::AuditEvent;
use osm_testkit::installation::{self, Installed};
use osm_testkit::{ControlPlane, Options};

/// Until what is sent only after the start is over, and the first watches have ended.
const SETTLES_WITHIN: Duration = Duration::from_mins(15);
/// Each watch begins again once in this time.
const MEASURED: Duration = Duration::from_mins(10);
/// Requests in that time, as docs/performance.md promises. Leases of the replicas are 24 a minute.
const MOST: usize = 300;

#[tokio::test]
#[ignore = "takes 25 minutes; .ci/nightly runs it"]
async fn an_installation_without_pools_renews_its_leases_and_sends_little_else() -> Result<()> {
    let options = Options {
        audit: true,
        ..Options::default()
    };
    let plane = ControlPlane::start(options).await?;
    let binaries = tokio::task::spawn_blocking(installation::binaries).await??;
    let mut installed = Installed::install(&plane, Installation::default(), &binaries).await?;
    installed.start_all().await?;
    installed.ready(Duration::from_mins(2)).await?;
    let mut log = plane.audit_log()?;
    tokio::time::sleep(SETTLES_WITHIN).await;
    log.read()?;
    tokio::time::sleep(MEASURED).await;
    let is_ours = |event: &AuditEvent| event.user.starts_with("system:serviceaccount:");
    let sent: Vec<AuditEvent> = log.read()?.into_iter().filter(is_ours).collect();
    let mut by_kind: BTreeMap<String, usize> = BTreeMap::new();
    for event in &sent {
        let service = event.user.rsplit(':').next().unwrap_or_default();
        let kind = format!("{service} {} {}", event.verb, event.resource);
        *by_kind.entry(kind).or_default() += 1;
    }
    let list: Vec<String> = by_kind
        .iter()
        .map(|(kind, count)| format!("{count:5} {kind}"))
        .collect();
    println!("{} requests in {MEASURED:?}:\n{}", sent.len(), list.join("\n"));
    ensure!(!sent.is_empty(), "the log is empty");
    ensure!(sent.len() <= MOST, "more than {MOST} requests in {MEASURED:?}");
    Ok(())
}
