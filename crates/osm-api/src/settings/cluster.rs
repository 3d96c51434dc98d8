//! `cluster`: the cluster that nodes join.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::validation::{HTTPS, PEM, Problems, certificates, is_host_name, is_url};

/// The cluster that nodes join.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClusterSettings {
    /// Address of the API server for nodes, `https://host:port`. By default, it is read from the cluster.
    #[schemars(regex(pattern = "^https://[^/@]+(/|$)"))]
    pub api_server: Option<String>,
    /// PEM bundle that verifies the API server. By default, it is read from the cluster.
    pub ca_bundle: Option<String>,
    /// Addresses of the cluster's DNS service.
    #[serde(rename = "dnsIPs")]
    #[schemars(length(min = 1))]
    pub dns_ips: Vec<std::net::IpAddr>,
    /// The cluster's DNS domain.
    pub dns_domain: String,
    /// Whether an external cloud controller manager initialises nodes.
    pub external_cloud_provider: bool,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        Self {
            api_server: None,
            ca_bundle: None,
            dns_ips: vec![std::net::Ipv4Addr::new(10, 96, 0, 10).into()],
            dns_domain: "cluster.local".to_owned(),
            external_cloud_provider: false,
        }
    }
}

impl ClusterSettings {
    pub(super) fn validate(&self, problems: &mut Problems) {
        if let Some(url) = &self.api_server {
            let rule = "must be https://host[:port]";
            problems.check("cluster.apiServer", is_url(url, HTTPS), rule);
        }
        if let Some(pem) = &self.ca_bundle {
            problems.check("cluster.caBundle", certificates(pem).is_some(), PEM);
        }
        let rule = "must name at least one address";
        problems.check("cluster.dnsIPs", !self.dns_ips.is_empty(), rule);
        let rule = "must be a DNS domain";
        problems.check("cluster.dnsDomain", is_host_name(&self.dns_domain), rule);
    }
}
