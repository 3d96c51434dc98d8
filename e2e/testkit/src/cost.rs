//! What a change costs the API server: requests by kind and bytes written, counted from its audit log.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::control_plane::{AuditEvent, AuditLog};

/// The user of [`crate::ControlPlane::admin`]: the tests themselves, not the services.
const ADMIN: &str = "admin";

/// Services that send no request for this long have finished.
const QUIET: Duration = Duration::from_secs(2);

/// How often the log is read.
const INTERVAL: Duration = Duration::from_millis(100);

/// Requests and written bytes of the services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Cost {
    /// Number of requests by [`kind`].
    pub requests: BTreeMap<String, u64>,
    /// Size of the objects that were stored, as JSON, each time that they were stored. Counted only with
    /// [`Options::audit_bodies`](crate::Options::audit_bodies).
    pub bytes_written: u64,
}

impl Cost {
    #[must_use]
    pub fn of<'a>(events: impl IntoIterator<Item = &'a AuditEvent>) -> Self {
        let (mut cost, mut asked) = (Self::default(), Vec::new());
        for event in events.into_iter().filter(|event| counts(event)) {
            // The API server learns of a new Role by a watch of its own. How often a client asks again until
            // then is chance.
            let question = event.resource.ends_with("accessreviews") && !event.request.is_null();
            if question && asked.contains(&(&event.user, &event.request)) {
                continue;
            }
            if question {
                asked.push((&event.user, &event.request));
            }
            *cost.requests.entry(kind(event)).or_default() += 1;
            cost.bytes_written += written(event);
        }
        cost
    }
}

/// Verb and resource, such as `patch operatingsystemconfigs/status`.
fn kind(event: &AuditEvent) -> String {
    format!("{} {}", event.verb, event.resource)
}

/// Whether a request belongs to a change of pools. Leases, Events and watches depend on time or on the number
/// of processes, and the administrator's requests are those of the test itself.
fn counts(event: &AuditEvent) -> bool {
    event.user != ADMIN && event.verb != "watch" && !matches!(event.resource.as_str(), "leases" | "events")
}

/// Collects the requests that [count](counts) until none has come for some seconds.
///
/// # Errors
/// Requests that go on until the deadline.
pub async fn until_quiet(log: &mut AuditLog, deadline: Duration) -> Result<Vec<AuditEvent>> {
    let (mut all, started, mut since) = (Vec::new(), Instant::now(), Instant::now());
    while since.elapsed() < QUIET {
        ensure!(
            started.elapsed() < deadline,
            "requests go on after {deadline:?}, the last one is {}",
            all.last().map(kind).unwrap_or_default()
        );
        let mut new = log.read()?;
        new.retain(counts);
        if !new.is_empty() {
            since = Instant::now();
            all.extend(new);
        }
        tokio::time::sleep(INTERVAL).await;
    }
    Ok(all)
}

/// Bytes of the object that this request stored. Reviews and tokens are answered, not stored.
fn written(event: &AuditEvent) -> u64 {
    let stores = matches!(event.verb.as_str(), "create" | "update" | "patch")
        && event.code < 300
        && event.response.pointer("/metadata/resourceVersion").is_some();
    if stores {
        event.response.to_string().len() as u64
    } else {
        0
    }
}
