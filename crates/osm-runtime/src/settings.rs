//! The settings document.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use osm_api::Settings;
use osm_api::names::SETTINGS_KEY;
use osm_api::settings::SettingsError;
use serde_json::{Map, Value};
use tokio::sync::watch;

#[derive(Clone, Debug, PartialEq)]
pub struct Current {
    pub settings: Settings,
    pub digest: String,
    /// The place of a newer document that is refused, and every mistake in it. It has no timestamp, so that
    /// all replicas report the same.
    pub refused: Option<String>,
}

/// The settings in force: `None` until a valid document has been seen.
pub type Receiver = watch::Receiver<Option<Arc<Current>>>;

/// Those of a cluster of a fleet: the release's, with `spec.settings` of its WorkerCluster merged in.
///
/// # Errors
/// The place of the mistakes and all of them.
pub fn of_cluster(
    release: &Arc<Current>,
    namespace: &str,
    patch: Option<&Map<String, Value>>,
) -> Result<Arc<Current>, String> {
    let Some(patch) = patch.filter(|patch| !patch.is_empty()) else {
        return Ok(release.clone());
    };
    let settings = release.settings.of_cluster(namespace, patch);
    let settings = settings.map_err(|mistakes| mistakes.to_string())?;
    let digest = settings.digest().map_err(|error| error.to_string())?;
    Ok(Arc::new(Current {
        settings,
        digest,
        refused: release.refused.clone(),
    }))
}

/// Of a service that reads no settings.
pub fn none() -> Receiver {
    watch::channel(None).1
}

/// The settings document of a ConfigMap; `None`: it has no such document.
pub(crate) type Document = Option<String>;

pub(crate) fn document(map: ConfigMap) -> Document {
    map.data?.remove(SETTINGS_KEY)
}

/// Reads the document of a ConfigMap; `None`: there is no ConfigMap.
pub(crate) fn read(document: Option<&Document>) -> Result<Current, SettingsError> {
    let mistake = |text: String| SettingsError(vec![text]);
    let document = document.ok_or_else(|| mistake("the ConfigMap is gone: create it again".to_owned()))?;
    let text = document.as_ref().ok_or_else(|| {
        mistake(format!(
            "the ConfigMap has no key {SETTINGS_KEY} in its data; add it. An empty text means the defaults"
        ))
    })?;
    let settings = Settings::parse(text)?;
    let digest = settings.digest().map_err(|error| mistake(error.to_string()))?;
    Ok(Current {
        settings,
        digest,
        refused: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(map: serde_json::Value) -> Result<Current, String> {
        let map = serde_json::from_value(map).unwrap();
        read(Some(&document(map))).map_err(|mistakes| mistakes.0.join("; "))
    }

    #[test]
    fn a_config_map_without_the_key_is_refused() {
        let empty = of(json!({"data": {"settings.yaml": ""}})).unwrap();
        assert_eq!(empty.settings, Settings::default());
        for map in [
            json!({}),
            json!({"data": {"settings.yml": "", "a": ""}}),
            json!({"binaryData": {"settings.yaml": ""}}),
        ] {
            let refused = of(map).unwrap_err();
            assert!(
                refused.contains("no key settings.yaml in its data; add it"),
                "{refused}"
            );
        }
        assert!(read(None).unwrap_err().0[0].contains("is gone"));
    }
}
