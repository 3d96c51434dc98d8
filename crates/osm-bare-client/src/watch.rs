//! Decides from watches which change of which pool happened, and has its requests sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use osm_api::{OperatingSystemProfile, names};
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::pool::{self, Sender};
use crate::writes::{Change, Values, Writes};

/// What the client serves.
pub struct Options {
    /// Namespace of profiles and settings.
    pub namespace: String,
    /// Name of the profile whose changes are served.
    pub profile: String,
    /// Name of the ConfigMap with the settings.
    pub settings: String,
    /// Pools whose requests are sent at the same time.
    pub concurrency: usize,
}

enum Event {
    Pool(DynamicObject),
    Gone(DynamicObject),
    /// A change of all pools, and the state after it.
    All(Change, String),
}

/// A pool whose requests a task sends.
struct Pool {
    /// What the requests for a change are decided by.
    template: Option<Value>,
    revision: String,
    changes: mpsc::UnboundedSender<(Change, Values)>,
}

/// Serves all pools until a watch or a request fails.
///
/// # Errors
/// A watch or a request that fails.
pub async fn run(sender: Sender, writes: Writes, options: &Options) -> Result<()> {
    let (writes, permits) = (Arc::new(writes), Arc::new(Semaphore::new(options.concurrency)));
    let mut events = futures::stream::select_all([
        pools(sender.client()),
        profiles(sender.client(), options),
        settings(sender.client(), options),
    ]);
    let mut pools = BTreeMap::<String, Pool>::new();
    let mut states = BTreeMap::<Change, String>::new();
    let mut tasks = JoinSet::new();
    loop {
        let event = tokio::select! {
            event = events.try_next() => event?.context("a watch has ended")?,
            Some(ended) = tasks.join_next() => {
                ended??;
                continue;
            }
        };
        match event {
            Event::Pool(object) => {
                let template = object.data.pointer("/spec/template").cloned();
                let values = pool::values(&object)?;
                let revision = values.get(pool::REVISION).cloned().unwrap_or_default();
                if object.metadata.deletion_timestamp.is_some() {
                    // It waits for the finalizer.
                    if let Some(gone) = pools.remove(&object.name_any()) {
                        let _ = gone.changes.send((Change::Deleted, values));
                    }
                    continue;
                }
                if revision.is_empty() {
                    continue;
                }
                let Some(known) = pools.get_mut(&object.name_any()) else {
                    let (changes, received) = mpsc::unbounded_channel();
                    let _ = changes.send((Change::Created, values));
                    tasks.spawn(serve(sender.clone(), writes.clone(), permits.clone(), received));
                    let pool = Pool {
                        template,
                        revision,
                        changes,
                    };
                    pools.insert(object.name_any(), pool);
                    continue;
                };
                if known.revision != revision {
                    let change = if known.template == template {
                        Change::Revision
                    } else {
                        Change::Rotated
                    };
                    (known.template, known.revision) = (template, revision);
                    let _ = known.changes.send((change, values));
                }
            }
            Event::Gone(object) => {
                if let Some(gone) = pools.remove(&object.name_any()) {
                    let _ = gone.changes.send((Change::Deleted, pool::values(&object)?));
                }
            }
            Event::All(change, state) => {
                let before = states.insert(change, state.clone());
                if before.is_some_and(|before| before != state) {
                    for pool in pools.values() {
                        let _ = pool.changes.send((change, Values::new()));
                    }
                }
            }
        }
    }
}

/// Sends the requests of one pool for one change after the other, until the pool is gone.
async fn serve(
    sender: Sender,
    writes: Arc<Writes>,
    permits: Arc<Semaphore>,
    mut changes: mpsc::UnboundedReceiver<(Change, Values)>,
) -> Result<()> {
    let mut values = Values::new();
    while let Some((change, new)) = changes.recv().await {
        values.extend(new);
        let _permit = permits.acquire().await?;
        let Some(steps) = writes.0.get(&change) else {
            bail!("the file of writes has none for {change:?}");
        };
        for step in steps {
            // A pool that did not go through every recorded change lacks some of the recorded objects.
            if change == Change::Deleted && !step.is_known(&values) {
                continue;
            }
            sender.send(step, &mut values).await?;
        }
    }
    Ok(())
}

type Events = futures::stream::BoxStream<'static, Result<Event>>;

fn pools(client: Client) -> Events {
    let kind = GroupVersionKind::gvk("cluster.k8s.io", "v1alpha1", "MachineDeployment");
    let api = Api::<DynamicObject>::all_with(client, &ApiResource::from_gvk(&kind));
    events(watcher(api, watcher::Config::default()), |event| match event {
        watcher::Event::Apply(object) | watcher::Event::InitApply(object) => Some(Event::Pool(object)),
        watcher::Event::Delete(object) => Some(Event::Gone(object)),
        watcher::Event::Init | watcher::Event::InitDone => None,
    })
}

fn profiles(client: Client, options: &Options) -> Events {
    let api = Api::<OperatingSystemProfile>::namespaced(client, &options.namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={}", options.profile));
    events(watcher(api, config), |event| {
        let version = applied(event)?.spec.version;
        Some(Event::All(Change::Profile, version))
    })
}

fn settings(client: Client, options: &Options) -> Events {
    let api = Api::<ConfigMap>::namespaced(client, &options.namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={}", options.settings));
    events(watcher(api, config), |event| {
        let text = applied(event)?.data?.remove(names::SETTINGS_KEY)?;
        Some(Event::All(Change::Settings, text))
    })
}

fn applied<K>(event: watcher::Event<K>) -> Option<K> {
    match event {
        watcher::Event::Apply(object) | watcher::Event::InitApply(object) => Some(object),
        _ => None,
    }
}

fn events<K: Send + 'static>(
    stream: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
    event: impl Fn(watcher::Event<K>) -> Option<Event> + Send + Sync + 'static,
) -> Events {
    stream
        .default_backoff()
        .map_err(anyhow::Error::from)
        .try_filter_map(move |found| futures::future::ready(Ok(event(found))))
        .boxed()
}
