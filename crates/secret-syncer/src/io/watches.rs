//! Starts the watches, and maps each change to the configs that it requeues.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use osm_api::config::OperatingSystemConfig;
use osm_api::names::{CLOUD_INIT_SETTINGS, INSTALLATION};
use osm_runtime::queue::Queue;
use osm_runtime::watch::{Watch, Watchable};
use osm_runtime::{Cluster, settings_watch};

use crate::io::context::Context;
use crate::model::view::{self, BindingView, ConfigView, Meta, RoleView, SecretView};

/// Secrets of the installation that are kept. The largest number of pools fits, because each gets [few
/// documents](crate::plan::provisioning_secret::has_room) once half of the room is taken.
const MAX_SECRETS: usize = 85_000;

/// Starts all watches but those of sources, each of which starts with the first config that needs it.
pub fn start(context: &Context) {
    configs(context);
    secrets(context);
    accounts(context);
    roles(context);
    bindings(context);
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

/// Selects what this installation made.
fn ours(context: &Context) -> String {
    format!("{INSTALLATION}={}", context.installation)
}

/// Requeues the configs that these objects were made for, which may have to be repaired.
fn wake_owners<'a>(queue: &Queue<String>, objects: impl Iterator<Item = &'a Meta>) {
    for config in objects.filter_map(Meta::config) {
        queue.add(config.to_owned());
    }
}

fn configs(context: &Context) {
    let (cluster, waker) = (&context.cluster, context.clone());
    let namespace = &cluster.installation.namespace;
    Watch::namespaced(&cluster.management, namespace, "operatingsystemconfigs")
        .large()
        .project(|config: OperatingSystemConfig| Some(ConfigView::of(&config)))
        .unreadable(|config| Some(ConfigView::unreadable(config)))
        .into_cache(&context.caches.configs)
        .on_change(move |change| {
            if let Some(before) = &change.old {
                waker.caches.end_unused_sources(before);
            }
            for config in change.new.iter().chain(&change.old).take(1) {
                waker.queue.add(config.name.clone());
            }
        })
        .spawn(cluster);
}

fn secrets(context: &Context) {
    let (cluster, queue) = (&context.cluster, context.queue.clone());
    in_namespace(cluster, "secrets")
        .labels(&ours(context))
        .at_most(MAX_SECRETS)
        .large()
        .project(|secret: Secret| Some(SecretView::of(&secret)))
        .into_cache(&context.caches.secrets)
        .on_change(move |change| {
            let secrets = change.new.iter().chain(&change.old);
            wake_owners(&queue, secrets.map(|secret| &secret.meta));
        })
        .spawn(cluster);
}

fn accounts(context: &Context) {
    let (cluster, queue) = (&context.cluster, context.queue.clone());
    in_namespace(cluster, "serviceaccounts")
        .labels(&ours(context))
        .project(|account: ServiceAccount| Some(view::account(&account)))
        .into_cache(&context.caches.accounts)
        .on_change(move |change| {
            let accounts = change.new.iter().chain(&change.old);
            wake_owners(&queue, accounts.map(|account| &**account));
        })
        .spawn(cluster);
}

fn roles(context: &Context) {
    let (cluster, queue) = (&context.cluster, context.queue.clone());
    in_namespace(cluster, "roles")
        .labels(&ours(context))
        .project(|role: Role| Some(RoleView::of(&role)))
        .into_cache(&context.caches.roles)
        .on_change(move |change| {
            let roles = change.new.iter().chain(&change.old);
            wake_owners(&queue, roles.map(|role| &role.meta));
        })
        .spawn(cluster);
}

fn bindings(context: &Context) {
    let (cluster, queue) = (&context.cluster, context.queue.clone());
    in_namespace(cluster, "rolebindings")
        .labels(&ours(context))
        .project(|binding: RoleBinding| Some(BindingView::of(&binding)))
        .into_cache(&context.caches.bindings)
        .on_change(move |change| {
            let bindings = change.new.iter().chain(&change.old);
            wake_owners(&queue, bindings.map(|binding| &binding.meta));
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
        // A bootstrap Secret, a kubeconfig Secret or the script of an edge pool, the documents that a pool may have where Secrets are many,
        // and one for a new revision.
        let secrets = 1 + 1 + MAX_DOCUMENTS_WHERE_CROWDED + 1;
        assert!(secrets * pools < MAX_SECRETS);
        // Configs, ServiceAccounts, Roles and RoleBindings.
        assert!(pools < MAX_OBJECTS);
    }
}
