//! Where nodes find the API server, and the CA that verifies it.
//!
//! The settings come first, then `kube-public/cluster-info`, which kubeadm publishes, then the EndpointSlice of the Service
//! `kubernetes`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::config::Kubeconfig;

use crate::Settings;

/// How the nodes of a pool reach their API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterEndpoint {
    /// `https://host:port`.
    pub api_server: String,
    /// PEM bundle that verifies it.
    pub ca: String,
}

/// What one source in the cluster says about the API server. Either part can be unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Discovered {
    /// `https://host:port`.
    pub api_server: Option<String>,
    /// PEM bundle.
    pub ca: Option<String>,
}

impl Discovered {
    /// Reads `kube-public/cluster-info`. Text that is no kubeconfig says nothing.
    pub fn from_cluster_info(map: &ConfigMap) -> Self {
        let cluster = map
            .data
            .as_ref()
            .and_then(|data| data.get("kubeconfig"))
            .and_then(|text| Kubeconfig::from_yaml(text).ok())
            .and_then(|kubeconfig| kubeconfig.clusters.into_iter().next())
            .and_then(|named| named.cluster);
        let Some(cluster) = cluster else {
            return Self::default();
        };
        let ca = cluster
            .certificate_authority_data
            .and_then(|data| STANDARD.decode(data).ok())
            .and_then(|bytes| String::from_utf8(bytes).ok());
        Self {
            api_server: cluster.server,
            ca,
        }
    }

    /// Takes the first ready address, and the port `https`.
    pub fn from_endpoint_slice(slice: &EndpointSlice) -> Self {
        let port = slice
            .ports
            .iter()
            .flatten()
            .find(|port| port.name.as_deref() == Some("https"))
            .and_then(|port| port.port);
        let ready = |endpoint: &&k8s_openapi::api::discovery::v1::Endpoint| {
            endpoint
                .conditions
                .as_ref()
                .and_then(|conditions| conditions.ready)
                .unwrap_or(true)
        };
        let address = slice
            .endpoints
            .iter()
            .find(ready)
            .and_then(|endpoint| endpoint.addresses.first());
        let api_server = address.zip(port).map(|(address, port)| {
            if address.contains(':') {
                format!("https://[{address}]:{port}")
            } else {
                format!("https://{address}:{port}")
            }
        });
        Self { api_server, ca: None }
    }
}

/// Chooses the endpoint: the settings first, then the sources in order. `own_ca` is the CA with which this process itself
/// verifies the same API server.
pub fn choose(settings: &Settings, sources: &[Discovered], own_ca: Option<&str>) -> Option<ClusterEndpoint> {
    let api_server = settings
        .cluster
        .api_server
        .clone()
        .or_else(|| sources.iter().find_map(|source| source.api_server.clone()))?;
    let ca = settings
        .cluster
        .ca_bundle
        .clone()
        .or_else(|| sources.iter().find_map(|source| source.ca.clone()))
        .or_else(|| own_ca.map(str::to_owned))?;
    Some(ClusterEndpoint {
        api_server: api_server.trim_end_matches('/').to_owned(),
        ca,
    })
}

/// Encodes DER certificates as a PEM bundle.
pub fn pem(certificates: &[Vec<u8>]) -> Option<String> {
    if certificates.is_empty() {
        return None;
    }
    let mut text = String::new();
    for der in certificates {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = STANDARD.encode(der);
        let mut rest = encoded.as_str();
        while !rest.is_empty() {
            let (line, more) = rest.split_at(rest.len().min(64));
            text.push_str(line);
            text.push('\n');
            rest = more;
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn settings_win_then_cluster_info_then_the_endpoint_slice() {
        let info: ConfigMap = serde_json::from_value(json!({"data": {"kubeconfig":
            format!("apiVersion: v1\nkind: Config\nclusters:\n- name: ''\n  cluster: {{server: 'https://info:6443', certificate-authority-data: {}}}\n", STANDARD.encode("CA"))}}))
        .unwrap();
        let slice: EndpointSlice = serde_json::from_value(json!({"addressType": "IPv6",
            "endpoints": [{"addresses": ["fd00::1"], "conditions": {"ready": false}}, {"addresses": ["fd00::2"]}],
            "ports": [{"name": "https", "port": 6443}]}))
        .unwrap();
        let (info, slice) = (
            Discovered::from_cluster_info(&info),
            Discovered::from_endpoint_slice(&slice),
        );
        let mut settings = Settings::default();
        let chosen = choose(&settings, &[info.clone(), slice.clone()], Some("OWN")).unwrap();
        assert_eq!(
            chosen,
            ClusterEndpoint {
                api_server: "https://info:6443".into(),
                ca: "CA".into()
            }
        );
        let chosen = choose(&settings, &[Discovered::default(), slice.clone()], Some("OWN")).unwrap();
        assert_eq!(
            chosen,
            ClusterEndpoint {
                api_server: "https://[fd00::2]:6443".into(),
                ca: "OWN".into()
            }
        );
        settings.cluster.api_server = Some("https://set:1/".into());
        assert_eq!(
            choose(&settings, &[info], None).unwrap().api_server,
            "https://set:1"
        );
        assert_eq!(
            choose(&settings, &[slice], None),
            None,
            "an address without a CA is no endpoint"
        );
    }

    #[test]
    fn nonsense_in_cluster_info_is_nothing() {
        let info: ConfigMap = serde_json::from_value(json!({"data": {"kubeconfig": ": ["}})).unwrap();
        assert_eq!(Discovered::from_cluster_info(&info), Discovered::default());
    }
}
