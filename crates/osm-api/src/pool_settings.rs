//! Settings in which one pool differs from the installation's, as its MachineDeployment asks for them.

use serde_json::{Map, Value};

use crate::names::{self, SETTINGS, SETTINGS_KEY};
use crate::settings::{Settings, SettingsError};
use crate::settings_patch::{Fixed, PatchError};
use crate::strict;

/// Field that names a ConfigMap, whose document is applied first.
const FROM_CONFIG_MAP: &str = "fromConfigMap";

/// Fields that a pool must not change: they decide whom the installation trusts, what it installs, and how
/// much it takes on.
const OF_POOLS: Fixed = Fixed {
    fields: &["credentials", "defaultProfiles", "limits"],
    why: "is the same for all pools; set it in the settings of the installation",
};

/// The largest number of YAML nodes of one document of a pool, once its aliases are expanded. A document that
/// sets every field has fewer than 300.
pub const MAX_NODES: usize = 5000;

/// The annotation [`SETTINGS`] of a MachineDeployment.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolSettings {
    /// ConfigMap in the MachineDeployment's namespace whose key [`SETTINGS_KEY`] is applied first.
    pub config_map: Option<String>,
    document: Map<String, Value>,
}

impl PoolSettings {
    /// Reads the annotation's text: a partial settings document, with `fromConfigMap: NAME` where a ConfigMap
    /// holds one.
    ///
    /// # Errors
    /// A text that is not such a document.
    pub fn parse(text: &str) -> Result<Self, PatchError> {
        let failed = |mistakes| PatchError {
            place: format!("annotation {SETTINGS}"),
            mistakes,
        };
        let mut document = document(text).map_err(failed)?;
        let config_map = match document.remove(FROM_CONFIG_MAP) {
            None => None,
            Some(Value::String(name)) if names::is_dns_subdomain(&name) => Some(name),
            Some(_) => {
                return Err(failed(vec![format!(
                    "{FROM_CONFIG_MAP}: must be the name of a ConfigMap"
                )]));
            }
        };
        Ok(Self { config_map, document })
    }

    /// The installation's settings, with the ConfigMap's document merged in and then the annotation's, both
    /// as JSON merge patches (RFC 7386): maps are merged, lists replaced, null means the default.
    ///
    /// # Errors
    /// All mistakes of the first document that has some.
    pub fn merge(&self, installation: &Settings, config_map: Option<&str>) -> Result<Settings, PatchError> {
        let mut settings = installation.clone();
        if let (Some(name), Some(text)) = (&self.config_map, config_map) {
            let place = format!("ConfigMap {name}, key {SETTINGS_KEY}");
            settings = document(text)
                .and_then(|document| settings.patched(document, &OF_POOLS))
                .map_err(|mistakes| PatchError { place, mistakes })?;
        }
        let merged = settings.patched(self.document.clone(), &OF_POOLS);
        merged.map_err(|mistakes| PatchError {
            place: format!("annotation {SETTINGS}"),
            mistakes,
        })
    }
}

