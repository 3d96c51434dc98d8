//! Chooses the address where nodes find the API server, and the CA that verifies it.
//!
//! The settings come first, then the address that is in use already, then `kube-public/cluster-info`, which
//! kubeadm publishes, then the EndpointSlice of the Service `kubernetes`. An address that is in use stays as
//! long as the cluster names it, because every change of the address publishes all pools again.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::config::Kubeconfig;
use pem::{EncodeConfig, LineEnding, Pem};

use crate::settings::Settings;

/// Addresses that are read from one EndpointSlice, which can have 1,000. A control plane has fewer nodes than
/// this.
pub const MAX_ADDRESSES: usize = 20;

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
    /// Addresses (`https://host:port`), the preferred one first. Each leads to the same cluster.
    pub api_servers: Vec<String>,
    /// PEM bundle that verifies them.
    pub ca: Option<String>,
}

impl Discovered {
    /// Reads `kube-public/cluster-info`. Text that is not a kubeconfig counts as absent.
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
            api_servers: cluster.server.as_deref().map(trimmed).into_iter().collect(),
            ca,
        }
    }

    /// Takes the ready addresses, and the port `https`.
    pub fn from_endpoint_slice(slice: &EndpointSlice) -> Self {
        let port = slice
            .ports
            .iter()
            .flatten()
            .find(|port| port.name.as_deref() == Some("https"))
            .and_then(|port| port.port);
        let Some(port) = port else {
            return Self::default();
        };
        let is_ready = |endpoint: &&Endpoint| {
            endpoint
                .conditions
                .as_ref()
                .and_then(|conditions| conditions.ready)
                .unwrap_or(true)
        };
        let addresses = slice.endpoints.iter().filter(is_ready);
        let addresses = addresses.filter_map(|endpoint| endpoint.addresses.first());
        let url = |address: &String| {
            if address.contains(':') {
                format!("https://[{address}]:{port}")
            } else {
                format!("https://{address}:{port}")
            }
        };
        Self {
            api_servers: addresses.take(MAX_ADDRESSES).map(url).collect(),
            ca: None,
        }
    }
}

/// The endpoint of a pool, and how it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub endpoint: ClusterEndpoint,
    /// The cluster names several addresses, and only the settings could say which one is shared by all
    /// control-plane nodes.
    pub is_one_of_several: bool,
}

/// Chooses the endpoint of a pool.
///
/// - `in_use` are the addresses that content was last rendered with, the preferred one first. It is used if a
///   source names it, or if no source names any: while an API server restarts, its EndpointSlice can be
///   empty.
/// - `own_ca` is the CA with which this process itself verifies the same API server.
pub fn choose(
    settings: &Settings,
    sources: &[Discovered],
    in_use: &[&str],
    own_ca: Option<&str>,
) -> Option<Choice> {
    let named: Vec<&str> = sources
        .iter()
        .flat_map(|source| source.api_servers.iter().map(String::as_str))
        .collect();
    let set = settings.cluster.api_server.as_deref().map(trimmed);
    let is_set = set.is_some();
    let api_server = set.or_else(|| {
        let mut in_use = in_use.iter().copied();
        let kept = in_use.find(|address| named.is_empty() || named.contains(address));
        kept.or_else(|| named.first().copied()).map(str::to_owned)
    })?;
    let ca = settings
        .cluster
        .ca_bundle
        .clone()
        .or_else(|| sources.iter().find_map(|source| source.ca.clone()))
        .or_else(|| own_ca.map(str::to_owned))?;
    let is_confirmed = sources
        .iter()
        .any(|source| source.api_servers == [api_server.as_str()]);
    let several = named.into_iter().collect::<BTreeSet<_>>().len() > 1;
    Some(Choice {
        endpoint: ClusterEndpoint { api_server, ca },
        is_one_of_several: !is_set && !is_confirmed && several,
    })
}

/// The addresses of these records, the most frequent one first.
pub fn by_frequency<'a>(records: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut counts = BTreeMap::<&str, usize>::new();
    for record in records {
        *counts.entry(record).or_default() += 1;
    }
    let mut found: Vec<_> = counts.into_iter().collect();
    found.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    found.into_iter().map(|(address, _)| address).collect()
}

/// Two spellings of an address are one address.
fn trimmed(address: &str) -> String {
    address.trim_end_matches('/').to_owned()
}

