//! The model that templates see: the data, in which every field is always there and what is not set is null,
//! and the late-bound values that they may refer to.

use std::collections::{BTreeMap, BTreeSet};

use osm_api::config::{LateBound, LateBoundKind};
use osm_api::pool::Pool;
use osm_api::profile::TemplateEngine;
use osm_api::provider_spec::IpFamily;
use osm_api::settings::{ARCHITECTURES, Registry, Settings, Swap};
use osm_user_data::stage::Stage;
use osm_user_data::{clouds, late_bound, systems};
use serde_json::{Map, Value, json};
use strum::VariantArray;

use crate::downloads::{Artefact, Source};
use crate::{kubelet, no_proxy, subscription};
use osm_api::ClusterEndpoint;

/// Ids of late-bound values.
pub(crate) const API_TOKEN: &str = "api/token";
pub(crate) const KUBELET_TOKEN: &str = "kubelet/token";
pub(crate) const PROXY_URL: &str = "proxy/url";
pub(crate) const PROVISIONING_SECRET_NAME: &str = "provisioning/secret-name";
pub(crate) const KUBECONFIG_SECRET_NAME: &str = "kubelet/kubeconfig-secret-name";

pub(crate) fn data(pool: &Pool, settings: &Settings, cluster: &ClusterEndpoint) -> Value {
    let family = pool.network.ip_family.effective();
    let (cloud, system) = (
        clouds::cloud(pool.cloud_provider),
        systems::system(pool.operating_system),
    );
    json!({
        "kubelet": of_kubelet(pool, settings),
        "cloud": {
            "name": pool.cloud_provider,
            "external": is_external(pool, settings),
            "nodeName": cloud.node_name,
            "guestAgent": cloud.guest_agent.map(|agent| {
                json!({"package": agent.package, "unit": agent.unit(system.family)})
            }),
        },
        "os": {
            "name": pool.operating_system,
            "family": system.family,
            "selinux": system.selinux,
            "python": system.python,
            "distUpgradeOnBoot": pool.os.dist_upgrade_on_boot,
            "disableAutoUpdate": pool.os.disable_auto_update,
            "disableLocksmithD": pool.os.disable_locksmith_d,
            "disableUpdateEngine": pool.os.disable_update_engine,
        },
        "cluster": {
            "apiServer": cluster.api_server,
            "ca": cluster.ca,
            "dnsIPs": settings.cluster.dns_ips,
            "dnsDomain": settings.cluster.dns_domain,
        },
        "pool": {"name": pool.name, "namespace": pool.namespace},
        "network": {
            "ipFamily": family,
            "ipv4": family != IpFamily::IPv6,
            "ipv6": family != IpFamily::IPv4,
            "dualStack": matches!(family, IpFamily::IPv4IPv6 | IpFamily::IPv6IPv4),
            "static": pool.network.is_static().then(|| json!({
                "cidr": pool.network.cidr,
                "gateway": pool.network.gateway,
                "dnsServers": pool.network.dns.servers,
            })),
        },
        "proxy": {
            "http": settings.proxy.http,
            "noProxy": no_proxy::no_proxy(settings, cluster),
            "credentials": settings.proxy.credentials.is_some(),
        },
        "hostCABundle": settings.host_ca_bundle,
        "pauseImage": settings.pause_image,
        "initialTaints": settings.initial_taints,
        "overwriteCloudConfig": pool.overwrite_cloud_config,
        "containerd": {
            "registries": settings.containerd.registries.iter().map(registry).collect::<Vec<_>>(),
            "deviceOwnershipFromSecurityContext": settings.containerd.device_ownership_from_security_context,
        },
        "downloads": downloads(pool, settings),
        "packages": {"enabled": settings.packages.enabled, "install": settings.packages.install},
        "system": {"swap": swap(settings)},
    })
}

