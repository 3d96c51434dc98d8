//! Starts the watches. A change requeues the configs that it concerns.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use osm_api::cluster_endpoint::Discovered;
use osm_api::config::OperatingSystemConfig;
use osm_api::profile::OperatingSystemProfile;
use osm_api::{MachineDeployment, Settings};
use osm_runtime::cache::{Cache, Change};
use osm_runtime::request::failed;
use osm_runtime::served::Served;
use osm_runtime::settings_watch;
use osm_runtime::watch::Watch;
use osm_runtime::{Cluster, Error};

use crate::context::Context;
use crate::pool_settings;
use crate::shared::Shared;
use crate::view::{ConfigView, PoolView, ProfileView};

/// EndpointSlices of the API server that are kept. A cluster has one or two, and each can have up to 1,000
/// addresses.
const MAX_SLICES: usize = 100;

/// MachineDeployments that are kept: at least twice as many as can get a config, so that the others are seen
/// waiting.
const MAX_POOLS: usize = 30_000;

/// How often it is looked whether the first lists are there, which only reads memory.
const POLL: Duration = Duration::from_millis(20);

/// Profiles of one namespace that are kept. No setting bounds their number, and each takes memory.
const MAX_PROFILES: usize = 10_000;

/// Starts the watches of the management cluster. What they show leads to the clusters that are served.
pub fn of_management(cluster: &Cluster, shared: &Shared, served: &Arc<Served<Context>>) {
    configs(cluster, &shared.configs, served.clone());
    profiles(cluster, shared, served);
}

/// Starts the watches of a worker cluster that every pool needs. The others start with the first pool that needs
/// them.
pub fn of_worker(context: &Context) {
    machine_deployments(context);
    let waker = context.clone();
    settings_watch::on_change(&context.cluster, move || waker.wake(|_| true));
}

fn machine_deployments(context: &Context) {
    let waker = context.clone();
    Watch::all(&context.cluster.worker, "machinedeployments")
        .at_most(MAX_POOLS)
        .with_text()
        .project(|md: MachineDeployment| Some(PoolView::of(&md)))
        .unreadable(|md| Some(PoolView::unreadable(md)))
        .into_cache(&context.caches.pools)
        .on_change(move |change: Change<PoolView>| {
            let uid = |pool: &PoolView| pool.pool_ref.uid.clone();
            let new = change.new.as_deref().map(uid);
            if let Some(gone) = change.old.as_deref().map(uid)
                && new.as_ref() != Some(&gone)
            {
                waker.no_longer_rejected(&gone);
                waker.memory.forget_finalizer(&gone);
                waker.memory.forget_content(&gone);
            }
            if let Some(pool) = change.new.as_ref().filter(|pool| pool.settings_map.is_some()) {
                pool_settings(&waker, &pool.pool_ref.namespace);
            }
            for pool in [change.old, change.new].into_iter().flatten() {
                waker.queue.add(pool.pool_ref.config_name());
            }
        })
        .spawn(&context.cluster);
}

fn configs(cluster: &Cluster, cache: &Arc<Cache<ConfigView>>, served: Arc<Served<Context>>) {
    Watch::of_clusters(
        &cluster.management,
        &cluster.installation,
        "operatingsystemconfigs",
    )
    .large()
    .project(|config: OperatingSystemConfig| Some(ConfigView::of(config)))
    .unreadable(|config| Some(ConfigView::unreadable(config)))
    .into_cache(cache)
    .on_change(move |Change { key, old, new }| {
        let Some((context, name)) = served.of(&key) else {
            return;
        };
        let is_only_published = match (&old, &new) {
            (Some(old), Some(new)) => new.is_only_published_since(old),
            _ => false,
        };
        if let (Some(old), None) = (&old, &new)
            && old.status.rendered.is_some()
            && let Some(uid) = old.pool_uid()
        {
            context.memory.lose_content(uid);
        }
        if !is_only_published {
            context.queue.add(name.to_owned());
        }
        if new.is_none() {
            context.wake_for_room();
        }
    })
    .spawn(cluster);
}

