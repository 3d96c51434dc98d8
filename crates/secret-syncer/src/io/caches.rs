//! Caches what the watches of one worker cluster have shown, and our own writes.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Resource;
use osm_api::names::CLOUD_INIT_SETTINGS;
use osm_runtime::cache::{Cache, Version};
use osm_runtime::followed::{self, Followed};
use osm_runtime::watch;

use crate::model::existing::{ExistingObjects, Group};
use crate::model::source::{SourceData, kind_of};
use crate::model::view::{self, BindingView, ConfigView, Meta, RoleView, SecretView};

/// With this many Secrets, about half of those that the watch keeps, a pool gets a further document only if
/// it has few.
pub const CROWDED: usize = 40_000;

pub struct Caches {
    /// Secrets of this installation. This and the next three are grouped by the config that they were made
    /// for.
    pub secrets: Arc<Cache<SecretView>>,
    /// ServiceAccounts of this installation.
    pub accounts: Arc<Cache<Meta>>,
    pub roles: Arc<Cache<RoleView>>,
    pub bindings: Arc<Cache<BindingView>>,
    /// Secrets and ConfigMaps that documents take values from.
    pub sources: Followed<SourceData>,
}

/// A cache that is grouped by the config that the objects were made for. `meta`: of a view.
fn by_config<V>(meta: fn(&V) -> &Meta) -> Arc<Cache<V>>
where
    V: 'static,
{
    Arc::new(Cache::grouped(move |view| meta(view).config().map(str::to_owned)))
}

impl Default for Caches {
    fn default() -> Self {
        Self {
            secrets: by_config(|secret| &secret.meta),
            accounts: by_config(|account| account),
            roles: by_config(|role| &role.meta),
            bindings: by_config(|binding| &binding.meta),
            sources: Followed::new("sources", SourceData::is_small),
        }
    }
}

/// Whether documents of this config take values from the object with this [key](followed::key).
pub fn uses_source(config: &ConfigView, key: &str) -> bool {
    let late_bound = config.late_bound_values.iter();
    late_bound
        .filter_map(|late| Some((late.kind, late.source.as_ref()?)))
        .any(|(kind, source)| followed::key(kind_of(kind), &source.namespace, &source.name) == key)
}

/// Key in the caches of an object in `cloud-init-settings`.
pub fn key(name: &str) -> String {
    format!("{CLOUD_INIT_SETTINGS}/{name}")
}

impl Caches {
    /// Names of the configs that objects were made for.
    pub fn config_names(&self) -> BTreeSet<String> {
        let groups = [
            self.secrets.groups(),
            self.accounts.groups(),
            self.roles.groups(),
            self.bindings.groups(),
        ];
        groups.into_iter().flatten().collect()
    }

    /// Whether there are so many Secrets that every pool has to do with few documents.
    pub fn are_crowded(&self) -> bool {
        self.secrets.len() >= CROWDED
    }

    /// What exists for the pool of this config, and for other pools of the same config name.
    pub fn existing(&self, config: &str, pool: &str) -> (ExistingObjects, Vec<(String, ExistingObjects)>) {
        let group = Group {
            secrets: self.secrets.group(config),
            accounts: self.accounts.group(config),
            roles: self.roles.group(config),
            bindings: self.bindings.group(config),
        };
        group.by_pool(config, pool)
    }

    // The rest records what the API server returned for our writes. Each writer requeues the config when it
    // is done, so the changes are not needed.

    pub fn wrote_secret(&self, secret: &Secret) -> SecretView {
        wrote(&self.secrets, secret, SecretView::of(secret))
    }

    pub fn wrote_account(&self, account: &ServiceAccount) {
        wrote(&self.accounts, account, view::account(account));
    }

    pub fn wrote_role(&self, role: &Role) -> RoleView {
        wrote(&self.roles, role, RoleView::of(role))
    }

    pub fn wrote_binding(&self, binding: &RoleBinding) -> BindingView {
        wrote(&self.bindings, binding, BindingView::of(binding))
    }
}

fn wrote<V: Clone>(cache: &Cache<V>, object: &impl Resource, view: V) -> V {
    let (key, version) = (watch::key(object.meta()), Version::of(object.meta()));
    let _ = cache.wrote(&key, version, view.clone());
    view
}

#[cfg(test)]
mod tests {
    use osm_api::names;
    use serde_json::json;

    use super::*;
    use crate::model::view::{PURPOSE_BOOTSTRAP, PURPOSE_EDGE_SCRIPT, PURPOSE_IDENTITY};

    const CONFIG: &str = "pool-kube-system-config";

    fn add(caches: &Caches, role: &str, pool: &str, name: &str, resource_version: u32) {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {
            "namespace": CLOUD_INIT_SETTINGS,
            "name": name,
            "uid": format!("uid of {name}"),
            "resourceVersion": resource_version.to_string(),
            "labels": {names::ROLE: role, names::POOL: pool},
            "annotations": {names::CONFIG: CONFIG},
        }});
        caches.wrote_secret(&serde_json::from_value(secret).unwrap());
    }

    fn known(objects: &ExistingObjects) -> [Option<&str>; 2] {
        [&objects.bootstrap, &objects.edge_script]
            .map(|secret| secret.as_ref().map(|secret| secret.meta.name.as_str()))
    }

    #[test]
    fn a_copy_of_an_account_is_not_the_account_of_the_pool() {
        let (caches, account) = (Caches::default(), names::pool_account("p"));
        for name in [account.clone(), format!("{account}-copy")] {
            let copied = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": CLOUD_INIT_SETTINGS,
                "name": name, "uid": name, "resourceVersion": "1",
                "labels": {names::ROLE: PURPOSE_IDENTITY, names::POOL: "p"}, "annotations": {names::CONFIG: CONFIG}}});
            caches.wrote_account(&serde_json::from_value(copied).unwrap());
        }
        let (own, _) = caches.existing(CONFIG, "p");
        assert_eq!(own.account.unwrap().name, account);
    }

    #[test]
    fn a_copy_under_another_name_is_not_the_secret_that_other_programs_read() {
        let (bootstrap, script) = (
            "pool-kube-system-bootstrap-config",
            "edge-provider-script-pool-kube-system",
        );
        // Groups are sorted by name: one copy comes before each Secret, and one after it.
        let copies = [
            (PURPOSE_BOOTSTRAP, "a-copy-bootstrap-config"),
            (PURPOSE_BOOTSTRAP, "z-copy-bootstrap-config"),
            (PURPOSE_EDGE_SCRIPT, "edge-provider-script-a-copy"),
            (PURPOSE_EDGE_SCRIPT, "edge-provider-script-z-copy"),
        ];
        let caches = Caches::default();
        for (role, name) in copies {
            add(&caches, role, "p", name, 1);
        }
        for pool in ["p", "successor"] {
            let (own, others) = caches.existing(CONFIG, pool);
            assert!(
                own.is_nothing() && others.is_empty(),
                "{pool}: {own:?} {others:?}"
            );
        }
        add(&caches, PURPOSE_BOOTSTRAP, "p", bootstrap, 2);
        add(&caches, PURPOSE_EDGE_SCRIPT, "p", script, 2);
        let (own, others) = caches.existing(CONFIG, "p");
        assert_eq!((known(&own), others.len()), ([Some(bootstrap), Some(script)], 0));
        let (own, _) = caches.existing(CONFIG, "successor");
        assert_eq!(
            known(&own),
            [Some(bootstrap), Some(script)],
            "a successor takes them over"
        );
    }
}
