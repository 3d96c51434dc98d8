//! Settings in which a pool differs from the installation's: from its annotation, and from the ConfigMap that this names.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use osm_api::names::{SETTINGS, SETTINGS_KEY};
use osm_api::pool_settings::PoolSettings;
use osm_api::{MachineDeployment, digest, pool};
use osm_runtime::cache::{Cache, Change};
use osm_runtime::request::failed;
use osm_runtime::settings::Current;
use osm_runtime::{RequestError, watch};

use crate::gather::SettingsLookup;
use crate::state::{State, lock};

/// ConfigMaps that are followed, each by a watch of its own: `namespace/name` → its document.
pub type Followed = Mutex<HashMap<String, Arc<Cache<Option<String>>>>>;

/// The settings for a pool; a request is made only for a ConfigMap that its watch has not shown yet.
///
/// # Errors
/// That request, if it failed.
pub async fn lookup(
    state: &State,
    owner: &MachineDeployment,
    installation: Arc<Current>,
) -> Result<SettingsLookup, RequestError> {
    let Some(text) = pool::annotation(owner, SETTINGS) else {
        return Ok(SettingsLookup::Found(installation));
    };
    let refused = |reason, message: String| Ok(SettingsLookup::Refused { reason, message });
    let settings = match PoolSettings::parse(text) {
        Ok(settings) => settings,
        Err(error) => return refused("PoolSettingsInvalid", error.to_string()),
    };
    let mut document = None;
    if let Some(name) = &settings.config_map {
        let namespace = owner.namespace().unwrap_or_default();
        if !state.context.installation.pool_settings_namespaces.contains(&namespace) {
            let message = format!(
                "annotation {SETTINGS}: ConfigMaps are not read in namespace {namespace}: add it to \
                 --pool-settings-namespaces of osc-controller, with its right there, or write the settings into the annotation"
            );
            return refused("PoolSettingsMissing", message);
        }
        document = match config_map(state, &namespace, name).await? {
            Some(Some(document)) => Some(document),
            found => {
                let problem = if found.is_some() {
                    format!("has no key {SETTINGS_KEY}: put the document there")
                } else {
                    "is missing: create it, or name another".to_owned()
                };
                let message = format!("annotation {SETTINGS}: ConfigMap {namespace}/{name} {problem}");
                return refused("PoolSettingsMissing", message);
            }
        };
    }
    match settings.merge(&installation.settings, document.as_deref()) {
        Ok(settings) => {
            // Settings always have a JSON form.
            let digest = digest::of(&settings).unwrap_or_default();
            Ok(SettingsLookup::Found(Arc::new(Current { settings, digest, refused: None })))
        }
        Err(error) => refused("PoolSettingsInvalid", error.to_string()),
    }
}

/// The document of a ConfigMap: from its watch, else from the server, which also tells that there is none.
async fn config_map(
    state: &State,
    namespace: &str,
    name: &str,
) -> Result<Option<Option<String>>, RequestError> {
    let key = format!("{namespace}/{name}");
    let followed = lock(&state.pool_settings).get(&key).cloned();
    match followed {
        Some(cache) => {
            if let Some(document) = cache.get(&key) {
                return Ok(Some((*document).clone()));
            }
        }
        None => follow(state, namespace, name),
    }
    let api: Api<ConfigMap> = Api::namespaced(state.context.worker.client.clone(), namespace);
    let found = api.get_opt(name).await.map_err(failed("reading the ConfigMap of a pool's settings"))?;
    Ok(found.map(document))
}

fn document(map: ConfigMap) -> Option<String> {
    map.data.and_then(|mut data| data.remove(SETTINGS_KEY))
}

fn follow(state: &State, namespace: &str, name: &str) {
    let cache = Arc::<Cache<Option<String>>>::default();
    match lock(&state.pool_settings).entry(format!("{namespace}/{name}")) {
        // Another worker was faster.
        Entry::Occupied(_) => return,
        Entry::Vacant(place) => place.insert(cache.clone()),
    };
    let named = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let (waker, of) = (state.clone(), namespace.to_owned());
    let wake = move |_: Change<Option<String>>| {
        waker.wake(|md| md.namespace().as_ref() == Some(&of) && pool::annotation(md, SETTINGS).is_some());
    };
    let api: Api<DeserializeGuard<ConfigMap>> =
        Api::namespaced(state.context.worker.client.clone(), namespace);
    watch::spawn_unawaited(
        &state.context,
        state.context.worker.watched("pool-settings"),
        api,
        named,
        cache,
        |map| Some(document(map)),
        wake,
        None,
    );
}
