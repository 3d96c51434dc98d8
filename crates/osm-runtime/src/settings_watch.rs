//! Watches the settings document. While it is missing or not valid, the last good one stays in force, and its
//! `refused` field has the problem.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use osm_api::names::SETTINGS_KEY;
use osm_api::rbac::Installation;
use osm_api::settings::SettingsError;

use crate::cache::Change;
use crate::cluster::Cluster;
use crate::connection::Connection;
use crate::readiness::SETTINGS;
use crate::scope::Scope;
use crate::settings;
use crate::watch::Watch;

/// Watches the settings ConfigMap, and returns what is in force. Without a valid document the service is not
/// ready, and logs the mistakes.
pub fn spawn(scope: &Scope, management: &Connection, installation: &Installation) -> settings::Receiver {
    let (sender, receiver) = tokio::sync::watch::channel(None::<Arc<settings::Current>>);
    let name = installation.settings.clone();
    let namespace = installation.namespace.as_str();
    let place = format!("ConfigMap {namespace}/{name}");
    let gate = scope
        .gates
        .gate(format!("{SETTINGS} ({place}, key {SETTINGS_KEY})"));
    gate.close(format!("create it; an empty {SETTINGS_KEY} means the defaults"));
    let metrics = scope.process.metrics.clone();
    let changed = move |change: Change<settings::Document>| match settings::read(change.new.as_deref()) {
        Ok(current) => {
            gate.open();
            metrics.settings_in_force(&current.digest);
            let changed = sender.send_if_modified(|last| {
                let differs = last.as_deref() != Some(&current);
                if differs {
                    *last = Some(Arc::new(current));
                }
                differs
            });
            if changed {
                tracing::info!(from = place, "settings are in force");
            }
        }
        Err(SettingsError(mistakes)) => {
            let problem = mistakes.join("; ");
            let refused = format!("{place}, key {SETTINGS_KEY}: {problem}");
            gate.report(problem);
            metrics.settings_refused();
            sender.send_if_modified(|last| match last {
                Some(current) if current.refused.as_ref() != Some(&refused) => {
                    Arc::make_mut(current).refused = Some(refused);
                    true
                }
                _ => false,
            });
        }
    };
    Watch::namespaced(management, namespace, "settings")
        .named(&name)
        .project(|map: ConfigMap| Some(settings::document(map)))
        .on_change(changed)
        .spawn(scope);
    receiver
}

/// Calls `changed` whenever other settings come into force or are refused.
pub fn on_change(cluster: &Cluster, changed: impl Fn() + Send + 'static) {
    let mut settings = cluster.settings.clone();
    cluster.spawn("changes of the settings", async move {
        while settings.changed().await.is_ok() {
            changed();
        }
    });
}
