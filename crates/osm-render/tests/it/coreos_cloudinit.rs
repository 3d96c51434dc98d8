//! Cloud-configs for coreos-cloudinit: read and applied by its own code.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use osm_api::content::Content;
use osm_api::profile::{OperatingSystem, ProvisioningUtility};
use osm_api::{OperatingSystemProfileSpec, Pool};
use osm_judges::{MachineConfig, coreos_apply, coreos_read};
use osm_render::{Stage, placeholders, resolve, user_data};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common::any_text::{Language, MACHINE_NAME};
use crate::common::flatcar::{self, render};

fn spec(change: impl FnOnce(&mut Value)) -> OperatingSystemProfileSpec {
    let file = |path: &str, permissions: u32, data: &str| json!({"path": path, "permissions": permissions, "content": {"inline": {"data": data}}});
    let mut spec = json!({
        "osName": "flatcar", "osVersion": "1", "version": "v1.0.0", "templateEngine": "Handlebars",
        "provisioningUtility": "cloud-init", "supportedCloudProviders": [{"name": "anexia"}, {"name": "aws"}],
        "bootstrapConfig": {
            "files": [
                file("/etc/osm/token", 600, "Authorization: Bearer {{late \"api/token\" as=\"raw\"}}\n"),
                file("/opt/bin/fetch", 755, "#!/bin/sh\necho \"<MACHINE_NAME> of {{cluster.apiServer}}, $private_ipv4\"\n"),
                file("/opt/long", 644, &"all work and no play\n".repeat(50)),
                file("/opt/empty", 644, ""),
            ],
            "units": [
                {"name": "update-engine.service", "mask": true},
                {"name": "fetch.service", "enable": true,
                 "content": "[Service]\nExecStart=/opt/bin/fetch <MACHINE_NAME> \\$public_ipv6\n[Install]\nWantedBy=multi-user.target\n"},
                {"name": "sshd.service", "dropIns": [
                    {"name": "10-a.conf", "content": "[Service]\nNice={{#if proxy.http}}1{{else}}2{{/if}}\n"},
                    {"name": "20-b.conf", "content": "{{#if proxy.http}}[Service]\n{{/if}}"},
                ]},
            ],
        },
        "provisioningConfig": {
            "files": [file("/etc/osm/own.toml", 400, "server = {{late \"registry/a.example/password\" as=\"toml\"}}\n")],
        },
    });
    change(&mut spec);
    serde_json::from_value(spec).unwrap()
}

fn pool(cloud: &str, change: impl FnOnce(&mut Value)) -> Pool {
    flatcar::pool(cloud, |provider| {
        provider["operatingSystemSpec"] = json!({"provisioningUtility": "cloud-init"});
        change(provider);
    })
}

