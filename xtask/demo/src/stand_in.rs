//! What machine-controller does for the services: it gives each new template of a MachineDeployment a
//! revision.

use std::collections::HashMap;
use std::pin::pin;

use anyhow::{Error, anyhow};
use futures::StreamExt as _;
use kube::api::DynamicObject;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use osm_testkit::machine_controller::{REVISION_ANNOTATION, machine_deployment, stamp_revision};
use serde_json::Value;

/// Runs until an error.
pub async fn run(client: Client) -> Error {
    let api = Api::<DynamicObject>::all_with(client.clone(), &machine_deployment());
    // uid → template and its revision.
    let mut known: HashMap<Option<String>, (Option<Value>, u64)> = HashMap::new();
    let mut changes = pin!(watcher(api, watcher::Config::default()).applied_objects());
    while let Some(change) = changes.next().await {
        // The watch starts again by itself.
        let Ok(found) = change else { continue };
        let template = found.data.pointer("/spec/template").cloned();
        let stamped = found.annotations().get(REVISION_ANNOTATION);
        let stamped: u64 = stamped.and_then(|stamped| stamped.parse().ok()).unwrap_or(0);
        let revision = match known.get(&found.uid()) {
            Some((same, revision)) if *same == template => *revision,
            Some((_, revision)) => stamped.max(*revision).saturating_add(1),
            None => stamped.saturating_add(1),
        };
        if stamped == revision {
            continue;
        }
        match stamp_revision(&client, &found, revision).await {
            Ok(_) => {
                known.insert(found.uid(), (template, revision));
            }
            // It may have been deleted in between.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => {
                return Error::new(error).context("the revision of a MachineDeployment can't be set");
            }
        }
    }
    anyhow!("the watch of MachineDeployments has ended")
}
