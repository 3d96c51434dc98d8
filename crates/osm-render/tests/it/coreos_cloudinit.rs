//! Cloud-configs for coreos-cloudinit: read and applied by its own code.

use osm_api::profile::ProvisioningUtility;
use osm_judges::{coreos_apply, coreos_read};

use crate::common::any_text::{MACHINE_NAME, passes_on_or_refuses};
use crate::common::flatcar::{assert_applied, documents, pool, render, spec};
use crate::common::give_static_address;

#[test]
fn a_machine_gets_every_file_unit_and_key() {
    let mut pool = pool("anexia", ProvisioningUtility::CloudInit);
    give_static_address(&mut pool);
    let rendered = render(&spec("cloud-init", |_| {}), &pool).unwrap();
    assert_eq!(rendered.warnings, Vec::<String>::new());
    let [bootstrap, provisioning] = documents(&rendered);
    assert!(
        bootstrap.contains("gzip+base64") && bootstrap.contains("\\x24private_ipv4"),
        "{bootstrap}"
    );
    let root = tempfile::tempdir().unwrap();
    // At every boot.
    for _ in 0..2 {
        let calls = coreos_apply(&bootstrap, root.path()).unwrap();
        let expected = [
            "hostnamectl set-hostname pool-5d8f-x7k2p",
            "update-ssh-keys -u core -a coreos-cloudinit",
            "ssh-ed25519 AAAA a",
            "ssh-rsa BBBB \"b\"",
            "systemd enable fetch.service",
            "systemd daemon-reload",
            // By now it runs without the address.
            "systemd restart systemd-networkd.service",
            "systemd start fetch.service",
            "systemd stop update-engine.service",
        ];
        assert_eq!(calls, expected);
    }
    assert_eq!(coreos_apply(&provisioning, root.path()).unwrap(), [""; 0]);
    let sshd = "PasswordAuthentication no\nKbdInteractiveAuthentication no\n";
    assert_applied(
        root.path(),
        &[("/etc/ssh/sshd_config.d/10-osm.conf", 0o600, sshd)],
    );
    let network = root.path().join("etc/systemd/network/05-osm-static.network");
    assert!(std::fs::read_to_string(network).unwrap().contains("192.0.2.7"));
}

#[test]
fn any_text_comes_out_as_it_went_in_or_is_refused() {
    let first = [
        "",
        "\n",
        "[A]",
        MACHINE_NAME,
        "\\$private_ipv4",
        "\\\\$private_ipv4$private_ipv4",
    ];
    passes_on_or_refuses("cloud-init", None, &first, |documents| {
        coreos_read(documents).unwrap()
    });
}
