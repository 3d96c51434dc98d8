//! An API server that is overloaded.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use osm_api::rbac::{ClusterKind, Service};
use osm_testkit::{Options, wait_for};
use serde_json::json;

use crate::fake_server::{Call, FakeServer};
use crate::world::{DEADLINE, World};

/// What the server asks for. A service waits at most a quarter longer.
const RETRY_AFTER: Duration = Duration::from_secs(6);
/// Requests that were on their way when the server refused one.
const ON_THEIR_WAY: Duration = Duration::from_secs(3);

#[derive(Default)]
struct Log {
    /// The first list, which was refused.
    refused: Option<(Instant, String)>,
    /// The requests after that, but for those about Leases.
    later: Vec<(Instant, String)>,
}

async fn respond(mut call: Call, log: Arc<Mutex<Log>>) -> Result<()> {
    let is_list = call.target.contains("limit=");
    let refuse = {
        let (mut log, now) = (log.lock().unwrap(), Instant::now());
        let refuse = is_list && log.refused.is_none();
        if refuse {
            log.refused = Some((now, call.target.clone()));
        } else if log.refused.is_some() && !call.target.contains("/leases") {
            log.later.push((now, call.target.clone()));
        }
        refuse
    };
    if refuse {
        let head = http::Response::builder()
            .status(429)
            .header("retry-after", RETRY_AFTER.as_secs());
        call.head(head).await?;
        let status = json!({"kind": "Status", "status": "Failure", "reason": "TooManyRequests", "code": 429});
        return call.send(status.to_string().as_bytes()).await;
    }
    call.head(http::Response::builder()).await?;
    if call.is_watch() {
        tokio::time::sleep(DEADLINE).await;
        return Ok(());
    }
    let answer = match call.method.as_str() {
        "GET" if is_list => json!({"metadata": {"resourceVersion": "1"}, "items": []}),
        "GET" => json!({"metadata": {"name": "kube-system", "uid": "u"}}),
        _ => json!({"metadata": {}, "spec": {}, "status": {"allowed": true}}),
    };
    call.send(answer.to_string().as_bytes()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn all_requests_wait_where_one_is_refused_with_retry_after() -> Result<()> {
    let mut world = World::start_without_services(Options::default()).await?;
    for service in [Service::OscController, Service::SecretSyncer] {
        let log = Arc::<Mutex<Log>>::default();
        let seen = log.clone();
        let server = FakeServer::start(move |call| respond(call, seen.clone())).await?;
        world
            .installed
            .replace_kubeconfig(service, ClusterKind::Management, &server.kubeconfig())?;
        world.installed.start(service).await?;
        wait_for("every watch to be in step", DEADLINE, async || {
            let (_, ready) = world.installed.get(service, "/readyz").await?;
            let began = log.lock().unwrap().refused.is_some();
            ensure!(began && !ready.contains("watch of"), "{ready}");
            Ok(Some(()))
        })
        .await?;
        world.installed.kill9(service)?;
        let log = log.lock().unwrap();
        let (at, refused) = log.refused.clone().context("a refusal")?;
        let early: Vec<_> = log
            .later
            .iter()
            .map(|(later, target)| (later.duration_since(at), target))
            .filter(|(after, _)| (ON_THEIR_WAY..RETRY_AFTER).contains(after))
            .collect();
        ensure!(
            early.is_empty(),
            "{service:?}: {refused} was refused, and these came: {early:?}"
        );
        ensure!(
            log.later.iter().any(|(_, target)| *target == refused),
            "{service:?}: {refused} was not sent again"
        );
    }
    Ok(())
}
