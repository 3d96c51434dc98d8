//! The settings document, watched. A document that is not valid, or gone, leaves the last good one in force.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use osm_api::names::SETTINGS_KEY;
use osm_api::{Settings, digest};
use tokio::sync::watch;

use crate::Context;
use crate::cache::{Cache, Change};

/// A valid settings document.
#[derive(Debug, PartialEq)]
pub struct Current {
    /// The settings.
    pub settings: Settings,
    /// SHA-256 of them as JSON, 64 hex characters.
    pub digest: String,
}

/// What the service goes by: `None` until a valid document has been seen.
pub type Receiver = watch::Receiver<Option<Arc<Current>>>;

/// Watches the settings ConfigMap. Not ready, and loud, while there is no valid document.
pub fn spawn(context: &Context) -> Receiver {
    let (sender, receiver) = watch::channel(None);
    let name = context.args.settings.clone();
    let place = format!("ConfigMap {}/{name}", context.args.namespace);
    let gate = context.readiness.gate(format!("settings ({place}, key {SETTINGS_KEY})"));
    gate.close(format!("create it; an empty {SETTINGS_KEY} means the defaults"));
    let valid = context.metrics.settings_valid.clone();
    let changed = move |change: Change<Option<String>>| {
        let text = change.new.map(|text| (*text).clone());
        match read(text.map(Option::unwrap_or_default)) {
            Ok(current) => {
                gate.open();
                valid.set(1);
                let news = sender.send_if_modified(|last| {
                    let differs = last.as_deref() != Some(&current);
                    if differs {
                        *last = Some(Arc::new(current));
                    }
                    differs
                });
                if news {
                    tracing::info!(from = place, "settings are in force");
                }
            }
            Err(problem) => {
                gate.close(&problem);
                valid.set(0);
                let kept = sender.borrow().is_some();
                tracing::error!(from = place, kept_last_good = kept, "{problem}");
            }
        }
    };
    let api: Api<DeserializeGuard<ConfigMap>> =
        Api::namespaced(context.management.client.clone(), &context.args.namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let project = |map: ConfigMap| Some(map.data.and_then(|mut data| data.remove(SETTINGS_KEY)));
    let watched = context.management.watched("settings");
    crate::watch::spawn(context, watched, api, config, Arc::new(Cache::default()), project, changed);
    receiver
}

/// Calls `changed` whenever other settings come into force, in a task of its own.
pub fn on_change(context: &Context, settings: &Receiver, changed: impl Fn() + Send + 'static) {
    let (mut settings, shutdown) = (settings.clone(), context.shutdown.clone());
    tokio::spawn(async move {
        while let Some(Ok(())) = shutdown.run_until_cancelled(settings.changed()).await {
            changed();
        }
    });
}

fn read(text: Option<String>) -> Result<Current, String> {
    let text = text.ok_or("the ConfigMap is gone: create it again")?;
    let settings = Settings::parse(&text).map_err(|error| error.to_string())?;
    let digest = digest::of(&settings).map_err(|error| error.to_string())?;
    Ok(Current { settings, digest })
}
