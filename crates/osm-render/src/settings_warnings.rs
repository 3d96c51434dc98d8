//! Warnings about settings that are valid, but can't do for a pool what was probably meant.

use std::net::IpAddr;

use osm_api::ClusterEndpoint;
use osm_api::pool::Pool;
use osm_api::provider_spec::IpFamily;
use osm_api::settings::Settings;

use crate::downloads::{Artefact, Source};
use crate::no_proxy::{host, is_in};

pub(crate) fn warnings(pool: &Pool, settings: &Settings, cluster: &ClusterEndpoint) -> Vec<String> {
    let network = service_network(settings).into_iter();
    network
        .chain(families(pool, settings, cluster))
        .chain(registries(settings))
        .chain(checksums(pool, settings))
        .collect()
}

/// Plugins of network providers take the proxy of containerd, and ask for the API server by the address of a
/// Service. The addresses of cluster DNS are Services, too, but for that of a cache on the node, which is
/// link-local.
fn service_network(settings: &Settings) -> Option<String> {
    let listed = settings.proxy.no_proxy.as_deref().unwrap_or_default();
    if settings.proxy.http.is_none() {
        let warning =
            "proxy.noProxy of the settings has no effect without proxy.http; set it, or remove proxy.noProxy";
        return (!listed.is_empty()).then(|| warning.to_owned());
    }
    let is_local = |address: IpAddr| match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let is_network = |entry: &str| entry == "*" || entry.contains('/');
    let mut addresses = settings.cluster.dns_ips.iter();
    let missing = addresses.find(|address| {
        let is_direct = |entry| entry == "*" || is_in(entry, **address);
        !listed
            .split(',')
            .any(|entry| is_direct(entry) || is_local(**address) && is_network(entry))
    })?;
    Some(format!(
        "proxy.noProxy of the settings has no network with {missing} of cluster.dnsIPs: network plugins would ask the proxy for Services, such as \
         that of the API server; add the network of Services, such as 10.96.0.0/12"
    ))
}

/// Addresses that machines and pods with one IP family can't reach.
fn families(pool: &Pool, settings: &Settings, cluster: &ClusterEndpoint) -> Vec<String> {
    let family = pool.network.ip_family.effective();
    let is_other = |address: &IpAddr| match family {
        IpFamily::IPv4 => address.is_ipv6(),
        IpFamily::IPv6 => address.is_ipv4(),
        _ => false,
    };
    let name = family.as_str();
    let mut warnings = Vec::new();
    let dns_ips = &settings.cluster.dns_ips;
    if dns_ips.iter().all(is_other) {
        warnings.push(format!(
            "cluster.dnsIPs of the settings has no {name} address, but the pool has the IP family {name}, so its pods can't resolve names; add the \
             {name} address of the Service of cluster DNS"
        ));
    }
    let urls = [
        ("cluster.apiServer", Some(&cluster.api_server)),
        ("proxy.http", settings.proxy.http.as_ref()),
    ];
    for (field, url) in urls.into_iter().filter_map(|(field, url)| Some((field, url?))) {
        let address = host(url).and_then(|host| host.parse().ok()).filter(is_other);
        warnings.extend(address.map(|address| {
            format!(
                "{field}: machines of this pool can't reach {address}, because the pool has the IP family {name}; set it to a name or an {name} \
                 address"
            )
        }));
    }
    warnings
}

/// Registries and mirrors that containerd asks in another way than people expect (`parseHostConfig` in
/// <https://github.com/containerd/containerd/blob/v2.2.0/core/remotes/docker/config/hosts.go>).
fn registries(settings: &Settings) -> Vec<String> {
    let mut warnings = Vec::new();
    for registry in &settings.containerd.registries {
        let host = &registry.host;
        if host == "registry-1.docker.io" {
            warnings.push(format!(
                "containerd.registries, host {host}: images of Docker Hub have the host docker.io, so they are not pulled by this entry; write \
                 docker.io"
            ));
        }
        for mirror in &registry.mirrors {
            let (url, path) = (&mirror.url, mirror.url.splitn(4, '/').nth(3).unwrap_or_default());
            let path = path.trim_end_matches('/');
            let problem = match mirror.override_path {
                false if path.starts_with("v2/") && !path.ends_with("/v2") => {
                    "containerd appends /v2 once more; set overridePath: true"
                }
                true if path.is_empty() => {
                    "with overridePath, containerd asks without /v2; append /v2 to the URL, or remove overridePath"
                }
                _ => continue,
            };
            warnings.push(format!(
                "containerd.registries, host {host}, mirror {url}: {problem}"
            ));
        }
    }
    warnings
}

