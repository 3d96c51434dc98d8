//! Values in objects of other people: registry credentials, and what a MachineDeployment refers to. Which
//! objects may be read, what is kept of them, and why a value is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use osm_api::config::{LateBound, LateBoundKind, LateBoundSource};
use osm_api::settings::Settings;
use osm_api::{MachineDeployment, PoolRef, Reason, pool};
use osm_user_data::LateValues;
use serde::Deserialize;

/// Why a late-bound value is not available. No message repeats a value.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{id}: {object} {problem}")]
pub struct SourceError {
    /// Id of the late-bound value.
    id: String,
    /// Such as `Secret namespace/name`.
    object: String,
    problem: SourceProblem,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SourceProblem {
    #[error("does not exist; create it or remove the reference")]
    Missing,
    #[error("has no {0}; add it")]
    NoValue(String),
    #[error("is not listed in the settings' credentials.allowedSources; add it there")]
    NotAllowed,
    #[error("is not listed with this key in the settings' credentials.profileSecrets; add it there")]
    NotOfProfiles,
    #[error("is not the pool's own MachineDeployment; refer to a Secret instead")]
    NotItsOwn,
    #[error("can't be checked because the settings are missing or invalid; correct the settings")]
    SettingsInvalid,
    #[error("can't be read: {0}")]
    Unreadable(String),
    #[error("would make the values of the pool larger than {0} bytes; refer to smaller values")]
    TooLarge(usize),
}

impl SourceError {
    pub fn new(late: &LateBound, source: &LateBoundSource, problem: SourceProblem) -> Self {
        let object = format!("{} {}/{}", kind_of(late.kind), source.namespace, source.name);
        Self {
            id: late.id.clone(),
            object,
            problem,
        }
    }

    /// Reason for conditions, Events and metrics.
    pub fn reason(&self) -> Reason {
        match self.problem {
            SourceProblem::Missing => Reason::SourceNotFound,
            SourceProblem::NoValue(_) => Reason::SourceIncomplete,
            SourceProblem::NotAllowed | SourceProblem::NotOfProfiles | SourceProblem::NotItsOwn => {
                Reason::SourceNotAllowed
            }
            SourceProblem::SettingsInvalid => Reason::SettingsInvalid,
            SourceProblem::Unreadable(_) => Reason::SourceUnreadable,
            SourceProblem::TooLarge(_) => Reason::UserDataTooLarge,
        }
    }
}

/// Kind of the object that holds values of this kind.
pub fn kind_of(kind: LateBoundKind) -> &'static str {
    match kind {
        LateBoundKind::ConfigMapKey => "ConfigMap",
        LateBoundKind::OperatingSystemSpecField => "MachineDeployment",
        _ => "Secret",
    }
}

/// The value that `late` refers to, out of the data of its object.
pub fn value_of(
    late: LateBoundKind,
    source: &LateBoundSource,
    data: &SourceData,
) -> Result<String, SourceProblem> {
    let (found, what) = match late {
        LateBoundKind::RegistryUsername => (
            registry(data, &source.key).map(|(user, _)| user),
            "user name and password for",
        ),
        LateBoundKind::RegistryPassword => (
            registry(data, &source.key).map(|(_, password)| password),
            "user name and password for",
        ),
        LateBoundKind::ProxyURL => (proxy_url(data, &source.key), "user name and password for"),
        LateBoundKind::OperatingSystemSpecField => {
            (text(data, &source.key), "text in operatingSystemSpec's field")
        }
        _ => (text(data, &source.key), "text under the key"),
    };
    found.ok_or_else(|| SourceProblem::NoValue(format!("{what} {}", source.key)))
}

/// Data of a Secret or ConfigMap, or the texts of a MachineDeployment. There is no `Debug`, so that no log
/// shows it.
#[derive(Clone, Default)]
pub struct SourceData {
    /// Which state of the object it is: its uid with its resourceVersion; of a MachineDeployment, whose
    /// status changes all the time, with its generation.
    pub reference: String,
    fields: BTreeMap<String, Vec<u8>>,
}

