//! Flags about registries and their mirrors. Every form of a registry or of a mirror is read here, whichever
//! flag has it.

use std::collections::BTreeMap;

use osm_api::Settings;
use serde_json::{Value, json};

use super::command_line::with_scheme;
use super::mapped::Mapped;
use crate::output::merge;

/// The settings' name of all registries that are not listed.
const DEFAULT_HOST: &str = "_default";

const INSECURE: &str = "node-insecure-registries";

/// What flags say about registries, by host. Several flags can be about one registry, and their order has no
/// meaning, so all of them are read before the settings are written.
pub(super) type Registries = BTreeMap<String, Registry>;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Registry {
    mirrors: Vec<Mirror>,
    /// Its own URL, if nodes do not verify its certificate.
    insecure: Option<String>,
    /// The Secret with its credentials, as settings name it.
    credentials: Option<Value>,
}

#[derive(Clone, Debug, PartialEq)]
struct Mirror {
    url: String,
    override_path: bool,
}

impl Mapped {
    /// Adds a mirror.
    pub(super) fn mirror(&mut self, flag: &str, registry: &str, mirror: &str) {
        let host = host(registry);
        match Mirror::parse(mirror).filter(|mirror| is_valid(host, &mirror.url)) {
            Some(mirror) => self.registry(host).mirrors.push(mirror),
            None => self.malformed(
                flag,
                "mirrors of the form [http(s)://]HOST[:PORT][/PATH], and registries of the form HOST[:PORT]",
            ),
        }
    }

    /// Adds a registry whose certificate nodes do not verify.
    pub(super) fn insecure(&mut self, registry: &str) {
        let (host, url) = (host(registry), with_scheme("https", registry));
        let scheme = url.split_once("://").map_or("https", |(scheme, _)| scheme);
        let own = match host {
            "docker.io" => format!("{scheme}://registry-1.docker.io"),
            host => format!("{scheme}://{host}"),
        };
        if host == DEFAULT_HOST || is_valid(host, &own) {
            self.registry(host).insecure.get_or_insert(own);
        } else {
            self.malformed(INSECURE, "registries of the form HOST[:PORT]");
        }
    }

    /// Sets the Secret with the credentials of a registry.
    pub(super) fn credentials_of(&mut self, registry: &str, secret: Value) {
        self.registry(host(registry)).credentials = Some(secret);
    }

    fn registry(&mut self, host: &str) -> &mut Registry {
        self.registries.entry(host.to_owned()).or_default()
    }

    /// Writes the registries of all flags into the settings.
    pub(super) fn set_registries(&mut self) {
        let registries = std::mem::take(&mut self.registries);
        let default = registries.get(DEFAULT_HOST);
        if default.is_some_and(|default| default.mirrors.is_empty() && default.insecure.is_some()) {
            self.by_hand(
                INSECURE,
                "it lists *, which can't be a mirror of itself; list each registry in containerd.registries of a settings document, with \
                 itself as a mirror that has skipVerify",
            );
        }
        let documents: Vec<Value> = registries
            .iter()
            .map(|(host, registry)| document(host, registry, &registries))
            .collect();
        if !documents.is_empty() {
            self.set("/containerd/registries", json!(documents));
        }
    }
}

/// A registry in the settings.
fn document(host: &str, registry: &Registry, all: &Registries) -> Value {
    let mut document = json!({"host": host});
    let mirrors = mirrors(host, registry, all);
    if !mirrors.is_empty() {
        merge(&mut document, &json!({"mirrors": mirrors}));
    }
    if let Some(secret) = &registry.credentials {
        merge(&mut document, &json!({"credentials": secret}));
    }
    document
}

/// The mirrors of a registry. Nodes verify neither those of an insecure registry nor those on the host of
/// one. An insecure registry is its own mirror, after all others.
fn mirrors(name: &str, registry: &Registry, all: &Registries) -> Vec<Value> {
    let own = registry.insecure.iter().filter(|_| name != DEFAULT_HOST);
    let own = own.map(|url| Mirror {
        url: url.clone(),
        override_path: false,
    });
    let mut mirrors: Vec<Mirror> = Vec::new();
    for mirror in registry.mirrors.iter().cloned().chain(own) {
        // containerd reads no hosts.toml that has a URL twice.
        match mirrors.iter_mut().find(|known| known.url == mirror.url) {
            Some(known) => known.override_path |= mirror.override_path,
            None => mirrors.push(mirror),
        }
    }
    let document = |mirror: &Mirror| {
        let on_insecure_host = || {
            let known = all.get(host(&mirror.url));
            known.is_some_and(|known| known.insecure.is_some())
        };
        let mut document = json!({"url": mirror.url});
        if registry.insecure.is_some() || on_insecure_host() {
            merge(&mut document, &json!({"skipVerify": true}));
        }
        if mirror.override_path {
            merge(&mut document, &json!({"overridePath": true}));
        }
        document
    };
    mirrors.iter().map(document).collect()
}

impl Mirror {
    /// Without a scheme, it is https, as in containerd. `None`: it has a query of another meaning.
    fn parse(text: &str) -> Option<Self> {
        let text = with_scheme("https", text);
        let (url, query) = text.split_once('?').unwrap_or((&text, ""));
        let mut override_path = false;
        for part in query.split('&').filter(|part| !part.is_empty()) {
            // How the upstream OSM marks that the path of a mirror is the root of the API.
            match part.replace("%3D", "=").replace("%3d", "=").as_str() {
                "kubermatic=override_path=true" => override_path = true,
                "kubermatic=override_path=false" => {}
                _ => return None,
            }
        }
        let url = url.to_owned();
        Some(Self { url, override_path })
    }
}

/// The host of a registry or URL, with its port. The scheme and the path of a registry never had an effect.
fn host(text: &str) -> &str {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    match rest.split('/').next().unwrap_or_default().trim() {
        "*" => DEFAULT_HOST,
        "index.docker.io" | "registry-1.docker.io" => "docker.io",
        host => host,
    }
}

/// Whether the settings take a registry with this mirror.
fn is_valid(host: &str, url: &str) -> bool {
    let registry = json!({"host": host, "mirrors": [{"url": url}]});
    Settings::from_document(json!({"containerd": {"registries": [registry]}})).is_ok()
}

/// The list of `-node-registry-mirrors`. An entry that names no registry is a mirror of docker.io.
pub(super) fn registry_mirrors(mapped: &mut Mapped, text: &str) {
    let is_registry = |name: &str| {
        let is_part_of_host = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
        !name.is_empty() && name.chars().all(is_part_of_host)
    };
    for part in super::command_line::listed(text) {
        let named = part.split_once('=').filter(|(registry, _)| is_registry(registry));
        let (registry, mirror) = named.unwrap_or(("docker.io", part));
        mapped.mirror("node-registry-mirrors", registry, mirror);
    }
}
