//! Reports that something in a cluster may have changed, so that it is worth reading it again.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DynamicObject, WatchEvent, WatchParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use osm_api::names::KUBE_SYSTEM;
use osm_api::{MachineDeployment, OperatingSystemConfig, OperatingSystemProfile};
use tokio::sync::Notify;

use super::Clusters;
use crate::snapshot::{Part, Snapshot};

/// Pause before a watch that ended is opened again.
const REOPEN_AFTER: Duration = Duration::from_secs(1);

impl Clusters {
    /// Watches MachineDeployments, configs, profiles and the settings, as far as they could be read. The watches carry metadata alone, and
    /// end with the runtime. Changes that come together are reported once.
    pub fn follow(&self, snapshot: &Snapshot) -> Arc<Notify> {
        let changed = Arc::new(Notify::new());
        let watch = |client: &Client, kind: ApiResource, namespace: Option<&str>, params: WatchParams| {
            let api: Api<DynamicObject> = match namespace {
                Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind),
                None => Api::all_with(client.clone(), &kind),
            };
            tokio::spawn(report(api, params, changed.clone()));
        };
        let (management, worker, home) = (
            &self.management.client,
            &self.worker().client,
            &self.home().client,
        );
        // Without the right to read all of them, those of this namespace were read.
        let is_restricted = snapshot.lacks(Part::MachineDeployments);
        let of_pools = is_restricted.then_some(KUBE_SYSTEM);
        let all = WatchParams::default;
        watch(
            worker,
            ApiResource::erase::<MachineDeployment>(&()),
            of_pools,
            all(),
        );
        let installation = Some(snapshot.namespace.as_str());
        watch(
            management,
            ApiResource::erase::<OperatingSystemConfig>(&()),
            installation,
            all(),
        );
        let settings = format!("metadata.name={}", snapshot.settings_config_map);
        watch(
            home,
            ApiResource::erase::<ConfigMap>(&()),
            Some(snapshot.home_namespace()),
            all().fields(&settings),
        );
        for namespace in snapshot.profile_namespaces() {
            let kind = ApiResource::erase::<OperatingSystemProfile>(&());
            watch(management, kind, Some(namespace.as_str()), all());
        }
        changed
    }
}

/// Reports each change of these objects. When a watch is opened, it reports all of them, so that nothing is missed in between.
async fn report(api: Api<DynamicObject>, params: WatchParams, changed: Arc<Notify>) {
    loop {
        if let Ok(events) = api.watch_metadata(&params, "0").await {
            let mut events = pin!(events);
            while let Some(Ok(event)) = events.next().await {
                match event {
                    WatchEvent::Bookmark(_) => {}
                    WatchEvent::Error(_) => break,
                    _ => changed.notify_one(),
                }
            }
        }
        tokio::time::sleep(REOPEN_AFTER).await;
    }
}
