//! Settings in which a pool differs from the installation's. They come from an annotation, and from the
//! ConfigMap that the annotation names.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use osm_api::Reason;
use osm_api::names::{SETTINGS, SETTINGS_KEY};
use osm_api::pool_settings::PoolSettings;
use osm_api::settings_patch::PatchError;
use osm_runtime::request::failed;
use osm_runtime::settings::Current;
use osm_runtime::{Api, Error, read};

use crate::context::Context;
use crate::view::PoolView;

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
    Invalid(#[from] PatchError),
    #[error(
        "annotation {annotation}: osc-controller does not read ConfigMaps in namespace {0}; add it to --pool-settings-namespaces of \
         osc-controller and grant access to it, or write the settings into the annotation",
        annotation = SETTINGS
    )]
    NamespaceNotRead(String),
    #[error(
        "annotation {annotation}: ConfigMap {0} with a key {key} is missing; create it, or name another one",
        annotation = SETTINGS,
        key = SETTINGS_KEY
    )]
    MapMissing(String),
}

impl SettingsProblem {
    pub fn reason(&self) -> Reason {
        match self {
            Self::Invalid(_) => Reason::PoolSettingsInvalid,
            Self::NamespaceNotRead(_) | Self::MapMissing(_) => Reason::PoolSettingsNotFound,
        }
    }
}

/// Looks up the settings for a pool. It sends a request only for a ConfigMap.
///
/// # Errors
/// That request, if it failed.
pub async fn lookup(
    context: &Context,
    owner: &PoolView,
    installation: Arc<Current>,
) -> Result<SettingsLookup, Error> {
    let Some(text) = &owner.settings else {
        return Ok(SettingsLookup::Found(installation));
    };
    let refused = |problem| Ok(SettingsLookup::Refused(problem));
    let settings = match PoolSettings::parse(text) {
        Ok(settings) => settings,
        Err(error) => return refused(error.into()),
    };
    let mut document = None;
    if let Some(name) = &settings.config_map {
        let namespace = &owner.pool_ref.namespace;
        if !context.caches.pool_settings.contains_key(namespace) {
            return refused(SettingsProblem::NamespaceNotRead(namespace.clone()));
        }
        document = of_map(context, namespace, name).await?;
        if document.is_none() {
            return refused(SettingsProblem::MapMissing(format!("{namespace}/{name}")));
        }
    }
    let settings = match settings.merge(&installation.settings, document.as_deref()) {
        Ok(settings) => settings,
        Err(error) => return refused(error.into()),
    };
    Ok(SettingsLookup::Found(Arc::new(Current {
        // Settings always have a JSON form.
        digest: settings.digest().unwrap_or_default(),
        settings,
        refused: installation.refused.clone(),
    })))
}

/// The document of a ConfigMap; `None`: there is none. It is read each time, so that none is kept. Its watch
/// requeues the pools that name it.
async fn of_map(context: &Context, namespace: &str, name: &str) -> Result<Option<String>, Error> {
    let maps: Api<ConfigMap> = Api::namespaced(context.cluster.worker.client.clone(), namespace);
    let found = read::get(&maps, name, document, |_| None);
    let found = found
        .await
        .map_err(failed("reading the ConfigMap of a pool's settings"))?;
    Ok(found.flatten())
}

/// The settings document of a ConfigMap, if it has one.
pub fn document(map: ConfigMap) -> Option<String> {
    map.data?.remove(SETTINGS_KEY)
}
