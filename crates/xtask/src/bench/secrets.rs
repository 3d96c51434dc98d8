//! What a watch sees of the bootstrap Secrets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use osm_api::names::{CLOUD_INIT_SETTINGS, MACHINE_DEPLOYMENT_REVISION};

/// Times by revision and name, and absences; filled by a task of its own.
pub struct Secrets {
    seen: Arc<Mutex<Seen>>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    /// (revision, name) → when it was first there.
    first: BTreeMap<(u64, String), Instant>,
    /// Name → since when it is gone.
    gone: BTreeMap<String, Instant>,
    /// How long Secrets were gone that came back.
    absences: Vec<Duration>,
}

impl Seen {
    fn note(&mut self, event: watcher::Event<Secret>) {
        let now = Instant::now();
        match event {
            watcher::Event::InitApply(secret) | watcher::Event::Apply(secret) => {
                let name = secret.name_any();
                if let Some(since) = self.gone.remove(&name) {
                    self.absences.push(now.saturating_duration_since(since));
                }
                let revision = secret.annotations().get(MACHINE_DEPLOYMENT_REVISION);
                if let Some(revision) = revision.and_then(|revision| revision.parse().ok()) {
                    self.first.entry((revision, name)).or_insert(now);
                }
            }
            watcher::Event::Delete(secret) if secret.name_any().ends_with("-bootstrap-config") => {
                self.gone.insert(secret.name_any(), now);
            }
            _ => {}
        }
    }
}

impl Secrets {
    /// Begins; returns once the watch runs.
    ///
    /// # Errors
    /// A watch that can't begin.
    pub async fn watch(client: Client) -> Result<Self> {
        let api = Api::<Secret>::namespaced(client, CLOUD_INIT_SETTINGS);
        let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
        let seen = Arc::<Mutex<Seen>>::default();
        while !matches!(events.try_next().await?.context("the watch ended")?, watcher::Event::InitDone) {}
        let writer = seen.clone();
        let task = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => writer.lock().unwrap_or_else(PoisonError::into_inner).note(event),
                    Err(error) => eprintln!("the watch on Secrets broke, and begins again: {error}"),
                }
            }
        });
        Ok(Self { seen, task })
    }

    /// When each bootstrap Secret first had the revision, by name.
    pub fn with_revision(&self, revision: u64) -> BTreeMap<String, Instant> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let of_revision = seen.first.iter().filter(|((of, _), _)| *of == revision);
        of_revision.map(|((_, name), when)| (name.clone(), *when)).collect()
    }

    /// How long bootstrap Secrets were absent, once each; those that are still gone count until now.
    pub fn absences(&self) -> Vec<Duration> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.absences.iter().copied().chain(seen.gone.values().map(Instant::elapsed)).collect()
    }
}

impl Drop for Secrets {
    fn drop(&mut self) {
        self.task.abort();
    }
}