/// Swap is also left on where only the kubelet's configuration allows it.
fn swap(settings: &Settings) -> Value {
    let swap = settings.system.swap.as_ref();
    let configuration = settings.kubelet.configuration.as_ref();
    let allowed = configuration.and_then(|fields| fields.get("failSwapOn")) == Some(&json!(false));
    json!({
        "on": swap.is_some() || allowed,
        "behavior": swap.map(|swap| swap.behavior),
        "mebibytes": swap.and_then(Swap::mebibytes),
    })
}

/// Whether a cloud controller manager outside of Kubernetes initialises the nodes.
pub(crate) fn is_external(pool: &Pool, settings: &Settings) -> bool {
    settings.cluster.external_cloud_provider && clouds::cloud(pool.cloud_provider).external
}

/// The token with which a kubelet requests its client certificate.
pub(crate) fn kubelet_token() -> LateBound {
    of_pool(KUBELET_TOKEN, LateBoundKind::KubeletToken)
}

/// A late-bound value that secret-syncer makes for the pool.
fn of_pool(id: &str, kind: LateBoundKind) -> LateBound {
    LateBound {
        id: id.to_owned(),
        kind,
        source: None,
    }
}

/// The late-bound values that the templates of a stage may refer to, by id.
pub(crate) fn late_bound(
    stage: Stage,
    engine: TemplateEngine,
    settings: &Settings,
    pool: &Pool,
) -> BTreeMap<String, LateBound> {
    let mut known = Vec::new();
    let go = engine == TemplateEngine::GoTemplate;
    if stage == Stage::Bootstrap || go {
        known.push(of_pool(API_TOKEN, LateBoundKind::APIToken));
        known.push(kubelet_token());
    }
    if stage == Stage::Bootstrap {
        let kind = LateBoundKind::ProvisioningSecretName;
        known.push(of_pool(PROVISIONING_SECRET_NAME, kind));
        known.push(of_pool("provisioning/key", LateBoundKind::ProvisioningKey));
        known.push(of_pool("provisioning/sha256", LateBoundKind::ProvisioningDigest));
    }
    if go {
        let kind = LateBoundKind::KubeconfigSecretName;
        known.push(of_pool(KUBECONFIG_SECRET_NAME, kind));
    }
    // The bootstrap document has no proxy, so that its tokens are renewed even while the Secret is missing.
    if stage == Stage::Provisioning || go {
        known.extend(proxy(settings));
    }
    if stage == Stage::Provisioning {
        known.push(of_pool("pool/id", LateBoundKind::PoolID));
        known.push(of_pool("pool/content", LateBoundKind::ContentID));
        known.extend(subscription::late_bound(pool));
    }
    for registry in &settings.containerd.registries {
        let Some(secret) = &registry.credentials else {
            continue;
        };
        for (part, kind) in [
            ("username", LateBoundKind::RegistryUsername),
            ("password", LateBoundKind::RegistryPassword),
        ] {
            let id = format!("registry/{}/{part}", registry.host);
            let source = [secret.namespace.as_str(), &secret.name, &registry.host];
            known.push(late_bound::of_object(&id, kind, source));
        }
    }
    known.into_iter().map(|late| (late.id.clone(), late)).collect()
}

/// The URL of the proxy, if it has a user name and a password.
fn proxy(settings: &Settings) -> Option<LateBound> {
    let (url, secret) = (
        settings.proxy.http.as_ref()?,
        settings.proxy.credentials.as_ref()?,
    );
    let source = [secret.namespace.as_str(), &secret.name, url];
    Some(late_bound::of_object(PROXY_URL, LateBoundKind::ProxyURL, source))
}

/// The number of Secrets and ConfigMaps that hold these values.
pub(crate) fn sources<'a>(late_bound: impl IntoIterator<Item = &'a LateBound>) -> usize {
    let of_object = |late: &'a LateBound| {
        let source = late.source.as_ref()?;
        let is_map = match late.kind {
            LateBoundKind::ConfigMapKey => true,
            LateBoundKind::OperatingSystemSpecField => return None,
            _ => false,
        };
        Some((is_map, &source.namespace, &source.name))
    };
    let objects: BTreeSet<_> = late_bound.into_iter().filter_map(of_object).collect();
    objects.len()
}