fn bootstrap(spec: &OperatingSystemProfileSpec, pool: &Pool) -> String {
    let rendered = render(spec, pool).unwrap().spec;
    // What machine-controller does with a bootstrap document.
    let document = user_data(&rendered, Stage::Bootstrap, &placeholders(&rendered)).unwrap();
    document.replace("<MACHINE_NAME>", "pool-5d8f-x7k2p")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_machine_gets_every_file_unit_and_key() {
    let rendered = render(&spec(|_| {}), &pool("anexia", |_| {})).unwrap();
    assert_eq!(rendered.warnings, Vec::<String>::new());
    let document = bootstrap(&spec(|_| {}), &pool("anexia", |_| {}));
    assert!(
        document.contains("gzip+base64") && document.contains("\\x24private_ipv4"),
        "{document}"
    );
    let root = tempfile::tempdir().unwrap();
    let at = |path: &str| root.path().join(path.trim_start_matches('/'));
    // At every boot.
    for _ in 0..2 {
        let calls = coreos_apply(&document, root.path()).unwrap();
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
    for (path, expected, content) in [
        ("/etc/machine-name", 0o600, "pool-5d8f-x7k2p"),
        (
            "/etc/ssh/sshd_config.d/10-osm.conf",
            0o600,
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\n",
        ),
        ("/etc/osm/token", 0o600, "Authorization: Bearer api/token\n"),
        (
            "/opt/bin/fetch",
            0o755,
            "#!/bin/sh\necho \"pool-5d8f-x7k2p of https://api.cluster.example:6443, $private_ipv4\"\n",
        ),
        ("/opt/long", 0o644, &"all work and no play\n".repeat(50)),
        ("/opt/empty", 0o644, ""),
        (
            "/etc/systemd/system/sshd.service.d/10-a.conf",
            0o644,
            "[Service]\nNice=2\n",
        ),
        ("/etc/systemd/system/sshd.service.d/20-b.conf", 0o644, ""),
    ] {
        assert_eq!(fs::read_to_string(at(path)).unwrap(), content, "{path}");
        assert_eq!(mode(&at(path)), expected, "{path}");
    }
    let unit = fs::read_to_string(at("/etc/systemd/system/fetch.service")).unwrap();
    assert!(
        unit.contains("ExecStart=/opt/bin/fetch pool-5d8f-x7k2p \\$public_ipv6\n"),
        "{unit}"
    );
    let masked = fs::read_link(at("/etc/systemd/system/update-engine.service")).unwrap();
    assert_eq!(masked, Path::new("/dev/null"));

    let mut values = placeholders(&rendered.spec);
    values.insert(
        "registry/a.example/password".to_owned(),
        "quo\"te $public_ipv4 \\ \n".to_owned(),
    );
    let provisioning = user_data(&rendered.spec, Stage::Provisioning, &values).unwrap();
    assert_eq!(coreos_apply(&provisioning, root.path()).unwrap(), [""; 0]);
    let toml: toml::Table = fs::read_to_string(at("/etc/osm/own.toml"))
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(
        toml["server"].as_str(),
        Some(values["registry/a.example/password"].as_str())
    );
    assert_eq!(mode(&at("/etc/osm/own.toml")), 0o400);
}

#[test]
fn a_static_network_is_there_before_anything_is_started() {
    let pool = pool("anexia", |provider| {
        provider["network"] =
            json!({"cidr": "192.0.2.7/24", "gateway": "192.0.2.1", "dns": {"servers": ["192.0.2.2"]}});
    });
    let root = tempfile::tempdir().unwrap();
    let calls = coreos_apply(&bootstrap(&spec(|_| {}), &pool), root.path()).unwrap();
    let at = |call: &str| calls.iter().position(|made| made == call).unwrap();
    assert!(
        at("systemd restart systemd-networkd.service") < at("systemd start fetch.service"),
        "{calls:?}"
    );
    let file = root.path().join("etc/systemd/network/05-osm-static.network");
    assert!(
        fs::read_to_string(file)
            .unwrap()
            .contains("Address=192.0.2.7/24\nGateway=192.0.2.1\n")
    );
}

#[test]
fn what_coreos_cloudinit_can_not_do_is_said_where_the_profile_is_judged() {
    let file = |path: &str, permissions: u32| json!([{"path": path, "permissions": permissions, "content": {"inline": {"data": ""}}}]);
    type Change = Box<dyn Fn(&mut Value)>;
    let module = |name: &'static str| -> Change {
        Box::new(move |spec| spec["bootstrapConfig"]["modules"] = json!({name: []}))
    };
    let cases: Vec<(&str, Change)> = vec![
        (
            "bootstrapConfig.modules.runcmd: Flatcar applies no",
            module("runcmd"),
        ),
        ("no package manager", module("packages")),
        (
            "(/usr/bin/a): /usr is read-only",
            Box::new(move |spec| spec["bootstrapConfig"]["files"] = file("/usr/bin/a", 644)),
        ),
        (
            "(/proc/sys/kernel/panic): coreos-cloudinit creates new files",
            Box::new(move |spec| spec["bootstrapConfig"]["files"] = file("/proc/sys/kernel/panic", 644)),
        ),
        (
            "777 or less",
            Box::new(move |spec| spec["bootstrapConfig"]["files"] = file("/opt/a", 4755)),
        ),
        (
            "written more than once",
            Box::new(move |spec| spec["bootstrapConfig"]["files"] = file("/etc/hostname", 644)),
        ),
    ];
    for (problem, change) in cases {
        let error = resolve(&spec(change)).unwrap_err();
        assert_eq!(error.reason(), "ProfileInvalid");
        assert!(error.to_string().contains(problem), "{error}");
    }
    // What only shows when it is rendered.
    for (problem, unit) in [
        ("has no [Install] section", "[Service]\nExecStart=/a\n"),
        ("control characters", "[Service]\nExecStart=/a\r\n[Install]\n"),
    ] {
        let spec = spec(|spec| spec["bootstrapConfig"]["units"][1]["content"] = json!(unit));
        let error = render(&spec, &pool("aws", |_| {})).unwrap_err();
        assert_eq!(error.reason(), "UserDataInvalid");
        assert!(error.to_string().contains(problem), "{error}");
    }
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

/// What machine-controller does with the lines of a bootstrap document.
fn without_blanks(document: &str) -> String {
    let blank = |line: &str| !line.is_empty() && line.chars().all(|c| c == ' ' || c == '\t');
    let lines: Vec<&str> = document
        .split('\n')
        .map(|line| if blank(line) { "" } else { line })
        .collect();
    lines.join("\n")
}

#[test]
fn any_text_comes_out_as_it_went_in_or_is_refused() {
    let language = Language {
        spec: Content {
            os_name: Some(OperatingSystem::Flatcar),
            provisioning_utility: ProvisioningUtility::CloudInit,
            ..Content::default()
        },
        encoding: None,
        replaced: &[MACHINE_NAME],
        passed_on: |document| without_blanks(&document),
        read: |documents| coreos_read(documents).unwrap(),
        files: MachineConfig::into_files,
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