/// Encodes DER certificates as a PEM bundle.
pub fn pem(certificates: &[Vec<u8>]) -> Option<String> {
    let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
    let blocks = certificates
        .iter()
        .map(|der| pem::encode_config(&Pem::new("CERTIFICATE", der.as_slice()), config));
    Some(blocks.collect()).filter(|text: &String| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cluster_info(server: &str) -> Discovered {
        let ca = STANDARD.encode("CA");
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: ''\n  cluster: {{server: '{server}', certificate-authority-data: {ca}}}\n"
        );
        let map = json!({"data": {"kubeconfig": kubeconfig}});
        Discovered::from_cluster_info(&serde_json::from_value::<ConfigMap>(map).unwrap())
    }

    fn slice(addresses: &[&str]) -> Discovered {
        let endpoint = |address| json!({"addresses": [address]});
        let endpoints: Vec<_> = addresses.iter().map(endpoint).collect();
        let slice = json!({"addressType": "IPv4", "endpoints": endpoints, "ports": [{"name": "https", "port": 6443}]});
        Discovered::from_endpoint_slice(&serde_json::from_value::<EndpointSlice>(slice).unwrap())
    }

    #[test]
    fn settings_win_then_cluster_info_then_the_endpoint_slice() {
        let slice = json!({"addressType": "IPv6", "ports": [{"name": "https", "port": 6443}],
            "endpoints": [{"addresses": ["fd00::1"], "conditions": {"ready": false}}, {"addresses": ["fd00::2"]}]});
        let slice = Discovered::from_endpoint_slice(&serde_json::from_value::<EndpointSlice>(slice).unwrap());
        let (info, nothing) = (cluster_info("https://info:6443/"), Discovered::default());
        let mut settings = Settings::default();
        let chosen = |settings: &Settings, sources: &[&Discovered], own_ca: Option<&str>| {
            let sources: Vec<Discovered> = sources.iter().copied().cloned().collect();
            let endpoint = choose(settings, &sources, &[], own_ca).map(|choice| choice.endpoint);
            endpoint.map(|endpoint| format!("{} {}", endpoint.api_server, endpoint.ca))
        };
        let own = Some("OWN");
        let found = chosen(&settings, &[&info, &slice], own);
        assert_eq!(found.as_deref(), Some("https://info:6443 CA"));
        let found = chosen(&settings, &[&nothing, &slice], own);
        assert_eq!(found.as_deref(), Some("https://[fd00::2]:6443 OWN"));
        settings.cluster.api_server = Some("https://set:1/".into());
        let found = chosen(&settings, &[&info], None);
        assert_eq!(found.as_deref(), Some("https://set:1 CA"));
        let without_ca = chosen(&settings, &[&slice], None);
        assert_eq!(without_ca, None, "an address without a CA is no endpoint");
        // The address in use does not win over them either.
        let sources = [cluster_info("https://lb:6443"), self::slice(&["a", "b"])];
        let choice = choose(&settings, &sources, &["https://lb:6443"], None).unwrap();
        assert_eq!(choice.endpoint.api_server, "https://set:1");
        assert!(!choice.is_one_of_several);
    }

    #[test]
    fn an_address_in_use_stays_while_any_source_names_it() {
        let address = |name: &str| format!("https://{name}:6443");
        // Names of addresses: in cluster-info, in the EndpointSlice, in use, and chosen; and whether the
        // settings should choose.
        for (info, of_slice, in_use, expected, several) in [
            ("", "a b", "", "a", true),
            ("", "a", "", "a", false),
            ("", "b a", "a", "a", true),
            ("", "b c", "a", "b", true),
            ("", "a b", "b", "b", true),
            // Other pools use the second one.
            ("", "c b", "a b", "b", true),
            // cluster-info goes, comes, and confirms.
            ("", "a", "lb", "a", false),
            ("lb", "a b", "", "lb", false),
            ("lb", "a b", "b", "b", true),
            ("lb", "a", "c", "lb", false),
            ("a", "a b", "a", "a", false),
            // Nothing names an address.
            ("", "", "a b", "a", false),
            ("", "", "", "", false),
        ] {
            let addresses: Vec<&str> = of_slice.split_whitespace().collect();
            let info = Some(info).filter(|info| !info.is_empty());
            let info = info.map(|info| cluster_info(&address(info)));
            let sources: Vec<Discovered> = info.into_iter().chain([slice(&addresses)]).collect();
            let in_use: Vec<String> = in_use.split_whitespace().map(address).collect();
            let in_use: Vec<&str> = in_use.iter().map(String::as_str).collect();
            let choice = choose(&Settings::default(), &sources, &in_use, Some("OWN"));
            let found = choice.map(|choice| (choice.endpoint.api_server, choice.is_one_of_several));
            let expected = Some(expected).filter(|expected| !expected.is_empty());
            let expected = expected.map(|expected| (address(expected), several));
            assert_eq!(found, expected, "{of_slice} {in_use:?}");
        }
    }

    #[test]
    fn the_number_of_addresses_is_bounded() {
        let many: Vec<String> = (0..100).map(|i| format!("10.0.0.{i}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let found = slice(&many).api_servers;
        assert_eq!(found.len(), MAX_ADDRESSES);
        assert_eq!(found[1], "https://10.0.0.1:6443");
    }

    #[test]
    fn the_most_frequent_address_is_first() {
        assert_eq!(by_frequency(["c", "b", "a", "b"]), ["b", "a", "c"]);
        assert!(by_frequency([]).is_empty());
    }

    #[test]
    fn nonsense_in_cluster_info_is_nothing() {
        let info: ConfigMap = serde_json::from_value(json!({"data": {"kubeconfig": ": ["}})).unwrap();
        assert_eq!(Discovered::from_cluster_info(&info), Discovered::default());
    }
}