fn of_kubelet(pool: &Pool, settings: &Settings) -> Value {
    let mut kubelet = json!({
        "version": pool.kubelet_version.to_string(),
        "minor": pool.kubelet_version.minor,
        "hostnameOverride": settings.kubelet.hostname_override != Some(false),
        "featureGates": settings.kubelet.feature_gates,
        "configuration": kubelet::drop_in(&settings.kubelet),
        "shutdownSeconds": kubelet::shutdown_seconds(&settings.kubelet),
    });
    if let (Value::Object(kubelet), Value::Object(annotations)) = (&mut kubelet, json!(pool.kubelet)) {
        kubelet.extend(annotations);
    }
    kubelet
}

/// Where containerd finds a registry itself, after its mirrors. `None`: it depends on the image.
pub(crate) fn server(registry: &Registry) -> Option<String> {
    match registry.host.as_str() {
        "_default" => None,
        "docker.io" => Some("https://registry-1.docker.io".to_owned()),
        host => Some(format!("https://{host}")),
    }
}

fn registry(registry: &Registry) -> Value {
    json!({
        "host": registry.host,
        "server": server(registry),
        "directory": registry.host,
        "mirrors": registry.mirrors,
        "credentials": registry.credentials.is_some(),
    })
}

fn downloads(pool: &Pool, settings: &Settings) -> Value {
    let of = |artefact: Artefact| {
        let source = Source::of(artefact, &settings.downloads, &pool.kubelet_version);
        let sums: Map<String, Value> = ARCHITECTURES
            .into_iter()
            .map(|architecture| (architecture.to_owned(), json!(source.sha256(architecture))))
            .collect();
        let mut download = json!({"version": source.version, "baseURL": source.base_url, "sha256": sums});
        if let (Artefact::Kubelet, Some(fields)) = (artefact, download.as_object_mut()) {
            // It is the pool's, not the settings'.
            fields.remove("version");
        }
        (artefact.name().to_owned(), download)
    };
    Artefact::VARIANTS
        .iter()
        .map(|artefact| of(*artefact))
        .collect::<Map<_, _>>()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths of all fields that have no others below.
    fn leaves(value: &Value, path: &str, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) if !map.is_empty() => {
                let separator = if path.is_empty() { "" } else { "." };
                map.iter()
                    .for_each(|(key, value)| leaves(value, &format!("{path}{separator}{key}"), found));
            }
            _ => drop(found.insert(path.to_owned())),
        }
    }

    #[test]
    fn the_documentation_lists_every_field() {
        let (_, table) = include_str!("../../../docs/templates.md")
            .split_once("\n## Data\n")
            .unwrap();
        let table = table.split("\n## ").next().unwrap();
        let (_, spec) = crate::defaults().pop().unwrap();
        let (_, pool) = crate::sample_pools(&spec).remove(0);
        let mut found = BTreeSet::new();
        leaves(
            &data(&pool, &Settings::default(), &crate::stand_in_cluster()),
            "",
            &mut found,
        );
        for field in found {
            // Such as `pool.name`, `.namespace`, and `.cni` with its fields in the next column.
            let dots: Vec<usize> = field.match_indices('.').map(|(at, _)| at).collect();
            let ends = dots.iter().copied().chain([field.len()]);
            let mut ways = ends.flat_map(|end| {
                let starts = dots.iter().copied().filter(move |start| *start < end);
                starts.chain([0]).map(move |start| (start, end))
            });
            let is_listed = ways.any(|(start, end)| table.contains(&format!("`{}`", &field[start..end])));
            assert!(is_listed, "{field}");
        }
    }
}
