//! Watches the Secrets of `cloud-init-settings`, and remembers what each bootstrap Secret held, and which
//! were deleted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use parking_lot::Mutex;
use tokio::task::JoinSet;

/// A watch of all Secrets in `cloud-init-settings`. Dropping it ends the watch.
pub struct SecretWatch {
    seen: Arc<Mutex<Seen>>,
    _task: JoinSet<()>,
}

/// The deletion of a bootstrap Secret.
#[derive(Clone, Debug)]
pub struct Absence {
    pub name: String,
    pub uid: String,
    /// The id of its pool.
    pub pool: String,
    since: Instant,
    until: Option<Instant>,
}

/// A state of a bootstrap Secret.
struct Written {
    revision: String,
    text: String,
    at: Instant,
}

#[derive(Default)]
struct Seen {
    /// The states of each bootstrap Secret, in order.
    written: BTreeMap<String, Vec<Written>>,
    absences: Vec<Absence>,
    /// How often the watch started. A restarted watch may have missed events.
    starts: usize,
}

impl Seen {
    fn observe(&mut self, event: watcher::Event<Secret>, now: Instant) {
        match event {
            watcher::Event::Init => self.starts += 1,
            watcher::Event::InitDone => {}
            watcher::Event::InitApply(secret) | watcher::Event::Apply(secret) => self.applied(&secret, now),
            watcher::Event::Delete(secret) => {
                if is_bootstrap(&secret) {
                    self.absences.push(Absence {
                        name: secret.name_any(),
                        uid: secret.uid().unwrap_or_default(),
                        pool: secret.labels().get(names::POOL).cloned().unwrap_or_default(),
                        since: now,
                        until: None,
                    });
                }
            }
        }
    }

    fn applied(&mut self, secret: &Secret, now: Instant) {
        if !is_bootstrap(secret) {
            return;
        }
        let name = secret.name_any();
        let absent = self.absences.iter_mut().rev();
        for absence in absent.filter(|absence| absence.name == name && absence.until.is_none()) {
            absence.until = Some(now);
        }
        let revision = secret.annotations().get(names::MACHINE_DEPLOYMENT_REVISION);
        let data = secret
            .data
            .as_ref()
            .and_then(|data| data.get(names::CLOUD_CONFIG_KEY));
        if let (Some(revision), Some(data)) = (revision, data) {
            self.written.entry(name).or_default().push(Written {
                revision: revision.clone(),
                text: String::from_utf8_lossy(&data.0).into_owned(),
                at: now,
            });
        }
    }
}

/// The upstream OSM keeps a kubeconfig in another Secret, whose name ends alike. No machine reads that.
fn is_bootstrap(secret: &Secret) -> bool {
    let name = secret.name_any();
    name.ends_with("-bootstrap-config") && !name.ends_with("-kubelet-bootstrap-config")
}

impl SecretWatch {
    /// Starts the watch. Returns after its first list.
    ///
    /// # Errors
    /// A watch that ends, or is refused.
    pub async fn start(client: Client) -> Result<Self> {
        let secrets = Api::<Secret>::namespaced(client, CLOUD_INIT_SETTINGS);
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

    /// Forgets what bootstrap Secrets held, and which were deleted.
    pub fn forget(&self) {
        let mut seen = self.seen.lock();
        seen.written.clear();
        seen.absences.clear();
    }

    /// Bootstrap Secrets that were deleted, in order.
    #[must_use]
    pub fn absences(&self) -> Vec<Absence> {
        self.seen.lock().absences.clone()
    }

    /// Their names.
    #[must_use]
    pub fn absent(&self) -> Vec<String> {
        let seen = self.seen.lock();
        seen.absences.iter().map(|absence| absence.name.clone()).collect()
    }

    /// The longest time for which a bootstrap Secret was absent. Secrets that are absent now count until now.
    ///
    /// # Errors
    /// A watch that was interrupted.
    pub fn longest_absence(&self) -> Result<Duration> {
        let seen = self.seen.lock();
        ensure!(
            seen.starts == 1,
            "the watch of Secrets restarted and may have missed absences"
        );
        let now = Instant::now();
        let lasted = |absence: &Absence| absence.until.unwrap_or(now).duration_since(absence.since);
        Ok(seen.absences.iter().map(lasted).max().unwrap_or_default())
    }

    /// Every revision and document that a bootstrap Secret has had, in order.
    #[must_use]
    pub fn history(&self, name: &str) -> Vec<(String, String)> {
        let seen = self.seen.lock();
        let written = seen.written.get(name).into_iter().flatten();
        written
            .map(|written| (written.revision.clone(), written.text.clone()))
            .collect()
    }

    /// When a bootstrap Secret was first written with a revision.
    #[must_use]
    pub fn first(&self, name: &str, revision: &str) -> Option<Instant> {
        let seen = self.seen.lock();
        let mut written = seen.written.get(name)?.iter();
        Some(written.find(|written| written.revision == revision)?.at)
    }
}