/// The largest data that is kept of an object. Larger data is read whenever it is needed: 200 such objects
/// would fill the memory of the service.
const MAX_KEPT_BYTES: usize = 64 * 1024;

/// What documents are filled with besides their content. `Debug` does not show values.
#[derive(Clone, Default)]
pub struct Inputs {
    /// By id of the late-bound value.
    pub values: LateValues,
    /// Which state of which objects they are from.
    pub references: BTreeSet<String>,
}

impl fmt::Debug for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inputs({:?})", self.references)
    }
}

/// The rules for which objects may be read for a pool.
#[derive(Clone, Copy)]
pub struct Allowed<'a> {
    pub settings: Option<&'a Settings>,
    /// The pool's own MachineDeployment.
    pub machine_deployment: Option<&'a PoolRef>,
}

impl Allowed<'_> {
    /// Whether the object may be read.
    pub fn check(self, kind: LateBoundKind, source: &LateBoundSource) -> Result<(), SourceProblem> {
        if kind == LateBoundKind::OperatingSystemSpecField {
            let own = |md: &PoolRef| md.namespace == source.namespace && md.name == source.name;
            return if self.machine_deployment.is_some_and(own) {
                Ok(())
            } else {
                Err(SourceProblem::NotItsOwn)
            };
        }
        let settings = self.settings.ok_or(SourceProblem::SettingsInvalid)?;
        if settings.allow(kind, source) {
            Ok(())
        } else if kind == LateBoundKind::ProfileSecretKey {
            Err(SourceProblem::NotOfProfiles)
        } else {
            Err(SourceProblem::NotAllowed)
        }
    }
}

impl SourceData {
    pub fn of_secret(secret: Secret) -> Self {
        let data = secret.data.unwrap_or_default().into_iter();
        Self {
            reference: state_of(&secret.metadata),
            fields: data.map(|(key, value)| (key, value.0)).collect(),
        }
    }

    pub fn of_config_map(map: ConfigMap) -> Self {
        let data = map.data.unwrap_or_default().into_iter();
        Self {
            reference: state_of(&map.metadata),
            fields: data.map(|(key, value)| (key, value.into_bytes())).collect(),
        }
    }

    pub fn of_machine_deployment(md: &MachineDeployment) -> Self {
        let texts = pool::operating_system_spec_texts(md).into_iter();
        let ObjectMeta { uid, generation, .. } = &md.metadata;
        Self {
            reference: format!(
                "{}/{}",
                uid.as_deref().unwrap_or_default(),
                generation.unwrap_or_default()
            ),
            fields: texts.map(|(field, text)| (field, text.into_bytes())).collect(),
        }
    }

    /// Whether it is kept. Anyone who may write such objects could otherwise fill the memory of the service,
    /// far below the number of objects that a watch keeps.
    pub fn is_small(&self) -> bool {
        let bytes: usize = self
            .fields
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        bytes <= MAX_KEPT_BYTES
    }
}

fn text(data: &SourceData, key: &str) -> Option<String> {
    String::from_utf8(data.fields.get(key)?.clone()).ok()
}

fn state_of(metadata: &ObjectMeta) -> String {
    let ObjectMeta {
        uid,
        resource_version,
        ..
    } = metadata;
    [uid, resource_version]
        .map(|part| part.as_deref().unwrap_or_default())
        .join("/")
}

/// The part of Docker's format that is read.
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

/// User name and password for a registry: from a `kubernetes.io/dockerconfigjson` Secret, else its keys
/// `username` and `password`.
fn registry(data: &SourceData, host: &str) -> Option<(String, String)> {
    let Some(config) = data.fields.get(".dockerconfigjson") else {
        return Some((text(data, "username")?, text(data, "password")?));
    };
    let config: DockerConfig = serde_json::from_slice(config).ok()?;
    let (_, found) = config
        .auths
        .into_iter()
        .find(|(registry, _)| host_of(registry) == host)?;
    if let (Some(username), Some(password)) = (found.username, found.password) {
        return Some((username, password));
    }
    let decoded = String::from_utf8(STANDARD.decode(found.auth?).ok()?).ok()?;
    let (username, password) = decoded.split_once(':')?;
    Some((username.to_owned(), password.to_owned()))
}

