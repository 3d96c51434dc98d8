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
use tokio::task::JoinSet;

use super::pools::StartTimes;

/// A watch of all Secrets in `cloud-init-settings`.
pub struct SecretWatch {
    seen: Arc<Mutex<Seen>>,
    /// Dropping this ends the task.
    _task: JoinSet<()>,
}

#[derive(Default)]
struct Seen {
    /// By name and revision: when it was first written since [`SecretWatch::begin`].
    written: BTreeMap<(String, String), Instant>,
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
        if let Some(revision) = secret.annotations().get(names::MACHINE_DEPLOYMENT_REVISION) {
            self.written.entry((name, revision.clone())).or_insert(now);
        }
    }
}

fn is_bootstrap(secret: &PartialObjectMeta<Secret>) -> bool {
    secret.name_any().ends_with("-bootstrap-config")
}

impl SecretWatch {
    /// Starts the watch. Returns after its first list.
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
        let mut task = JoinSet::new();
        task.spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => writer.lock().observe(event, Instant::now()),
                    Err(error) => eprintln!("the watch of Secrets was interrupted: {error}"),
                }
            }
        });
        Ok(Self { seen, _task: task })
    }

    /// Begins a scenario: forgets when Secrets were written and absent.
    pub fn begin(&self) {
        let mut seen = self.seen.lock();
        seen.written.clear();
        seen.absent.clear();
        seen.absences.clear();
    }

    /// Waits until each of these Secrets was written with `revision` since [`Self::begin`]. Returns how long each took, the shortest first.
    pub async fn revision(
        &self,
        revision: u64,
        started: &StartTimes,
        deadline: Duration,
    ) -> Result<Vec<Duration>> {
        let what = format!("every bootstrap Secret to be written with revision {revision}");
        let revision = revision.to_string();
        let mut waits = wait_for(&what, deadline, async || {
            let seen = self.seen.lock();
            let wait = |(name, since): (&String, &Instant)| {
                let written = seen.written.get(&(name.clone(), revision.clone()))?;
                Some(written.saturating_duration_since(*since))
            };
            let waits: Vec<Duration> = started.iter().filter_map(wait).collect();
            let (written, all) = (waits.len(), started.len());
            ensure!(written == all, "{written} of {all} are");
            Ok(Some(waits))
        })
        .await?;
        waits.sort_unstable();
        Ok(waits)
    }

    /// The longest time for which a bootstrap Secret was absent since [`Self::begin`], after it had existed. Secrets that are absent now
    /// count until now.
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
