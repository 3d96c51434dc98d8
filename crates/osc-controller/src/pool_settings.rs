//! Settings in which a pool differs from the installation's. They come from an annotation, and from the ConfigMap that the
//! annotation names.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use osm_api::Reason;
use osm_api::names::{SETTINGS, SETTINGS_KEY};
use osm_api::pool_settings::{PoolSettings, PoolSettingsError};
use osm_runtime::Api;
use osm_runtime::cache::{Cache, Version};
use osm_runtime::request::failed;
use osm_runtime::settings::Current;
use osm_runtime::watch::Watch;
use osm_runtime::{RequestError, read};

use crate::context::Context;
use crate::view::{PoolView, SettingsDocument};

/// The settings of a pool.
#[derive(Clone)]
pub enum SettingsLookup {
    Missing,
    /// The pool asks for others than the installation's, and they can't be used.
    Refused(SettingsProblem),
    Found(Arc<Current>),
}

/// Why the settings that a pool asks for can't be used. No message repeats a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsProblem {
    #[error(transparent)]
    Invalid(#[from] PoolSettingsError),
    #[error(
        "annotation {annotation}: osc-controller does not read ConfigMaps in namespace {0}; add it to --pool-settings-namespaces of \
         osc-controller and grant access to it, or write the settings into the annotation",
        annotation = SETTINGS
    )]
    NamespaceNotRead(String),
    #[error("annotation {annotation}: ConfigMap {0} is missing; create it, or name another one", annotation = SETTINGS)]
    MapMissing(String),
    #[error(
        "annotation {annotation}: ConfigMap {0} has no key {key}; put the settings document there",
        annotation = SETTINGS,
        key = SETTINGS_KEY
    )]
    KeyMissing(String),
}

impl SettingsProblem {
    pub fn reason(&self) -> Reason {
        match self {
            Self::Invalid(_) => Reason::PoolSettingsInvalid,
            Self::NamespaceNotRead(_) | Self::MapMissing(_) | Self::KeyMissing(_) => {
                Reason::PoolSettingsMissing
            }
        }
    }
}

/// Looks up the settings for a pool. It sends a request only for a ConfigMap that its watch has not shown yet.
///
/// # Errors
/// That request, if it failed.
pub async fn lookup(
    context: &Context,
    owner: &PoolView,
    installation: Arc<Current>,
) -> Result<SettingsLookup, RequestError> {
    let Some(text) = &owner.settings else {
        return Ok(SettingsLookup::Found(installation));
    };
    let settings = match PoolSettings::parse(text) {
        Ok(settings) => settings,
        Err(error) => return Ok(SettingsLookup::Refused(error.into())),
    };
    let mut document = None;
    if let Some(name) = &settings.config_map {
        let namespace = &owner.pool_ref.namespace;
        if !context
            .cluster
            .installation
            .pool_settings_namespaces
            .contains(namespace)
        {
            return Ok(SettingsLookup::Refused(SettingsProblem::NamespaceNotRead(
                namespace.clone(),
            )));
        }
        let map = format!("{namespace}/{name}");
        document = match config_map(context, namespace, name).await? {
            Some(SettingsDocument::Text(document)) => Some(document),
            Some(SettingsDocument::Missing) => {
                return Ok(SettingsLookup::Refused(SettingsProblem::KeyMissing(map)));
            }
            None => return Ok(SettingsLookup::Refused(SettingsProblem::MapMissing(map))),
        };
    }
    Ok(
        match settings.merge(&installation.settings, document.as_deref()) {
            Ok(settings) => {
                // Settings always have a JSON form.
                let digest = settings.digest().unwrap_or_default();
                SettingsLookup::Found(Arc::new(Current {
                    settings,
                    digest,
                    refused: None,
                }))
            }
            Err(error) => SettingsLookup::Refused(error.into()),
        },
    )
}

/// The document of a ConfigMap; `None`: there is no ConfigMap.
async fn config_map(
    context: &Context,
    namespace: &str,
    name: &str,
) -> Result<Option<SettingsDocument>, RequestError> {
    // Before the read, so that the watch shows every change after it.
    let shown = watched(context, namespace);
    let key = format!("{namespace}/{name}");
    if let Some(document) = shown.get(&key) {
        return Ok(Some((*document).clone()));
    }
    let maps: Api<ConfigMap> = Api::namespaced(context.cluster.worker.client.clone(), namespace);
    let found = read::get(
        &maps,
        name,
        |map| (Version::of(&map.metadata), document(map)),
        |unreadable| (Version::of(&unreadable.metadata), SettingsDocument::Missing),
    );
    let found = found
        .await
        .map_err(failed("reading the ConfigMap of a pool's settings"))?;
    Ok(found.map(|(version, document)| {
        // This reconcile uses what it has read.
        let _ = shown.wrote(&key, version, document.clone());
        document
    }))
}

/// What the watch of a namespace's ConfigMaps shows. It keeps only those that a pool names. The namespaces are those of
/// `--pool-settings-namespaces`.
fn watched(context: &Context, namespace: &str) -> Arc<Cache<SettingsDocument>> {
    // Held until the watch is there, so that two workers do not start two.
    let mut all = context.caches.pool_settings.lock();
    if let Some(shown) = all.get(namespace) {
        return shown.clone();
    }
    let shown: Arc<Cache<SettingsDocument>> = Arc::default();
    all.insert(namespace.to_owned(), Arc::clone(&shown));
    let (namer, waker) = (context.clone(), context.clone());
    Watch::namespaced(&context.cluster.worker, namespace, "pool-settings")
        .project(move |map: ConfigMap| {
            let (namespace, name) = (map.namespace().unwrap_or_default(), map.name_any());
            let is_named = namer
                .caches
                .pools
                .any(|pool| pool.names_settings(&namespace, &name));
            is_named.then(|| document(map))
        })
        .into_cache(&shown)
        .on_change(move |change| {
            if let Some((namespace, name)) = change.key.split_once('/') {
                waker.wake(|pool| pool.names_settings(namespace, name));
            }
        })
        .unawaited()
        .spawn(&context.cluster);
    shown
}

/// A pool has changed, or is gone. Forgets the ConfigMap that it named if no other pool names it.
pub fn forget(context: &Context, before: &PoolView) {
    let namespace = &before.pool_ref.namespace;
    let Some(name) = &before.settings_map else { return };
    if !context
        .caches
        .pools
        .any(|pool| pool.names_settings(namespace, name))
    {
        let all = context.caches.pool_settings.lock();
        if let Some(shown) = all.get(namespace) {
            shown.forget(&format!("{namespace}/{name}"));
        }
    }
}

fn document(map: ConfigMap) -> SettingsDocument {
    let text = map.data.and_then(|mut data| data.remove(SETTINGS_KEY));
    text.map_or(SettingsDocument::Missing, SettingsDocument::Text)
}
