//! What machine-controller does for the services: it gives each new template of a MachineDeployment a revision.

use std::collections::HashMap;
use std::pin::pin;

use anyhow::{Error, anyhow};
use futures::StreamExt as _;
use kube::api::DynamicObject;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use osm_testkit::machine_controller::{REVISION_ANNOTATION, machine_deployment, stamp_revision};

/// Runs until an error.
pub async fn run(client: Client) -> Error {
    let api = Api::<DynamicObject>::all_with(client.clone(), &machine_deployment());
    let mut templates = HashMap::new();
    let mut changes = pin!(watcher(api, watcher::Config::default()).applied_objects());
    while let Some(change) = changes.next().await {
        // The watch starts again by itself.
        let Ok(found) = change else { continue };
        let template = found.data.pointer("/spec/template").cloned();
        if templates.get(&found.uid()) == Some(&template) {
            continue;
        }
        let last = found.annotations().get(REVISION_ANNOTATION);
        let last: u64 = last.and_then(|last| last.parse().ok()).unwrap_or(0);
        match stamp_revision(&client, &found, last.saturating_add(1)).await {
            Ok(_) => templates.insert(found.uid(), template),
            // It may have been deleted in between.
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => {
                return Error::new(error).context("the revision of a MachineDeployment can't be set");
            }
        };
    }
    anyhow!("the watch of MachineDeployments has ended")
}
