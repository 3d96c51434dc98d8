//! Flags about registries and their mirrors.

use serde_json::{Map, Value, json};

use super::command_line::listed;
use super::mapped::{Mapped, merge};

/// How a mirror's URL marks that its path is the API root.
const OVERRIDE_PATH: &str = "?kubermatic=override_path%3Dtrue";

impl Mapped {
    /// The registry of a host, which is added if it is not listed.
    fn registry(&mut self, registry: &str) -> Option<&mut Map<String, Value>> {
        // The path of a registry never had an effect.
        let host = match registry.split('/').next().unwrap_or_default() {
            "*" => "_default",
            host => host,
        };
        if self.settings.pointer("/containerd/registries").is_none() {
            self.set("/containerd/registries", json!([]));
        }
        let registries = self
            .settings
            .pointer_mut("/containerd/registries")?
            .as_array_mut()?;
        let at = match registries
            .iter()
            .position(|known| known.get("host") == Some(&json!(host)))
        {
            Some(at) => at,
            None => {
                registries.push(json!({"host": host, "mirrors": []}));
                registries.len() - 1
            }
        };
        registries.get_mut(at)?.as_object_mut()
    }

    pub(super) fn mirror(&mut self, registry: &str, url: &str) {
        let (url, is_root) = match url.strip_suffix(OVERRIDE_PATH) {
            Some(url) => (url, true),
            None => (url, false),
        };
        let mut mirror = json!({"url": url});
        if is_root {
            merge(&mut mirror, &json!({"overridePath": true}));
        }
        self.add_mirror(registry, mirror);
    }

    fn add_mirror(&mut self, registry: &str, mirror: Value) {
        let registry = self.registry(registry);
        if let Some(Value::Array(mirrors)) = registry.and_then(|registry| registry.get_mut("mirrors")) {
            mirrors.push(mirror);
        }
    }

    /// A registry whose certificate is not verified is its own mirror.
    pub(super) fn insecure(&mut self, host: &str) {
        let name = host.split('/').next().unwrap_or_default();
        self.add_mirror(
            host,
            json!({"url": format!("https://{name}"), "skipVerify": true}),
        );
    }

    /// Mirrors on hosts that are insecure registries, too, are not verified either. The order of the flags has no meaning, so a registry is its
    /// own mirror only after the others.
    pub(super) fn insecure_mirrors(&mut self) {
        let Some(Value::Array(registries)) = self.settings.pointer_mut("/containerd/registries") else {
            return;
        };
        let is_insecure = |mirror: &Value| mirror.get("skipVerify") == Some(&json!(true));
        let mirrors = |registry: &Value| registry.get("mirrors").and_then(Value::as_array).cloned();
        let insecure: Vec<String> = registries
            .iter()
            .flat_map(|registry| mirrors(registry).unwrap_or_default())
            .filter(is_insecure)
            .filter_map(|mirror| host_of(mirror.get("url")?.as_str()?))
            .collect();
        for registry in registries {
            let Some(Value::Array(mirrors)) = registry.get_mut("mirrors") else {
                continue;
            };
            mirrors.sort_by_key(is_insecure);
            for mirror in mirrors {
                let host = mirror.get("url").and_then(Value::as_str).and_then(host_of);
                if host.is_some_and(|host| insecure.contains(&host)) {
                    merge(mirror, &json!({"skipVerify": true}));
                }
            }
        }
    }
}

/// The list of `-node-registry-mirrors`.
pub(super) fn registry_mirrors(mapped: &mut Mapped, text: &str) {
    for part in listed(text) {
        let is_host = |host: &str| {
            !host.is_empty()
                && host
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || ".-".contains(c))
        };
        let (registry, url) = match part.split_once('=') {
            Some((registry, url)) if is_host(registry) => (registry, url),
            _ => ("docker.io", part),
        };
        match url.starts_with("http") {
            true => mapped.mirror(registry, url),
            false => mapped.mirror(registry, &format!("https://{url}")),
        }
    }
}

fn host_of(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    rest.split('/').next().map(str::to_owned)
}
