//! `proxy`: for downloads, containerd and the package manager.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::containerd::SecretReference;
use super::validation::{HTTP, Problems, URL, is_url};

/// A proxy. URLs with a user name or password are refused: they would be in a custom resource.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Proxy {
    /// Address of the proxy, `http://host:port`, for HTTP and HTTPS.
    #[schemars(regex(pattern = URL))]
    pub http: Option<String>,
    /// Hosts, domains and networks that are reached directly, comma-separated.
    pub no_proxy: Option<String>,
    /// Secret with the keys `username` and `password`, for a proxy that demands them.
    pub credentials: Option<SecretReference>,
}

impl Proxy {
    pub(super) fn validate(&self, problems: &mut Problems) {
        if let Some(url) = &self.http {
            let rule = "must be http://host:port, without user name and password; put those into the Secret of proxy.credentials";
            problems.check("proxy.http", is_url(url, HTTP), rule);
        }
        if let Some(secret) = &self.credentials {
            let ok = self.http.is_some();
            let rule = "requires proxy.http; set proxy.http, or remove the credentials";
            problems.check("proxy.credentials", ok, rule);
            problems.check_object("proxy.credentials", &secret.namespace, &secret.name);
        }
        if let Some(list) = &self.no_proxy {
            let clean = list
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-._:/,*%[]".contains(c));
            let rule = "must be hosts, domains, addresses and networks, separated by commas, without spaces";
            problems.check("proxy.noProxy", clean, rule);
        }
    }
}
