//! `proxy`: for downloads, containerd and the package manager.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::validation::{HTTP, Problems, URL, is_url};

/// A proxy. URLs with a user name or password are refused: they would stand in a custom resource.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Proxy {
    /// `http://host:port`, for HTTP and HTTPS.
    #[schemars(regex(pattern = URL))]
    pub http: Option<String>,
    /// Hosts, domains and networks that are reached directly, comma-separated.
    pub no_proxy: Option<String>,
}

impl Proxy {
    pub(super) fn validate(&self, problems: &mut Problems) {
        if let Some(url) = &self.http {
            problems.check(
                "proxy.http",
                is_url(url, HTTP),
                "must be http://host:port, without user name and password",
            );
        }
        if let Some(list) = &self.no_proxy {
            let clean = list
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-._:/,*%[]".contains(c));
            problems.check(
                "proxy.noProxy",
                clean,
                "must be hosts, domains, addresses and networks, separated by commas, without spaces",
            );
        }
    }
}
