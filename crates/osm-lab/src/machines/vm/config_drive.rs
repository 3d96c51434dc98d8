//! The disk of cloud-init's data source ConfigDrive, as OpenStack makes it.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::super::HOST;
use super::super::network::{Link, NETMASK};

/// The label by which cloud-init finds it.
pub(super) const LABEL: &str = "config-2";

/// Writes the content of the disk into a folder.
pub(super) fn write(folder: &Path, name: &str, user_data: &[u8], hook: &str, network: &Value) -> Result<()> {
    let latest = folder.join("openstack/latest");
    fs::create_dir_all(&latest).with_context(|| latest.display().to_string())?;
    // The same at every boot: a new id would be a new machine to cloud-init.
    let meta_data = json!({"uuid": format!("i-{name}"), "name": name, "hostname": name});
    for (file, content) in [
        ("meta_data.json", meta_data.to_string().as_bytes()),
        ("network_data.json", network.to_string().as_bytes()),
        ("vendor_data.json", json!(hook).to_string().as_bytes()),
        ("user_data", user_data),
    ] {
        fs::write(latest.join(file), content).with_context(|| file.to_owned())?;
    }
    Ok(())
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
    Ok(json!({
        "links": [{"id": "card", "type": "phy", "ethernet_mac_address": mac, "mtu": 1500}],
        "networks": [{"id": "network", "network_id": "lab", "type": "ipv4", "link": "card", "ip_address": address,
            "netmask": NETMASK, "routes": routes}],
        "services": [],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_has_what_openstack_writes() {
        let folder = tempfile::tempdir().unwrap();
        let address = Ipv4Addr::new(10, 217, 0, 17);
        let network = network(Link::default(), address, "52:54:00:d9:00:11").unwrap();
        write(folder.path(), "one", b"\x1f\x8b", "#cloud-boothook\n", &network).unwrap();
        let read = |file: &str| fs::read(folder.path().join("openstack/latest").join(file)).unwrap();
        let read_json = |file: &str| serde_json::from_slice::<Value>(&read(file)).unwrap();
        assert_eq!(read("user_data"), b"\x1f\x8b");
        assert_eq!(read_json("vendor_data.json"), "#cloud-boothook\n");
        assert_eq!(read_json("meta_data.json")["uuid"], "i-one");
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
}
