//! The settings document, watched. A document that is not valid, or gone, leaves the last good one in force, which then
//! says so.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use osm_api::names::SETTINGS_KEY;
use osm_api::settings::SettingsError;
use osm_api::{Settings, digest};
use tokio::sync::watch;

use crate::Context;
use crate::cache::{Cache, Change};

/// A valid settings document.
#[derive(Clone, Debug, PartialEq)]
pub struct Current {
    /// The settings.
    pub settings: Settings,
    /// SHA-256 of them as JSON, 64 hex characters.
    pub digest: String,
    /// Where a newer document stands that is refused, and every mistake in it. Without a time, so that all replicas say
    /// the same.
    pub refused: Option<String>,
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
                gate.close(problem.to_string());
                valid.set(0);
                let refused = format!("{place}, key {SETTINGS_KEY}: {}", problem.in_one_line());
                sender.send_if_modified(|last| match last {
                    Some(current) if current.refused.as_ref() != Some(&refused) => {
                        Arc::make_mut(current).refused = Some(refused);
                        true
                    }
                    _ => false,
                });
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

/// Calls `changed` whenever other settings come into force or are refused, in a task of its own.
pub fn on_change(context: &Context, settings: &Receiver, changed: impl Fn() + Send + 'static) {
    let (mut settings, shutdown) = (settings.clone(), context.shutdown.clone());
    tokio::spawn(async move {
        while let Some(Ok(())) = shutdown.run_until_cancelled(settings.changed()).await {
            changed();
        }
    });
}

/// Why there is no valid document.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("the ConfigMap is gone: create it again")]
    Gone,
    #[error(transparent)]
    Invalid(#[from] SettingsError),
}

impl Refusal {
    fn in_one_line(&self) -> String {
        match self {
            Self::Gone => self.to_string(),
            Self::Invalid(SettingsError(mistakes)) => mistakes.join("; "),
        }
    }
}

fn read(text: Option<String>) -> Result<Current, Refusal> {
    let settings = Settings::parse(&text.ok_or(Refusal::Gone)?)?;
    let digest = digest::of(&settings).map_err(|error| SettingsError(vec![error.to_string()]))?;
    Ok(Current { settings, digest, refused: None })
}
