//! Values that stand in Secrets and ConfigMaps of other people: registry credentials, and what a MachineDeployment
//! refers to. Read only from where the installation allows it, and watched from then on.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use osm_api::config::{LateBound, LateBoundKind, LateBoundSource};
use osm_api::settings::Credentials;
use osm_runtime::cache::{Cache, Change};
use osm_runtime::{status, watch};
use serde::Deserialize;

use crate::state::{State, lock};

/// Why a value can't be had. No message repeats a value.
#[derive(Debug, thiserror::Error)]
#[error("{id}: {object} {problem}")]
pub struct SourceError {
    /// The late-bound value.
    id: String,
    /// Such as `Secret namespace/name`.
    object: String,
    problem: Problem,
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("is missing: create it, or take the reference out")]
    Missing,
    #[error("has no {0}")]
    NoValue(String),
    #[error("is not in the settings' credentials.allowedSources: add it there")]
    NotAllowed,
    #[error("is allowed or not by the settings, which are missing or not valid: mend them")]
    SettingsMissing,
    #[error("can't be read: {}", status::brief(.0))]
    Unreadable(Box<kube::Error>),
}

impl SourceError {
    /// Reason for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self.problem {
            Problem::Missing => "SourceMissing",
            Problem::NoValue(_) => "SourceIncomplete",
            Problem::NotAllowed => "SourceNotAllowed",
            Problem::SettingsMissing => "SettingsMissing",
            Problem::Unreadable(_) => "SourceUnreadable",
        }
    }
}

/// Data of a Secret or ConfigMap. `Debug` does not show it.
#[derive(Clone, Default)]
pub struct SourceData(BTreeMap<String, Vec<u8>>);

/// Sources that are followed, each by a watch of its own: `Secret/namespace/name` → what it shows.
pub type Followed = Mutex<HashMap<String, Arc<Cache<SourceData>>>>;

/// The values of everything in `late_bound` that stands in an object, by id.
///
/// # Errors
/// The first value that can't be had.
pub async fn values(
    state: &State,
    late_bound: &[LateBound],
    allowed: Option<&Credentials>,
) -> Result<BTreeMap<String, String>, SourceError> {
    let mut values = BTreeMap::new();
    for late in late_bound {
        let Some(source) = &late.source else { continue };
        values.insert(late.id.clone(), value(state, late, source, allowed).await?);
    }
    Ok(values)
}

async fn value(
    state: &State,
    late: &LateBound,
    source: &LateBoundSource,
    allowed: Option<&Credentials>,
) -> Result<String, SourceError> {
    let kind = if late.kind == LateBoundKind::ConfigMapKey { "ConfigMap" } else { "Secret" };
    let failed = |problem| SourceError {
        id: late.id.clone(),
        object: format!("{kind} {}/{}", source.namespace, source.name),
        problem,
    };
    // Registry credentials are named by the settings themselves.
    let of_registry = matches!(late.kind, LateBoundKind::RegistryUsername | LateBoundKind::RegistryPassword);
    if !of_registry {
        let allowed = allowed.ok_or_else(|| failed(Problem::SettingsMissing))?;
        if !is_allowed(allowed, kind, source) {
            return Err(failed(Problem::NotAllowed));
        }
    }
    let data = data(state, kind, source).await.map_err(|error| {
        failed(if status::is_code(&error, 404) {
            Problem::Missing
        } else {
            Problem::Unreadable(Box::new(error))
        })
    })?;
    let (found, what) = match late.kind {
        LateBoundKind::RegistryUsername => {
            (registry(&data, &source.key).map(|(user, _)| user), "user name and password for")
        }
        LateBoundKind::RegistryPassword => {
            (registry(&data, &source.key).map(|(_, word)| word), "user name and password for")
        }
        _ => (text(&data, &source.key), "text under the key"),
    };
    found.ok_or_else(|| failed(Problem::NoValue(format!("{what} {}", source.key))))
}

fn is_allowed(allowed: &Credentials, kind: &str, source: &LateBoundSource) -> bool {
    allowed.allowed_sources.iter().filter(|allowed| allowed.namespace == source.namespace).any(|allowed| {
        let names = if kind == "Secret" { &allowed.secrets } else { &allowed.config_maps };
        names.contains(&source.name)
    })
}

/// From the watch where it has the object; else from the server, which also tells why it can't be had.
async fn data(
    state: &State,
    kind: &'static str,
    source: &LateBoundSource,
) -> Result<Arc<SourceData>, kube::Error> {
    let LateBoundSource { namespace, name, .. } = source;
    let followed = lock(&state.sources).get(&format!("{kind}/{namespace}/{name}")).cloned();
    match followed {
        Some(cache) => {
            if let Some(data) = cache.get(&format!("{namespace}/{name}")) {
                return Ok(data);
            }
        }
        None => follow(state, kind, source),
    }
    let client = state.context.client.clone();
    Ok(Arc::new(match kind {
        "ConfigMap" => of_config_map(Api::<ConfigMap>::namespaced(client, namespace).get(name).await?),
        _ => of_secret(Api::<Secret>::namespaced(client, namespace).get(name).await?),
    }))
}

