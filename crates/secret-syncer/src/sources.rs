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
use osm_api::MachineDeployment;
use osm_api::config::{LateBound, LateBoundKind, LateBoundSource, MachineDeploymentRef};
use osm_api::settings::Settings;
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
    #[error("is not the pool's own MachineDeployment")]
    NotItsOwn,
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
            Problem::NotAllowed | Problem::NotItsOwn => "SourceNotAllowed",
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

/// What decides which objects may be read for a pool.
#[derive(Clone, Copy)]
pub struct Allowed<'a> {
    /// The installation's settings.
    pub settings: Option<&'a Settings>,
    /// The pool's own MachineDeployment.
    pub machine_deployment: Option<&'a MachineDeploymentRef>,
}

/// The values of everything in `late_bound` that stands in an object, by id.
///
/// # Errors
/// The first value that can't be had.
pub async fn values(
    state: &State,
    late_bound: &[LateBound],
    allowed: Allowed<'_>,
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
    allowed: Allowed<'_>,
) -> Result<String, SourceError> {
    let kind = match late.kind {
        LateBoundKind::ConfigMapKey => "ConfigMap",
        LateBoundKind::OperatingSystemSpecField => "MachineDeployment",
        _ => "Secret",
    };
    let failed = |problem| SourceError {
        id: late.id.clone(),
        object: format!("{kind} {}/{}", source.namespace, source.name),
        problem,
    };
    allowed.check(late.kind, source).map_err(failed)?;
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
        LateBoundKind::OperatingSystemSpecField => {
            (text(&data, &source.key), "text in operatingSystemSpec's field")
        }
        _ => (text(&data, &source.key), "text under the key"),
    };
    found.ok_or_else(|| failed(Problem::NoValue(format!("{what} {}", source.key))))
}

impl Allowed<'_> {
    fn check(self, kind: LateBoundKind, source: &LateBoundSource) -> Result<(), Problem> {
        if kind == LateBoundKind::OperatingSystemSpecField {
            let own = |md: &MachineDeploymentRef| md.namespace == source.namespace && md.name == source.name;
            return if self.machine_deployment.is_some_and(own) { Ok(()) } else { Err(Problem::NotItsOwn) };
        }
        let settings = self.settings.ok_or(Problem::SettingsMissing)?;
        let of_registry = matches!(kind, LateBoundKind::RegistryUsername | LateBoundKind::RegistryPassword);
        // What the installation's own settings name is theirs to name; a pool's may name what is listed.
        let named =
            settings.containerd.registries.iter().filter(|registry| registry.host == source.key).any(|r| {
                let secret = r.credentials.as_ref();
                secret
                    .is_some_and(|secret| secret.namespace == source.namespace && secret.name == source.name)
            });
        let listed = settings
            .credentials
            .allowed_sources
            .iter()
            .filter(|allowed| allowed.namespace == source.namespace)
            .any(|allowed| {
                let config_map = kind == LateBoundKind::ConfigMapKey;
                let names = if config_map { &allowed.config_maps } else { &allowed.secrets };
                names.contains(&source.name)
            });
        if listed || (of_registry && named) { Ok(()) } else { Err(Problem::NotAllowed) }
    }
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
    let client = state.context.worker.client.clone();
    Ok(Arc::new(match kind {
        "ConfigMap" => of_config_map(Api::<ConfigMap>::namespaced(client, namespace).get(name).await?),
        "MachineDeployment" => {
            of_machine_deployment(Api::<MachineDeployment>::namespaced(client, namespace).get(name).await?)
        }
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
    let (context, client) = (&state.context, state.context.worker.client.clone());
    let watched = context.worker.watched("sources");
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
                watched,
                api,
                named,
                cache,
                |map| Some(of_config_map(map)),
                wake,
                None,
            );
        }
        "MachineDeployment" => {
            let api: Api<DeserializeGuard<MachineDeployment>> = Api::namespaced(client, namespace);
            watch::spawn_unawaited(
                context,
                watched,
                api,
                named,
                cache,
                |md| Some(of_machine_deployment(md)),
                wake,
                None,
            );
        }
        _ => {
            let api: Api<DeserializeGuard<Secret>> = Api::namespaced(client, namespace);
            watch::spawn_unawaited(
                context,
                watched,
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

/// The texts of the operating system's settings, each plain or as `value`.
fn of_machine_deployment(md: MachineDeployment) -> SourceData {
    let spec = md.spec.template.pointer("/spec/providerSpec/value/operatingSystemSpec");
    let fields = spec.and_then(serde_json::Value::as_object).into_iter().flatten();
    let text = |value: &serde_json::Value| value.get("value").unwrap_or(value).as_str().map(str::to_owned);
    SourceData(fields.filter_map(|(name, value)| Some((name.clone(), text(value)?.into_bytes()))).collect())
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
        let source =
            LateBoundSource { namespace: "ns".into(), name: "s".into(), key: "registry.example".into() };
        let check = |settings: &str, kind| {
            let settings = Settings::parse(settings).unwrap();
            Allowed { settings: Some(&settings), machine_deployment: None }.check(kind, &source).is_ok()
        };
        let listed = "credentials: {allowedSources: [{namespace: ns, secrets: [s]}]}";
        let registry = |host: &str| {
            format!("containerd: {{registries: [{{host: {host}, credentials: {{namespace: ns, name: s}}}}]}}")
        };
        for (settings, kind, allowed) in [
            ("", LateBoundKind::SecretKey, false),
            (listed, LateBoundKind::SecretKey, true),
            (listed, LateBoundKind::RegistryPassword, true),
            (listed, LateBoundKind::ConfigMapKey, false),
            ("", LateBoundKind::RegistryPassword, false),
            (registry("registry.example").as_str(), LateBoundKind::RegistryPassword, true),
            (registry("registry.example").as_str(), LateBoundKind::SecretKey, false),
            (registry("other.example").as_str(), LateBoundKind::RegistryUsername, false),
        ] {
            assert_eq!(check(settings, kind), allowed, "{settings} {kind:?}");
        }
        let none = Allowed { settings: None, machine_deployment: None };
        assert!(matches!(none.check(LateBoundKind::SecretKey, &source), Err(Problem::SettingsMissing)));
    }

    #[test]
    fn only_the_pools_own_machine_deployment_is_read() {
        let own = MachineDeploymentRef {
            namespace: "n".into(),
            name: "s".into(),
            uid: "u".into(),
            revision: None,
            template_digest: String::new(),
        };
        let allowed = Allowed { settings: None, machine_deployment: Some(&own) };
        let source =
            |name: &str| LateBoundSource { namespace: "n".into(), name: name.into(), key: "k".into() };
        assert!(allowed.check(LateBoundKind::OperatingSystemSpecField, &source("s")).is_ok());
        assert!(allowed.check(LateBoundKind::OperatingSystemSpecField, &source("t")).is_err());
        let md: MachineDeployment = serde_json::from_value(json!({
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment", "metadata": {},
            "spec": {"template": {"spec": {"providerSpec": {"value": {"cloudProviderSpec": {"secret": "x"},
                "operatingSystemSpec": {"a": "plain", "b": {"value": "object"}, "c": true}}}}}},
        }))
        .unwrap();
        let data = of_machine_deployment(md);
        assert_eq!(
            (text(&data, "a").as_deref(), text(&data, "b").as_deref()),
            (Some("plain"), Some("object"))
        );
        assert_eq!(data.0.len(), 2);
    }
}
