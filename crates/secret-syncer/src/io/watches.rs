//! Starts the watches, and maps each change to the configs that it requeues.

use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Namespace;
use osm_api::config::OperatingSystemConfig;
use osm_api::names::{CLOUD_INIT_SETTINGS, INSTALLATION};
use osm_runtime::cache::Cache;
use osm_runtime::served::Served;
use osm_runtime::watch::{Watch, Watchable};
use osm_runtime::{Cluster, settings_watch};

use crate::io::context::Context;
use crate::io::shared::Shared;
use crate::model::view::{self, BindingView, ConfigView, RoleView, SecretView};

/// Secrets of the installation that are kept. The largest number of pools fits, because each gets [few
/// documents](crate::plan::provisioning_secret::has_room) once half of the room is taken.
const MAX_SECRETS: usize = 85_000;

/// Starts all watches of a worker cluster but those of sources, each of which starts with the first config
/// that needs it.
pub fn of_worker(context: &Context) {
    let (cluster, caches) = (&context.cluster, &context.caches);
    let secrets = in_namespace(cluster, "secrets").at_most(MAX_SECRETS).large();
    made(context, secrets, &caches.secrets, SecretView::of);
    let accounts = in_namespace(cluster, "serviceaccounts");
    made(context, accounts, &caches.accounts, view::account);
    made(
        context,
        in_namespace(cluster, "roles"),
        &caches.roles,
        RoleView::of,
    );
    let bindings = in_namespace(cluster, "rolebindings");
    made(context, bindings, &caches.bindings, BindingView::of);
    namespace(context);
    let waker = context.clone();
    settings_watch::on_change(&context.cluster, move || waker.wake(|_| true));
}

/// Watches objects in `cloud-init-settings`.
fn in_namespace<K>(cluster: &Cluster, what: &'static str) -> Watch<K>
where
    K: Watchable + kube::Resource<Scope = NamespaceResourceScope>,
{
    Watch::namespaced(&cluster.worker, CLOUD_INIT_SETTINGS, what)
}

/// Watches what this installation made, and requeues the configs that it was made for: it may have to be
/// repaired.
fn made<K, V>(context: &Context, watch: Watch<K>, cache: &Arc<Cache<V>>, view: fn(&K) -> V)
where
    K: Watchable,
    V: Send + Sync + 'static,
{
    let (queue, configs) = (context.queue.clone(), cache.clone());
    watch
        .labels(&format!("{INSTALLATION}={}", context.installation))
        .project(move |object| Some(view(&object)))
        .into_cache(cache)
        .on_change(move |change| {
            for view in change.new.iter().chain(&change.old) {
                configs
                    .groups_of(view)
                    .into_iter()
                    .for_each(|config| queue.add(config));
            }
        })
        .spawn(&context.cluster);
}

/// Starts the watch of the management cluster. What it shows leads to the clusters that are served.
pub fn of_management(cluster: &Cluster, shared: &Shared, served: &Arc<Served<Context>>) {
    let served = served.clone();
    Watch::of_clusters(
        &cluster.management,
        &cluster.installation,
        "operatingsystemconfigs",
    )
    .large()
    .project(|config: OperatingSystemConfig| Some(ConfigView::of(&config)))
    .unreadable(|config| Some(ConfigView::unreadable(config)))
    .into_cache(&shared.configs)
    .on_change(move |change| {
        let Some((context, name)) = served.of(&change.key) else {
            return;
        };
        if let Some(before) = &change.old {
            context.end_unused_sources(before);
        }
        if change.new.is_some() || change.old.is_some() {
            context.queue.add(name.to_owned());
        }
    })
    .spawn(cluster);
}

/// Once the namespace exists again, everything in it is restored at once.
fn namespace(context: &Context) {
    let (cluster, waker) = (&context.cluster, context.clone());
    Watch::all(&cluster.worker, "namespaces")
        .named(CLOUD_INIT_SETTINGS)
        .project(|_: Namespace| Some(()))
        .on_change(move |_| waker.wake(|_| true))
        .spawn(cluster);
}

#[cfg(test)]
mod tests {
    use osm_api::settings::MOST_MACHINE_DEPLOYMENTS;
    use osm_runtime::watch::MAX_OBJECTS;

    use super::*;
    use crate::io::caches::CROWDED;
    use crate::plan::provisioning_secret::MAX_DOCUMENTS_WHERE_CROWDED;

    #[test]
    fn the_watches_have_room_for_as_many_pools_as_the_settings_allow() {
        let pools = MOST_MACHINE_DEPLOYMENTS as usize;
        // A bootstrap Secret and a document each.
        assert!(2 * pools < CROWDED);
        // A bootstrap Secret, a kubeconfig Secret or the script of an edge pool, the documents that a pool
        // may have where Secrets are many, and one for a new revision.
        let secrets = 1 + 1 + MAX_DOCUMENTS_WHERE_CROWDED + 1;
        assert!(secrets * pools < MAX_SECRETS);
        // Configs, ServiceAccounts, Roles and RoleBindings.
        assert!(pools < MAX_OBJECTS);
    }
}
