//! What OpenStack gives a machine: the files of a config drive, or of the metadata service. Both are the same but for the network.

use std::net::Ipv4Addr;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::super::HOST;
use super::super::network::{Link, NETMASK};

/// The label by which cloud-init finds a config drive.
pub(super) const LABEL: &str = "config-2";

/// Names and content of the files in the folder `openstack/latest`.
pub(super) fn files(
    instance_id: &str,
    name: &str,
    user_data: &[u8],
    hook: &str,
    network: &Value,
) -> [(&'static str, Vec<u8>); 4] {
    let meta_data = json!({"uuid": instance_id, "name": name, "hostname": name});
    [
        ("meta_data.json", meta_data.to_string().into_bytes()),
        ("network_data.json", network.to_string().into_bytes()),
        ("vendor_data.json", json!(hook).to_string().into_bytes()),
        ("user_data", user_data.to_vec()),
    ]
}

/// The network as OpenStack describes it.
///
/// # Errors
/// With IPv6, which this does not describe.
pub(super) fn network(link: Link, address: Ipv4Addr, mac: &str) -> Result<Value> {
    ensure!(
        link.ipv4 && !link.ipv6,
        "a config drive is made only for networks of IPv4"
    );
    let routes = if link.routed {
        json!([{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": HOST}])
    } else {
        json!([])
    };
    Ok(with_card(
        mac,
        json!({"id": "network", "network_id": "lab", "type": "ipv4", "link": CARD, "ip_address": address, "netmask": NETMASK,
            "routes": routes}),
    ))
}

/// The same where the machine gets its address by DHCP.
pub(super) fn network_by_dhcp(mac: &str) -> Value {
    with_card(
        mac,
        json!({"id": "network", "network_id": "lab", "type": "ipv4_dhcp", "link": CARD}),
    )
}

const CARD: &str = "card";

fn with_card(mac: &str, network: Value) -> Value {
    json!({
        "links": [{"id": CARD, "type": "phy", "ethernet_mac_address": mac, "mtu": 1500}],
        "networks": [network],
        "services": [],
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_machine_gets_what_openstack_writes() {
        let address = Ipv4Addr::new(10, 217, 0, 17);
        let network = network(Link::default(), address, "52:54:00:d9:00:11").unwrap();
        let files = HashMap::from(files("i-one", "one", b"\x1f\x8b", "#cloud-boothook\n", &network));
        let read_json = |file: &str| serde_json::from_slice::<Value>(&files[file]).unwrap();
        assert_eq!(files["user_data"], b"\x1f\x8b");
        assert_eq!(read_json("vendor_data.json"), "#cloud-boothook\n");
        let meta_data = read_json("meta_data.json");
        assert_eq!(
            (&meta_data["uuid"], &meta_data["hostname"]),
            (&json!("i-one"), &json!("one"))
        );
        let described = &read_json("network_data.json")["networks"][0];
        assert_eq!(described["ip_address"], "10.217.0.17");
        assert_eq!(described["netmask"], "255.255.255.0");
        assert_eq!(described["routes"][0]["gateway"], "10.217.0.1");
        let isolated = Link {
            routed: false,
            ..Link::default()
        };
        let isolated = super::network(isolated, address, "m").unwrap();
        assert_eq!(isolated["networks"][0]["routes"], json!([]));
        let ipv6 = Link {
            ipv6: true,
            ..Link::default()
        };
        assert!(super::network(ipv6, address, "m").is_err());
    }

    #[test]
    fn the_network_with_dhcp_has_no_address() {
        let network = network_by_dhcp("52:54:00:d9:00:11");
        assert_eq!(network["links"][0]["ethernet_mac_address"], "52:54:00:d9:00:11");
        let described = &network["networks"][0];
        assert_eq!(
            (&described["type"], &described["link"]),
            (&json!("ipv4_dhcp"), &network["links"][0]["id"])
        );
        assert!(described.get("ip_address").is_none(), "{described}");
    }
}
