//! What OpenStack's metadata service gives a machine.

use serde_json::{Value, json};

/// Names and content of the files in the folder `openstack/latest`. The machine gets its address by DHCP, on the card with the address `mac`.
pub(super) fn files(
    instance_id: &str,
    name: &str,
    user_data: &[u8],
    hook: &str,
    mac: &str,
) -> [(&'static str, Vec<u8>); 4] {
    let meta_data = json!({"uuid": instance_id, "name": name, "hostname": name});
    let network = json!({
        "links": [{"id": "card", "type": "phy", "ethernet_mac_address": mac, "mtu": 1500}],
        "networks": [{"id": "network", "network_id": "lab", "type": "ipv4_dhcp", "link": "card"}],
        "services": [],
    });
    let bytes = |document: Value| document.to_string().into_bytes();
    [
        ("meta_data.json", bytes(meta_data)),
        ("network_data.json", bytes(network)),
        ("vendor_data.json", bytes(json!(hook))),
        ("user_data", user_data.to_vec()),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_machine_gets_what_openstack_writes() {
        let files = HashMap::from(files(
            "i-one",
            "one",
            b"\x1f\x8b",
            "#cloud-boothook\n",
            "52:54:00:d9:00:11",
        ));
        let read_json = |file: &str| serde_json::from_slice::<Value>(&files[file]).unwrap();
        assert_eq!(files["user_data"], b"\x1f\x8b");
        assert_eq!(read_json("vendor_data.json"), "#cloud-boothook\n");
        let meta_data = read_json("meta_data.json");
        assert_eq!(
            (&meta_data["uuid"], &meta_data["hostname"]),
            (&json!("i-one"), &json!("one"))
        );
        let network = read_json("network_data.json");
        assert_eq!(network["links"][0]["ethernet_mac_address"], "52:54:00:d9:00:11");
        assert_eq!(network["networks"][0]["link"], network["links"][0]["id"]);
        // The address comes by DHCP.
        assert!(network["networks"][0].get("ip_address").is_none());
    }
}