fn profiles(cluster: &Cluster, shared: &Shared, served: &Arc<Served<Context>>) {
    let own = cluster.installation.profiles_namespace();
    for (namespace, cache) in &shared.profiles {
        let served = served.clone();
        let (known, also_known) = (cache.clone(), cache.clone());
        Watch::namespaced(&cluster.management, namespace, "operatingsystemprofiles")
            .at_most(MAX_PROFILES)
            .large()
            .project(move |profile: OperatingSystemProfile| Some(ProfileView::of(profile, &known)))
            .unreadable(move |profile| Some(ProfileView::unreadable(profile, &also_known)))
            .into_cache(cache)
            .on_change(move |change| {
                for context in served.all() {
                    context.wake_users_of(&change.key);
                }
            })
            // A namespace that can't be read holds up only the pools that use its profiles.
            .awaited(namespace == own)
            .spawn(cluster);
    }
}

/// Watches the ConfigMaps of this namespace, once a pool names one.
fn pool_settings(context: &Context, namespace: &str) {
    let Some(cache) = context.caches.pool_settings.get(namespace) else {
        return;
    };
    if !context.is_first_to_start(&format!("pool-settings in {namespace}")) {
        return;
    }
    let waker = context.clone();
    Watch::namespaced(&context.cluster.worker, namespace, "pool-settings")
        .large()
        .project(|map| pool_settings::document(map).map(drop))
        .into_cache(cache)
        .on_change(move |change| {
            if let Some((namespace, name)) = change.key.split_once('/') {
                waker.wake(|pool| pool.names_settings(namespace, name));
            }
        })
        // A namespace that can't be read holds up only the pools that use its ConfigMaps.
        .awaited(false)
        .spawn(&context.cluster);
}

/// Watches where the cluster says that its API server is, once these settings don't say it, and returns when
/// both places are listed.
///
/// # Errors
/// They can't be listed.
pub async fn discover(context: &Context, settings: &Settings) -> Result<(), Error> {
    let cluster = &settings.cluster;
    if cluster.api_server.is_some() && cluster.ca_bundle.is_some() {
        return Ok(());
    }
    if context.is_first_to_start("endpoints") {
        endpoints(context);
    }
    let caches = &context.caches;
    let listed = async {
        while !(caches.cluster_info.is_listed() && caches.endpoint_slices.is_listed()) {
            tokio::time::sleep(POLL).await;
        }
    };
    let listed = tokio::time::timeout(context.cluster.process.args.request_timeout, listed).await;
    let late = |_| kube::Error::Service("it is not listed yet; the log says why".into());
    listed.map_err(late).map_err(failed("the API server's address"))
}

fn endpoints(context: &Context) {
    let waker = context.clone();
    Watch::namespaced(&context.cluster.worker, "kube-public", "cluster-info")
        .named("cluster-info")
        .project(|map: ConfigMap| Some(Discovered::from_cluster_info(&map)))
        .into_cache(&context.caches.cluster_info)
        .on_change(move |_| waker.wake(|_| true))
        .awaited(false)
        .spawn(&context.cluster);

    let waker = context.clone();
    Watch::namespaced(&context.cluster.worker, "default", "endpointslices")
        .labels("kubernetes.io/service-name=kubernetes")
        .at_most(MAX_SLICES)
        .project(|slice: EndpointSlice| Some(Discovered::from_endpoint_slice(&slice)))
        .into_cache(&context.caches.endpoint_slices)
        .on_change(move |_| waker.wake(|_| true))
        .awaited(false)
        .spawn(&context.cluster);
}

#[cfg(test)]
mod tests {
    use osm_api::settings::MOST_MACHINE_DEPLOYMENTS;
    use osm_runtime::watch::MAX_OBJECTS;

    use super::*;

    #[test]
    fn the_watches_have_room_for_as_many_pools_as_the_settings_allow() {
        let pools = MOST_MACHINE_DEPLOYMENTS as usize;
        // MachineDeployments that get no config wait for one.
        assert!(2 * pools <= MAX_POOLS);
        assert!(pools < MAX_OBJECTS);
    }
}