/// A URL with the user name and password of a Secret. Programs decode what is percent-encoded in them.
fn proxy_url(data: &SourceData, url: &str) -> Option<String> {
    // No password ends in a line break, but the output of many programs does.
    let part = |key| Some(percent_encoded(text(data, key)?.trim_end_matches(['\r', '\n'])));
    let (scheme, rest) = url.split_once("://")?;
    Some(format!(
        "{scheme}://{}:{}@{rest}",
        part("username")?,
        part("password")?
    ))
}

/// `text` in the only characters that RFC 3986 never reserves.
fn percent_encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
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

    fn data(fields: impl IntoIterator<Item = (String, Vec<u8>)>) -> SourceData {
        SourceData {
            fields: fields.into_iter().collect(),
            ..SourceData::default()
        }
    }

    fn docker(value: serde_json::Value) -> SourceData {
        data([(".dockerconfigjson".to_owned(), value.to_string().into_bytes())])
    }

    /// A key of the Secret `ns/s`.
    fn source(key: &str) -> LateBoundSource {
        LateBoundSource {
            namespace: "ns".into(),
            name: "s".into(),
            key: key.into(),
        }
    }

    /// Whether this key may be read with these settings.
    fn check(settings: &str, kind: LateBoundKind, key: &str) -> Result<(), SourceProblem> {
        let settings = Settings::parse(settings).unwrap();
        let allowed = Allowed {
            settings: Some(&settings),
            machine_deployment: None,
        };
        allowed.check(kind, &source(key))
    }

    #[test]
    fn credentials_in_every_form() {
        let plain = data([
            ("username".to_owned(), b"u".to_vec()),
            ("password".to_owned(), b"p\"\n".to_vec()),
        ]);
        assert_eq!(
            registry(&plain, "any"),
            Some(("u".to_owned(), "p\"\n".to_owned()))
        );
        let auth = STANDARD.encode("u:p:q");
        let config = docker(
            json!({"auths": {"https://index.docker.io/v1/": {"auth": auth}, "quay.example": {"username": "a", "password": "b"}}}),
        );
        assert_eq!(
            registry(&config, "docker.io"),
            Some(("u".to_owned(), "p:q".to_owned()))
        );
        assert_eq!(
            registry(&config, "quay.example"),
            Some(("a".to_owned(), "b".to_owned()))
        );
        assert_eq!(registry(&config, "other"), None);
        assert_eq!(registry(&docker(json!([])), "docker.io"), None);
    }

    #[test]
    fn the_url_of_a_proxy_has_its_credentials_percent_encoded() {
        let secret = |pairs: &[(&str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec()));
            data(pairs)
        };
        let source = source("http://proxy.example:3128");
        let of = |data: &SourceData| value_of(LateBoundKind::ProxyURL, &source, data);
        let data = secret(&[("username", "node@site"), ("password", "p:a/s$s\"ö%\n")]);
        assert_eq!(
            of(&data).unwrap(),
            "http://node%40site:p%3Aa%2Fs%24s%22%C3%B6%25@proxy.example:3128"
        );
        for incomplete in [
            secret(&[("username", "u")]),
            secret(&[("password", "p")]),
            secret(&[]),
        ] {
            let problem = of(&incomplete).unwrap_err().to_string();
            assert_eq!(
                problem,
                "has no user name and password for http://proxy.example:3128; add it"
            );
        }
        let allowed = |settings: &str, key: &str| check(settings, LateBoundKind::ProxyURL, key).is_ok();
        let own = "proxy: {http: 'http://proxy.example:3128', credentials: {namespace: ns, name: s}}";
        let other = "proxy: {http: 'http://proxy.example:3128', credentials: {namespace: ns, name: other}}";
        let listed = "credentials: {allowedSources: [{namespace: ns, secrets: [s]}]}";
        assert!(allowed(own, "http://proxy.example:3128") && allowed(listed, "http://elsewhere"));
        // A pool that changes the address of the proxy doesn't get the password sent there.
        assert!(!allowed(own, "http://elsewhere") && !allowed(other, "http://proxy.example:3128"));
        assert!(!allowed("", "http://proxy.example:3128"));
    }

    #[test]
    fn nothing_is_allowed_unless_listed() {
        let listed = "credentials: {allowedSources: [{namespace: ns, secrets: [s]}]}";
        let registry = |host: &str| {
            format!("containerd: {{registries: [{{host: {host}, credentials: {{namespace: ns, name: s}}}}]}}")
        };
        let (own, other) = (registry("registry.example"), registry("other.example"));
        for (settings, kind, allowed) in [
            ("", LateBoundKind::SecretKey, false),
            (listed, LateBoundKind::SecretKey, true),
            (listed, LateBoundKind::RegistryPassword, true),
            (listed, LateBoundKind::ConfigMapKey, false),
            ("", LateBoundKind::RegistryPassword, false),
            (&own, LateBoundKind::RegistryPassword, true),
            (&own, LateBoundKind::SecretKey, false),
            (&other, LateBoundKind::RegistryUsername, false),
        ] {
            let checked = check(settings, kind, "registry.example");
            assert_eq!(checked.is_ok(), allowed, "{settings} {kind:?}");
        }
        let none = Allowed {
            settings: None,
            machine_deployment: None,
        };
        let checked = none.check(LateBoundKind::SecretKey, &source("registry.example"));
        assert_eq!(checked, Err(SourceProblem::SettingsInvalid));
    }

    #[test]
    fn a_profile_gets_only_the_keys_that_are_listed_for_profiles() {
        let listed = "credentials: {profileSecrets: [{namespace: ns, name: s, key: k}]}";
        let of_profile = LateBoundKind::ProfileSecretKey;
        assert_eq!(check(listed, of_profile, "k"), Ok(()));
        assert_eq!(
            check(listed, of_profile, "other"),
            Err(SourceProblem::NotOfProfiles)
        );
        for settings in [
            "credentials: {profileSecrets: [{namespace: other, name: s, key: k}]}",
            "credentials: {profileSecrets: [{namespace: ns, name: other, key: k}]}",
            // These are for pools.
            "credentials: {allowedSources: [{namespace: ns, secrets: [s]}]}",
            "containerd: {registries: [{host: 'k:5000', credentials: {namespace: ns, name: s}}]}",
        ] {
            let checked = check(settings, of_profile, "k");
            assert_eq!(checked, Err(SourceProblem::NotOfProfiles), "{settings}");
        }
        // And what is listed for profiles is not for pools.
        let checked = check(listed, LateBoundKind::SecretKey, "k");
        assert_eq!(checked, Err(SourceProblem::NotAllowed));
    }

    #[test]
    fn only_the_pools_own_machine_deployment_is_read() {
        for (name, is_read) in [("s", true), ("t", false)] {
            let own = PoolRef::machine_deployment("ns", name, "u");
            let allowed = Allowed {
                settings: None,
                machine_deployment: Some(&own),
            };
            let checked = allowed.check(LateBoundKind::OperatingSystemSpecField, &source("k"));
            assert_eq!(checked.is_ok(), is_read, "{name}");
        }
        let md: MachineDeployment = serde_json::from_value(json!({
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment", "metadata": {},
            "spec": {"template": {"spec": {"providerSpec": {"value": {"cloudProviderSpec": {"secret": "x"},
                "operatingSystemSpec": {"a": "plain", "b": {"value": "object"}, "c": true}}}}}},
        }))
        .unwrap();
        let data = SourceData::of_machine_deployment(&md);
        assert_eq!(
            (text(&data, "a").as_deref(), text(&data, "b").as_deref()),
            (Some("plain"), Some("object"))
        );
        assert_eq!(data.fields.len(), 2);
    }

    #[test]
    fn large_data_is_not_kept() {
        let is_small = |bytes| data([("key".to_owned(), vec![0; bytes])]).is_small();
        assert!(is_small(MAX_KEPT_BYTES - 3) && !is_small(MAX_KEPT_BYTES - 2));
    }
}
