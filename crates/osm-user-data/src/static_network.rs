//! The static network of a pool, for systemd-networkd.

use std::net::IpAddr;

use osm_api::profile::File;
use osm_api::provider_spec::Network;

/// Sorts before what the system brings along.
const PATH: &str = "/etc/systemd/network/05-osm-static.network";

/// Name of the static network's file, if `path` is that.
pub fn unit(path: &str) -> Option<&str> {
    path.rsplit_once('/')
        .filter(|_| path == PATH)
        .map(|(_, name)| name)
}

/// The file that configures the network; none where addresses are asked for.
pub fn file(network: &Network) -> Result<Option<File>, String> {
    if !network.is_static() {
        return Ok(None);
    }
    let (address, length) = network.cidr.split_once('/').unwrap_or((&network.cidr, ""));
    let parsed: IpAddr = address
        .parse()
        .map_err(|_| "cidr must be the machine's address with its prefix length, such as 192.0.2.7/24")?;
    let most = if parsed.is_ipv4() { 32 } else { 128 };
    let length: u8 = length
        .parse()
        .ok()
        .filter(|length| (1..=most).contains(length))
        .ok_or_else(|| format!("cidr must end in a prefix length from /1 to /{most}, such as {parsed}/24"))?;
    let gateway: IpAddr = network
        .gateway
        .parse()
        .map_err(|_| "gateway must be an address, such as 192.0.2.1")?;
    if gateway.is_ipv4() != parsed.is_ipv4() {
        return Err("gateway must be of the same family as cidr".to_owned());
    }
    let mut servers = String::new();
    for server in &network.dns.servers {
        let server: IpAddr = server.parse().map_err(|_| "dns.servers must be addresses")?;
        servers.push_str(&format!("DNS={server}\n"));
    }
    // By name: the interfaces of the network plugin are of the same type.
    let data = format!(
        "[Match]\nName=en* eth*\n\n[Network]\nDHCP=no\nAddress={parsed}/{length}\nGateway={gateway}\n{servers}"
    );
    Ok(Some(File::of_text(PATH, 644, data)))
}

#[cfg(test)]
mod tests {
    use osm_api::provider_spec::{Dns, IpFamily};

    use super::*;

    fn network(cidr: &str, gateway: &str, servers: &[&str]) -> Network {
        Network {
            cidr: cidr.to_owned(),
            gateway: gateway.to_owned(),
            dns: Dns {
                servers: servers.iter().map(|server| (*server).to_owned()).collect(),
            },
            ip_family: IpFamily::IPv4,
        }
    }

    #[test]
    fn a_static_network_is_a_file_or_a_mistake() {
        assert_eq!(file(&Network::default()), Ok(None));
        let four = network("192.0.2.7/24", "192.0.2.1", &["192.0.2.2", "2001:db8::2"]);
        let text = file(&four).unwrap().unwrap().content.inline.unwrap().data;
        assert!(text.contains("\nAddress=192.0.2.7/24\nGateway=192.0.2.1\nDNS=192.0.2.2\nDNS=2001:db8::2\n"));
        assert!(file(&network("2001:db8::7/64", "2001:db8::1", &[])).is_ok());
        for (network, problem) in [
            (network("", "192.0.2.1", &[]), "cidr"),
            (network("192.0.2.7", "192.0.2.1", &[]), "prefix"),
            (network("192.0.2.7/33", "192.0.2.1", &[]), "prefix"),
            (network("192.0.2.7/24\n[Match]", "192.0.2.1", &[]), "prefix"),
            (network("192.0.2.7/24", "", &[]), "gateway"),
            (network("192.0.2.7/24", "2001:db8::1", &[]), "family"),
            (network("192.0.2.7/24", "192.0.2.1", &["one.example"]), "dns"),
            (network("", "", &["192.0.2.2"]), "cidr"),
        ] {
            assert!(file(&network).unwrap_err().contains(problem), "{network:?}");
        }
    }
}