fn follow(state: &State, kind: &'static str, source: &LateBoundSource) {
    let LateBoundSource { namespace, name, .. } = source;
    let cache = Arc::<Cache<SourceData>>::default();
    match lock(&state.sources).entry(format!("{kind}/{namespace}/{name}")) {
        // Another worker was faster.
        Entry::Occupied(_) => return,
        Entry::Vacant(place) => place.insert(cache.clone()),
    };
    let (context, client) = (&state.context, state.context.client.clone());
    let named = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let (waker, of) = (state.clone(), (namespace.clone(), name.clone()));
    let wake = move |_: Change<SourceData>| {
        waker.wake(|config| {
            let mut sources = config.late_bound.iter().filter_map(|late| late.source.as_ref());
            sources.any(|source| source.namespace == of.0 && source.name == of.1)
        });
    };
    match kind {
        "ConfigMap" => {
            let api: Api<DeserializeGuard<ConfigMap>> = Api::namespaced(client, namespace);
            watch::spawn_unawaited(
                context,
                "sources",
                api,
                named,
                cache,
                |map| Some(of_config_map(map)),
                wake,
                None,
            );
        }
        _ => {
            let api: Api<DeserializeGuard<Secret>> = Api::namespaced(client, namespace);
            watch::spawn_unawaited(
                context,
                "sources",
                api,
                named,
                cache,
                |secret| Some(of_secret(secret)),
                wake,
                None,
            );
        }
    }
}

fn of_secret(secret: Secret) -> SourceData {
    SourceData(secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect())
}

fn of_config_map(map: ConfigMap) -> SourceData {
    SourceData(
        map.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.into_bytes())).collect(),
    )
}

fn text(data: &SourceData, key: &str) -> Option<String> {
    String::from_utf8(data.0.get(key)?.clone()).ok()
}

/// Docker's format, of which only this part counts.
#[derive(Deserialize)]
struct DockerConfig {
    auths: BTreeMap<String, DockerAuth>,
}

#[derive(Deserialize)]
struct DockerAuth {
    username: Option<String>,
    password: Option<String>,
    auth: Option<String>,
}

/// User name and password for a registry: of a `kubernetes.io/dockerconfigjson` Secret, else its keys `username` and
/// `password`.
fn registry(data: &SourceData, host: &str) -> Option<(String, String)> {
    let Some(config) = data.0.get(".dockerconfigjson") else {
        return Some((text(data, "username")?, text(data, "password")?));
    };
    let config: DockerConfig = serde_json::from_slice(config).ok()?;
    let (_, found) = config.auths.into_iter().find(|(registry, _)| host_of(registry) == host)?;
    if let (Some(username), Some(password)) = (found.username, found.password) {
        return Some((username, password));
    }
    let decoded = String::from_utf8(STANDARD.decode(found.auth?).ok()?).ok()?;
    let (username, password) = decoded.split_once(':')?;
    Some((username.to_owned(), password.to_owned()))
}

/// `https://index.docker.io/v1/` → `docker.io`; `registry.example/path` → `registry.example`.
fn host_of(registry: &str) -> &str {
    let bare = registry.split_once("://").map_or(registry, |(_, rest)| rest);
    match bare.split('/').next().unwrap_or_default() {
        "index.docker.io" | "registry-1.docker.io" => "docker.io",
        host => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use osm_api::settings::AllowedSource;
    use serde_json::json;

    fn docker(value: serde_json::Value) -> SourceData {
        SourceData(BTreeMap::from([(".dockerconfigjson".to_owned(), value.to_string().into_bytes())]))
    }

    #[test]
    fn credentials_in_every_form() {
        let plain = SourceData(BTreeMap::from([
            ("username".to_owned(), b"u".to_vec()),
            ("password".to_owned(), b"p\"\n".to_vec()),
        ]));
        assert_eq!(registry(&plain, "any"), Some(("u".to_owned(), "p\"\n".to_owned())));
        let auth = STANDARD.encode("u:p:q");
        let config = docker(
            json!({"auths": {"https://index.docker.io/v1/": {"auth": auth}, "quay.example": {"username": "a", "password": "b"}}}),
        );
        assert_eq!(registry(&config, "docker.io"), Some(("u".to_owned(), "p:q".to_owned())));
        assert_eq!(registry(&config, "quay.example"), Some(("a".to_owned(), "b".to_owned())));
        assert_eq!(registry(&config, "other"), None);
        assert_eq!(registry(&docker(json!([])), "docker.io"), None);
    }

    #[test]
    fn nothing_is_allowed_unless_listed() {
        let source = LateBoundSource { namespace: "n".into(), name: "s".into(), key: "k".into() };
        let mut allowed = Credentials::default();
        assert!(!is_allowed(&allowed, "Secret", &source));
        allowed.allowed_sources.push(AllowedSource {
            namespace: "n".into(),
            secrets: vec!["s".into()],
            config_maps: vec![],
        });
        assert!(is_allowed(&allowed, "Secret", &source));
        assert!(!is_allowed(&allowed, "ConfigMap", &source));
    }
}
