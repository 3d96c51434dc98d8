//! Lists the destinations that nodes reach without the proxy.

use std::net::IpAddr;

use osm_api::cluster_endpoint::ClusterEndpoint;
use osm_api::settings::Settings;

/// Destinations that nodes reach without the proxy. The API server is always one: the kubelet and the
/// bootstrap use the proxy, too, and few proxies let them pass. So are mirrors that only Go's programs would
/// find among the entries.
pub(crate) fn no_proxy(settings: &Settings, cluster: &ClusterEndpoint) -> Option<String> {
    let listed = settings.proxy.no_proxy.iter().flat_map(|list| list.split(','));
    let mut entries: Vec<&str> = listed.collect();
    if settings.proxy.http.is_some() {
        let mut added: Vec<&str> = sources(settings).filter_map(host).collect();
        added.retain(|host| entries.iter().any(|entry| only_go_matches(entry, host)));
        for host in host(&cluster.api_server).into_iter().chain(added) {
            if !entries.contains(&host) {
                entries.push(host);
            }
        }
    }
    (!entries.is_empty()).then(|| entries.join(","))
}

/// The host of a URL, without the brackets of an IPv6 address.
pub(crate) fn host(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split('/').next()?;
    let (host, port) = match authority.strip_prefix('[') {
        Some(ipv6) => ipv6.split_once(']')?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let is_port = port.is_empty() || port.strip_prefix(':')?.parse::<u16>().is_ok();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':');
    let is_host = host.contains(|c: char| c.is_ascii_alphanumeric()) && host.chars().all(plain);
    Some(host).filter(|_| is_port && is_host)
}

/// Whether an entry of `proxy.noProxy` is a network with this address.
pub(crate) fn is_in(entry: &str, address: IpAddr) -> bool {
    let bits = |address| match address {
        IpAddr::V4(address) => u128::from(u32::from(address)) << 96,
        IpAddr::V6(address) => address.into(),
    };
    let network = entry
        .split_once('/')
        .and_then(|(network, length)| Some((network.parse::<IpAddr>().ok()?, length.parse::<u32>().ok()?)));
    network.is_some_and(|(network, length)| {
        let common = (bits(network) ^ bits(address)).leading_zeros();
        network.is_ipv4() == address.is_ipv4() && common >= length
    })
}

/// Whether Go's programs reach a host directly because of an entry that curl before 7.86 and Python don't
/// understand: a network, or `*` (`init` in
/// <https://cs.opensource.google/go/x/net/+/v0.43.0:http/httpproxy/proxy.go>).
fn only_go_matches(entry: &str, host: &str) -> bool {
    match entry.strip_prefix('*') {
        Some(domain) => host.ends_with(domain),
        None => host.parse().is_ok_and(|address| is_in(entry, address)),
    }
}

/// URLs from which machines download by other programs than Go's.
fn sources(settings: &Settings) -> impl Iterator<Item = &str> {
    let (downloads, packages) = (&settings.downloads, &settings.packages);
    let yum = packages.yum.repositories.iter();
    let apt = [&packages.apt.mirror, &packages.apt.security_mirror];
    [
        &downloads.kubelet.base_url,
        &downloads.containerd.base_url,
        &downloads.runc.base_url,
        &downloads.cni.base_url,
        &downloads.crictl.base_url,
    ]
    .into_iter()
    .chain(apt.into_iter().flatten())
    .chain(yum.flat_map(|repository| [&repository.base_url, &repository.gpg_key]))
    .map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_server_is_reached_without_the_proxy() {
        let of = |http: Option<&str>, listed: Option<&str>, api_server: &str| {
            let mut settings = Settings::default();
            settings.proxy.http = http.map(str::to_owned);
            settings.proxy.no_proxy = listed.map(str::to_owned);
            let cluster = ClusterEndpoint {
                api_server: api_server.to_owned(),
                ca: String::new(),
            };
            no_proxy(&settings, &cluster)
        };
        let proxy = Some("http://proxy:3128");
        for (listed, api_server, expected) in [
            (None, "https://api.example:6443", "api.example"),
            (Some(".svc"), "https://10.0.0.1:6443/path", ".svc,10.0.0.1"),
            (Some(".svc,10.0.0.1"), "https://10.0.0.1:6443", ".svc,10.0.0.1"),
            (Some(".svc"), "https://[fd00::1]:6443", ".svc,fd00::1"),
        ] {
            assert_eq!(of(proxy, listed, api_server).as_deref(), Some(expected));
        }
        let without_proxy = of(None, Some(".svc"), "https://api");
        assert_eq!(without_proxy.as_deref(), Some(".svc"));
        assert_eq!(of(proxy, None, "https://a\"b,c"), None, "this is no host");
    }

    #[test]
    fn mirrors_in_a_network_that_is_listed_are_reached_without_the_proxy() {
        for (listed, mirror, added) in [
            ("10.0.0.0/8", "http://10.20.0.5:8080/a", Some("10.20.0.5")),
            ("10.20.0.0/15,.svc", "https://10.21.0.5", Some("10.21.0.5")),
            ("fd00::/8", "http://[fd00::5]/a", Some("fd00::5")),
            ("*.site.example", "http://m.site.example/", Some("m.site.example")),
            ("10.20.0.0/16", "http://10.21.0.5/", None),
            ("fd00::/8", "http://10.20.0.5/", None),
            // Every program understands these.
            (".site.example", "http://m.site.example/", None),
            ("10.20.0.5", "http://10.20.0.5/", None),
        ] {
            let repository = format!("{{name: a, baseURL: '{mirror}', gpgKey: 'file:///a'}}");
            for field in [
                format!("downloads: {{kubelet: {{baseURL: '{mirror}'}}}}"),
                format!("packages: {{apt: {{securityMirror: '{mirror}'}}}}"),
                format!("packages: {{yum: {{repositories: [{repository}]}}}}"),
            ] {
                let text = format!("proxy: {{http: 'http://proxy:3128', noProxy: '{listed}'}}\n{field}\n");
                let found = no_proxy(&Settings::parse(&text).unwrap(), &crate::stand_in_cluster()).unwrap();
                let added = added.map(|added| format!(",{added}")).unwrap_or_default();
                assert_eq!(found, format!("{listed},api.cluster.example{added}"), "{field}");
            }
        }
    }
}