/// Checksums of other versions than the pool's.
fn checksums(pool: &Pool, settings: &Settings) -> Vec<String> {
    let downloads = &settings.downloads;
    let by_version = [
        (Artefact::Kubelet, &downloads.kubelet.sha256),
        (Artefact::Crictl, &downloads.crictl.sha256),
    ];
    let missing = by_version.into_iter().filter_map(|(artefact, sums)| {
        let version = Source::of(artefact, downloads, &pool.kubelet_version).version?;
        let name = artefact.name();
        (!sums.is_empty() && !sums.contains_key(&version)).then(|| {
            format!("downloads.{name}.sha256 of the settings has no checksum of {version}, so this version is not pinned; add it")
        })
    });
    missing.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settings, the IP family of the pool, and the start of the only warning about both, or nothing.
    const DOUBTFUL: &str = r#"
proxy: {http: "http://p:3128"} => IPv4 => proxy.noProxy of the settings has no network with 10.96.0.10
proxy: {http: "http://p:3128", noProxy: "api.example,10.0.0.0/16,10.96.0.10"} => IPv4 => proxy.noProxy of the settings has no network
proxy: {http: "http://p:3128", noProxy: ".svc,10.96.0.0/12"} => IPv4 =>
proxy: {http: "http://p:3128", noProxy: "a,*"} => IPv4 =>
{proxy: {http: "http://p:3128", noProxy: ".svc"}, cluster: {dnsIPs: [169.254.20.10]}} => IPv4 => proxy.noProxy of the settings has no network
{proxy: {http: "http://p:3128", noProxy: "10.0.0.0/8"}, cluster: {dnsIPs: [169.254.20.10]}} => IPv4 =>
{proxy: {http: "http://p:3128", noProxy: "10.0.0.0/8"}, cluster: {dnsIPs: [10.96.0.10, "fd00::a"]}} => IPv4+IPv6 => proxy.noProxy of the settings has no network with fd00::a
proxy: {noProxy: ".svc"} => IPv4 => proxy.noProxy of the settings has no effect
{} => IPv6 => cluster.dnsIPs of the settings has no IPv6 address
{} => IPv4+IPv6 =>
cluster: {dnsIPs: ["fd00::a"]} => IPv4 => cluster.dnsIPs of the settings has no IPv4 address
cluster: {dnsIPs: [10.96.0.10, "fd00::a"]} => IPv6 =>
cluster: {dnsIPs: ["fd00::a"], apiServer: "https://10.0.0.1:6443"} => IPv6 => cluster.apiServer: machines of this pool can't reach 10.0.0.1
cluster: {dnsIPs: ["fd00::a"], apiServer: "https://[fd00::1]:6443"} => IPv6 =>
cluster: {apiServer: "https://[fd00::1]:6443"} => IPv4 => cluster.apiServer: machines of this pool can't reach fd00::1
{cluster: {dnsIPs: ["fd00::a"]}, proxy: {http: "http://10.0.0.1:3128", noProxy: "fd00::/8"}} => IPv6 => proxy.http: machines of this pool
containerd: {registries: [{host: registry-1.docker.io}]} => IPv4 => containerd.registries, host registry-1.docker.io: images of Docker Hub
containerd: {registries: [{host: docker.io, mirrors: [{url: "https://m/v2/hub"}]}]} => IPv4 => containerd.registries, host docker.io, mirror https://m/v2/hub: containerd appends
containerd: {registries: [{host: docker.io, mirrors: [{url: "https://m/", overridePath: true}]}]} => IPv4 => containerd.registries, host docker.io, mirror https://m/: with overridePath
containerd: {registries: [{host: docker.io, mirrors: [{url: "https://m/v2/hub", overridePath: true}, {url: "https://m/v2"}, {url: "https://m/a/v2/"}]}]} => IPv4 =>
downloads: {kubelet: {sha256: {1.34.1: {}}}} => IPv4 => downloads.kubelet.sha256 of the settings has no checksum of 1.34.2
downloads: {kubelet: {sha256: {1.34.1: {}, 1.34.2: {}}}, crictl: {sha256: {1.34.0: {}}}} => IPv4 =>
downloads: {crictl: {sha256: {1.34.0: {}}, version: 1.35.0}} => IPv4 => downloads.crictl.sha256 of the settings has no checksum of 1.35.0
downloads: {crictl: {sha256: {1.34.0: {}}, version: 1.35.0, enabled: false}} => IPv4 =>
"#;

    #[test]
    fn what_can_not_have_been_meant_is_named() {
        let (_, spec) = crate::defaults().pop().unwrap();
        let pools = crate::plain_pools(&spec, &[semver::Version::new(1, 34, 2)]);
        for row in DOUBTFUL.trim().lines() {
            let [text, family, expected] = row.split(" =>").collect::<Vec<_>>().try_into().unwrap();
            let settings = Settings::parse(text).unwrap();
            let mut pools = pools.iter().map(|(_, pool)| pool);
            let pool = pools.find(|pool| pool.network.ip_family.as_str() == family.trim());
            let mut cluster = crate::stand_in_cluster();
            cluster.api_server = settings.cluster.api_server.clone().unwrap_or(cluster.api_server);
            let warnings = warnings(pool.unwrap(), &settings, &cluster);
            assert_eq!(
                warnings.len(),
                usize::from(!expected.is_empty()),
                "{row}: {warnings:?}"
            );
            let mut warnings = warnings.iter();
            assert!(
                warnings.all(|warning| warning.starts_with(expected.trim())),
                "{row}"
            );
        }
    }
}
