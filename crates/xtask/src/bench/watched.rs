//! Sees every state of every bootstrap Secret: when it got a revision, and when it was not there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Secret;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use osm_api::names;
use osm_testkit::wait_for;
use tokio::task::JoinHandle;

use super::pools::Begun;

/// A watch of all Secrets in `cloud-init-settings`.
pub struct Watched {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    /// By name and revision: when it was first seen.
    first: BTreeMap<(String, String), Instant>,
    /// Everything that is there, bootstrap Secrets and those that go with them.
    there: BTreeSet<String>,
    /// By name: since when it is not there.
    absent: BTreeMap<String, Instant>,
    absences: Vec<Duration>,
    /// How often the watch began anew; something may then have been missed.
    restarts: usize,
}

impl Seen {
    fn take(&mut self, event: watcher::Event<PartialObjectMeta<Secret>>, now: Instant) {
        match event {
            watcher::Event::Init => self.restarts += 1,
            watcher::Event::InitDone => {}
            watcher::Event::InitApply(secret) | watcher::Event::Apply(secret) => self.applied(&secret, now),
            watcher::Event::Delete(secret) => {
                self.there.remove(&secret.name_any());
                if is_bootstrap(&secret) {
                    self.absent.insert(secret.name_any(), now);
                }
            }
        }
    }

    fn applied(&mut self, secret: &PartialObjectMeta<Secret>, now: Instant) {
        let name = secret.name_any();
        if secret.labels().contains_key(names::POOL) {
            self.there.insert(name.clone());
        }
        if !is_bootstrap(secret) {
            return;
        }
        if let Some(since) = self.absent.remove(&name) {
            self.absences.push(now.duration_since(since));
        }
        if let Some(revision) = secret.annotations().get(names::MACHINE_DEPLOYMENT_REVISION) {
            self.first.entry((name, revision.clone())).or_insert(now);
        }
    }
}

fn is_bootstrap(secret: &PartialObjectMeta<Secret>) -> bool {
    secret.name_any().ends_with("-bootstrap-config")
}

impl Watched {
    /// Starts, and returns once everything that exists has been seen.
    ///
    /// # Errors
    /// When the server refuses the watch.
    pub async fn start(secrets: Api<PartialObjectMeta<Secret>>) -> Result<Self> {
        let mut events = watcher(secrets, watcher::Config::default()).default_backoff().boxed();
        let seen = Arc::<Mutex<Seen>>::default();
        loop {
            let event = events.try_next().await?.context("the watch has ended")?;
            let listed = matches!(event, watcher::Event::InitDone);
            lock(&seen).take(event, Instant::now());
            if listed {
                break;
            }
        }
        let writer = seen.clone();
        let task = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => lock(&writer).take(event, Instant::now()),
                    Err(error) => eprintln!("the watch of Secrets was interrupted: {error}"),
                }
            }
        });
        Ok(Self { seen, task })
    }

    /// Waits until each of these Secrets has had `revision`; how long each took, in order of length.
    ///
    /// # Errors
    /// After the deadline: how many are missing.
    pub async fn revision(
        &mut self,
        revision: u64,
        begun: &Begun,
        deadline: Duration,
    ) -> Result<Vec<Duration>> {
        let wanted = revision.to_string();
        let mut waits =
            wait_for(&format!("every bootstrap Secret at revision {revision}"), deadline, async || {
                let seen = lock(&self.seen);
                let wait = |(name, since): (&String, &Instant)| {
                    let at = seen.first.get(&(name.clone(), wanted.clone()))?;
                    Some(at.saturating_duration_since(*since))
                };
                let waits: Vec<Duration> = begun.iter().filter_map(wait).collect();
                ensure!(waits.len() == begun.len(), "{} of {} are there", waits.len(), begun.len());
                Ok(Some(waits))
            })
            .await?;
        waits.sort_unstable();
        Ok(waits)
    }

    /// How long bootstrap Secrets were not there after they had been, in order of length.
    ///
    /// # Errors
    /// When one is not there now, or something may have been missed.
    pub fn absences(&self) -> Result<Vec<Duration>> {
        let seen = lock(&self.seen);
        ensure!(seen.restarts == 1, "the watch of Secrets began anew: absences may have been missed");
        ensure!(seen.absent.is_empty(), "bootstrap Secrets are gone for good: {:?}", seen.absent.keys());
        let mut absences = seen.absences.clone();
        absences.sort_unstable();
        Ok(absences)
    }

    /// Whether no Secret of any pool is left.
    pub fn none_left(&self) -> bool {
        lock(&self.seen).there.is_empty()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
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
        seen.take(watcher::Event::Apply(secret("a-bootstrap-config", "1")), at(0));
        seen.take(watcher::Event::Apply(secret("a-bootstrap-config", "2")), at(1));
        assert!(seen.absences.is_empty(), "an update is no absence");
        seen.take(watcher::Event::Delete(secret("osm-provisioning-a", "2")), at(2));
        seen.take(watcher::Event::Delete(secret("a-bootstrap-config", "2")), at(2));
        seen.take(watcher::Event::Apply(secret("a-bootstrap-config", "3")), at(5));
        assert_eq!(seen.absences, [Duration::from_secs(3)]);
        assert_eq!(seen.first.get(&("a-bootstrap-config".to_owned(), "2".to_owned())), Some(&at(1)));
    }
}
