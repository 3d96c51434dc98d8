//! Cloud-configs for coreos-cloudinit: read and applied by its own code.

use osm_judges::{coreos_apply, coreos_read};
use proptest::prelude::*;
use serde_json::json;

use crate::common::any_text::{Language, MACHINE_NAME};
use crate::common::flatcar::{assert_applied, documents, pool, render, spec};

#[test]
fn a_machine_gets_every_file_unit_and_key() {
    let pool = pool("anexia", json!({"provisioningUtility": "cloud-init"}));
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
}

/// Any text, those above all that some layer might trip over.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "(?s).{0,3000}",
        "([ -~\u{a1}-\u{ff}\u{1f600}\u{2028}\u{feff}]{0,60}\n){0,20}",
        "(\\\\|\\$private_ipv4|\\$public_ipv6|\\$|\"|'|a\n|: |\t|#| \n){0,40}",
        "([\\[\\]=#;\\\\ \n\r\tA%<>&\"'+\u{85}\u{a0}]|Install|Unit|MACHINE_NAME|%3C|\u{0}){0,40}",
        "(\\[Unit\\]\n)?( {0,3}[-?:&*!|>{}%@`]{0,3}[a-z~0-9_]{0,9}\n){0,9}",
    ]
}

#[test]
fn any_text_comes_out_as_it_went_in_or_is_refused() {
    let language = Language {
        utility: "cloud-init",
        encoding: None,
        read: |documents| coreos_read(documents).unwrap(),
    };
    let first = [
        "",
        "\n",
        "[A]",
        MACHINE_NAME,
        "\\$private_ipv4",
        "\\\\$private_ipv4$private_ipv4",
    ];
    language.passes_on_or_refuses(&first, &text());
}