fn document(text: &str) -> Result<Map<String, Value>, Vec<String>> {
    let document = Settings::document_within(text, MAX_NODES).map_err(|SettingsError(mistakes)| mistakes)?;
    match document {
        Value::Object(document) => Ok(document),
        other => Err(vec![format!("{}: {}", strict::DOCUMENT, strict::no_map(&other))]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installation() -> Settings {
        let text = "proxy: {http: 'http://proxy:3128', noProxy: .svc}\nkubelet: {featureGates: {A: true}}\n\
                    containerd: {registries: [{host: docker.io}, {host: quay.io}]}\npauseImage: pause:1\n";
        Settings::parse(text).unwrap()
    }

    #[test]
    fn maps_are_merged_lists_replaced_and_null_is_the_default() {
        let pool = "proxy: {noProxy: null}\nkubelet: {featureGates: {B: false}}\n\
                    containerd: {registries: [{host: ghcr.io}]}\npauseImage: null\n";
        let settings = PoolSettings::parse(pool)
            .unwrap()
            .merge(&installation(), None)
            .unwrap();
        assert_eq!(settings.proxy.http.as_deref(), Some("http://proxy:3128"));
        assert_eq!(settings.proxy.no_proxy, None);
        assert_eq!(settings.kubelet.feature_gates.len(), 2);
        assert_eq!(settings.containerd.registries.len(), 1);
        assert_eq!(settings.pause_image, None);
        for nothing in ["", "{}", "# nothing\n"] {
            let settings = PoolSettings::parse(nothing)
                .unwrap()
                .merge(&installation(), None)
                .unwrap();
            assert_eq!(settings, installation(), "{nothing:?}");
        }
    }

    #[test]
    fn the_annotation_has_the_last_word() {
        let pool = PoolSettings::parse("fromConfigMap: ours\npauseImage: pause:3\n").unwrap();
        assert_eq!(pool.config_map.as_deref(), Some("ours"));
        let referenced = "pauseImage: pause:2\nproxy: {http: null}\n";
        let settings = pool.merge(&installation(), Some(referenced)).unwrap();
        assert_eq!(settings.pause_image.as_deref(), Some("pause:3"));
        assert_eq!(settings.proxy.http, None);
    }

    #[test]
    fn mistakes_say_where_and_repeat_no_value() {
        let of_annotation = |text: &str| {
            let merged = PoolSettings::parse(text).and_then(|pool| pool.merge(&installation(), None));
            merged.unwrap_err().to_string()
        };
        let number = "downloads.containerd.version: is a number; put it in quotes";
        let of_all = "credentials: is the same for all pools";
        for (text, part) in [
            ("[hunter2]", "the document: is a list, expected a map"),
            ("hunter2", "the document: is a string, expected a map"),
            ("fromConfigMap: 1234", "fromConfigMap: must be"),
            ("downloads: {containerd: {version: 2.1}}", number),
            ("proxy: {http: 'http://u:hunter2@p'}", "proxy.http: must be"),
            ("prxy: hunter2", "prxy: unknown field"),
            ("credentials: {tokenLifetimeHours: 1}", of_all),
            ("fromConfigMap: [hunter2]", "fromConfigMap: must be"),
            ("a: [hunter2", "not YAML"),
        ] {
            let message = of_annotation(text);
            let start = format!("annotation {SETTINGS}: ");
            assert!(message.starts_with(&start), "{message}");
            let is_good = message.contains(part) && !message.contains("hunter2");
            assert!(is_good, "{message}");
        }
        let many = "defaultProfiles: {}\nlimits: {machineDeployments: 9}\nprxy: 1\nproxy: {http: no-url}\n";
        let message = of_annotation(many);
        for part in [
            "defaultProfiles: is the same",
            "limits: is the same",
            "prxy: unknown field",
            "proxy.http: must be",
        ] {
            assert!(message.contains(part), "{message}");
        }
        let pool = PoolSettings::parse("fromConfigMap: ours").unwrap();
        let error = pool.merge(&installation(), Some("hostCABundle: hunter2\n"));
        let wanted = "ConfigMap ours, key settings.yaml: hostCABundle: must be one or more PEM certificates";
        assert_eq!(error.unwrap_err().to_string(), wanted);
    }

    #[test]
    fn a_document_that_grows_by_aliases_is_refused_before_it_is_decoded() {
        // 90 aliases of a list with 2,600 items: 8 KB of text, 240,000 nodes.
        let list = format!("list: &list [{}]\n", "1,".repeat(2600));
        let aliases: String = (0..90).map(|i| format!("a{i}: *list\n")).collect();
        let text = list + &aliases;
        let expected =
            "has more than 5000 keys, values, lists and maps, aliases expanded; shorten the document";
        let error = PoolSettings::parse(&text).unwrap_err().to_string();
        assert_eq!(error, format!("annotation {SETTINGS}: {expected}"));
        let pool = PoolSettings::parse("fromConfigMap: ours").unwrap();
        let error = pool.merge(&installation(), Some(&text)).unwrap_err().to_string();
        assert_eq!(error, format!("ConfigMap ours, key settings.yaml: {expected}"));
    }
}
