//! `containerd`: registries, with their mirrors and credentials.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::validation::{HTTP, Problems, URL, URL_RULE, is_host, is_url};
use crate::names::CLOUD_INIT_SETTINGS;

/// Host that means every registry that is not listed.
const DEFAULT_HOST: &str = "_default";

/// containerd settings of all pools.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Containerd {
    /// Registries with mirrors or credentials.
    pub registries: Vec<Registry>,
    /// Whether a container that does not run as root owns its devices.
    pub device_ownership_from_security_context: bool,
}

/// A registry.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Registry {
    /// Host, with its port if it has one. `_default` represents every registry that is not listed.
    pub host: String,
    /// Mirrors, tried in this order before the registry itself.
    #[serde(default)]
    pub mirrors: Vec<Mirror>,
    /// Secret with the user name and password.
    #[serde(default)]
    pub credentials: Option<SecretReference>,
}

/// A mirror of a registry.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mirror {
    /// URL, `http(s)://host[:port][/path]`.
    #[schemars(regex(pattern = URL))]
    pub url: String,
    /// Whether nodes do not verify the certificate of the mirror.
    #[serde(default)]
    pub skip_verify: bool,
    /// Whether the path of the URL is the root of the API, so that `/v2` is not appended.
    #[serde(default)]
    pub override_path: bool,
}

/// A Secret: of type `kubernetes.io/dockerconfigjson`, or with the keys `username` and `password`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretReference {
    /// Namespace of the Secret.
    #[serde(default = "cloud_init_settings")]
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
}

fn cloud_init_settings() -> String {
    CLOUD_INIT_SETTINGS.to_owned()
}

impl Containerd {
    pub(super) fn validate(&self, problems: &mut Problems) {
        for (i, registry) in self.registries.iter().enumerate() {
            let path = format!("containerd.registries[{i}]");
            registry.validate(&path, problems);
            let listed = self
                .registries
                .iter()
                .filter(|other| other.host == registry.host)
                .count();
            problems.check(format!("{path}.host"), listed == 1, "is listed more than once");
        }
    }
}

impl Registry {
    fn validate(&self, path: &str, problems: &mut Problems) {
        let ok = self.host == DEFAULT_HOST || is_host(&self.host);
        problems.check(format!("{path}.host"), ok, "must be host, host:port or _default");
        let ok = !ok || self.host == DEFAULT_HOST || is_in_images(&self.host);
        let rule = "is in no image's name, whose host is docker.io, or has a dot or a port; write it as containerd reads it from images";
        problems.check(format!("{path}.host"), ok, rule);
        if let Some(secret) = &self.credentials {
            let path = format!("{path}.credentials");
            let ok = self.host != DEFAULT_HOST;
            let rule = "cannot be used with the host _default; list the registry by its own host";
            problems.check(path.clone(), ok, rule);
            problems.check_object(&path, &secret.namespace, &secret.name);
        }
        for (j, mirror) in self.mirrors.iter().enumerate() {
            let path = format!("{path}.mirrors[{j}].url");
            problems.check(&path, is_url(&mirror.url, HTTP), URL_RULE);
            // containerd reads no hosts.toml that has a table twice.
            let mut others = self.mirrors.iter().take(j);
            let is_new = others.all(|other| other.url != mirror.url);
            problems.check(&path, is_new, "is listed twice; remove one of them");
        }
    }
}

/// Whether containerd can find this host in the name of an image (`splitDockerDomain` in
/// <https://github.com/distribution/reference/blob/v0.6.0/normalize.go>): it reads `registry/a` as `docker.io/registry/a`.
fn is_in_images(host: &str) -> bool {
    let is_host = host.contains(['.', ':']) || host == "localhost" || host.to_lowercase() != host;
    is_host && host != "index.docker.io"
}
