//! What OpenStack's metadata service gives a machine.

use serde_json::{Value, json};

/// Names and content of the files in the folder `openstack/latest`. The machine gets its address by DHCP, on
/// the card with the address `mac`.
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
