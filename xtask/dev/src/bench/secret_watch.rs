//! A watch of every bootstrap Secret: when it got a revision or other content, and while it was absent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Secret;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use osm_api::names;
use osm_testkit::wait_for;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::pools::StartTimes;

/// A watch of all Secrets in `cloud-init-settings`.
pub struct SecretWatch {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    /// By name and revision: when it was first seen.
    first: BTreeMap<(String, String), Instant>,
    /// By name: when it was first written since [`SecretWatch::begin`].
    written: BTreeMap<String, Instant>,
    /// Every Secret of a pool that exists.
    existing: BTreeSet<String>,
    /// By name: since when it is absent.
    absent: BTreeMap<String, Instant>,
    absences: Vec<Duration>,
    /// How often the watch started. A restarted watch may have missed events.
    restarts: usize,
}

impl Seen {
    fn observe(&mut self, event: watcher::Event<PartialObjectMeta<Secret>>, now: Instant) {
        match event {
            watcher::Event::Init => self.restarts += 1,
            watcher::Event::InitDone => {}
            watcher::Event::InitApply(secret) | watcher::Event::Apply(secret) => self.applied(&secret, now),
            watcher::Event::Delete(secret) => {
                self.existing.remove(&secret.name_any());
                if is_bootstrap(&secret) {
                    self.absent.insert(secret.name_any(), now);
                }
            }
        }
    }

    fn applied(&mut self, secret: &PartialObjectMeta<Secret>, now: Instant) {
        let name = secret.name_any();
        if secret.labels().contains_key(names::POOL) {
            self.existing.insert(name.clone());
        }
        if !is_bootstrap(secret) {
            return;
        }
        if let Some(since) = self.absent.remove(&name) {
            self.absences.push(now.duration_since(since));
        }
        self.written.entry(name.clone()).or_insert(now);
        if let Some(revision) = secret.annotations().get(names::MACHINE_DEPLOYMENT_REVISION) {
            self.first.entry((name, revision.clone())).or_insert(now);
        }
    }
}

fn is_bootstrap(secret: &PartialObjectMeta<Secret>) -> bool {
    secret.name_any().ends_with("-bootstrap-config")
}

impl SecretWatch {
    /// Starts the watch. Returns after its first list.
    ///
    /// # Errors
    /// When the server refuses the watch.
    pub async fn start(secrets: Api<PartialObjectMeta<Secret>>) -> Result<Self> {
        let mut events = watcher(secrets, watcher::Config::default())
            .default_backoff()
            .boxed();
        let seen = Arc::<Mutex<Seen>>::default();
        loop {
            let event = events.try_next().await?.context("the watch has ended")?;
            let listed = matches!(event, watcher::Event::InitDone);
            seen.lock().observe(event, Instant::now());
            if listed {
                break;
            }
        }
        let writer = seen.clone();
        let task = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => writer.lock().observe(event, Instant::now()),
                    Err(error) => eprintln!("the watch of Secrets was interrupted: {error}"),
                }
            }
        });
        Ok(Self { seen, task })
    }

    /// Begins a scenario: forgets when Secrets were written and absent.
    pub fn begin(&self) {
        let mut seen = self.seen.lock();
        seen.written.clear();
        seen.absences.clear();
    }

    /// Waits until each of these Secrets has had `revision`. Returns how long each took, the shortest first.
    ///
    /// # Errors
    /// After the deadline, the number of Secrets that had it.
    pub async fn revision(
        &self,
        revision: u64,
        started: &StartTimes,
        deadline: Duration,
    ) -> Result<Vec<Duration>> {
        let wanted = revision.to_string();
        let what = format!("every bootstrap Secret at revision {revision}");
        self.all(&what, started, deadline, |seen, name| {
            seen.first.get(&(name.to_owned(), wanted.clone())).copied()
        })
        .await
    }

    /// Waits until each of these Secrets was written since [`Self::begin`]. Returns how long each took, the shortest first.
    ///
    /// # Errors
    /// After the deadline, the number of Secrets that were written.
    pub async fn written(&self, started: &StartTimes, deadline: Duration) -> Result<Vec<Duration>> {
        self.all(
            "every bootstrap Secret to be written",
            started,
            deadline,
            |seen, name| seen.written.get(name).copied(),
        )
        .await
    }

    async fn all(
        &self,
        what: &str,
        started: &StartTimes,
        deadline: Duration,
        at: impl Fn(&Seen, &str) -> Option<Instant>,
    ) -> Result<Vec<Duration>> {
        let mut waits = wait_for(what, deadline, async || {
            let seen = self.seen.lock();
            let wait =
                |(name, since): (&String, &Instant)| Some(at(&seen, name)?.saturating_duration_since(*since));
            let waits: Vec<Duration> = started.iter().filter_map(wait).collect();
            ensure!(
                waits.len() == started.len(),
                "{} of {} are",
                waits.len(),
                started.len()
            );
            Ok(Some(waits))
        })
        .await?;
        waits.sort_unstable();
        Ok(waits)
    }

    /// The longest time for which a bootstrap Secret was absent since [`Self::begin`], after it had existed. Secrets that are absent now
    /// count until now.
    ///
    /// # Errors
    /// A watch that may have missed events.
    pub fn longest_absence(&self) -> Result<Option<Duration>> {
        let seen = self.seen.lock();
        ensure!(
            seen.restarts == 1,
            "the watch of Secrets restarted and may have missed absences"
        );
        let now = seen.absent.values().map(Instant::elapsed);
        Ok(seen.absences.iter().copied().chain(now).max())
    }

    /// Whether no pool has a Secret.
    pub fn none_left(&self) -> bool {
        self.seen.lock().existing.is_empty()
    }
}

impl Drop for SecretWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn secret(name: &str, revision: &str) -> PartialObjectMeta<Secret> {
        serde_json::from_value(json!({"metadata": {"name": name, "labels": {names::POOL: "p"},
            "annotations": {names::MACHINE_DEPLOYMENT_REVISION: revision}}}))
        .unwrap()
    }

    #[test]
    fn absences_last_from_deletion_to_return() {
        let (mut seen, start) = (Seen::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        seen.observe(watcher::Event::Apply(secret("a-bootstrap-config", "1")), at(0));
        seen.observe(watcher::Event::Apply(secret("a-bootstrap-config", "2")), at(1));
        assert!(seen.absences.is_empty(), "an update is no absence");
        seen.observe(watcher::Event::Delete(secret("osm-provisioning-a", "2")), at(2));
        seen.observe(watcher::Event::Delete(secret("a-bootstrap-config", "2")), at(2));
        seen.observe(watcher::Event::Apply(secret("a-bootstrap-config", "3")), at(5));
        assert_eq!(seen.absences, [Duration::from_secs(3)]);
        assert_eq!(seen.written.get("a-bootstrap-config"), Some(&at(0)));
        assert_eq!(
            seen.first.get(&("a-bootstrap-config".to_owned(), "2".to_owned())),
            Some(&at(1))
        );
    }
}
