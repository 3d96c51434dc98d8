//! Ignition configs: read by Ignition's own parser, applied by Ignition itself.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use osm_api::content::Content;
use osm_api::profile::ProvisioningUtility;
use osm_api::provider_spec::{Dns, Network};
use osm_api::{OperatingSystemProfileSpec, Pool};
use osm_judges::{
    MachineConfig, UserData, ignition_apply, ignition_configs, ignition_read, judge_user_data_batch,
};
use osm_render::{LateValues, Stage, placeholders, resolve, user_data};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::common::any_text::{Language, MACHINE_NAME};
use crate::common::flatcar::{pool, render};

fn spec(change: impl FnOnce(&mut Value)) -> OperatingSystemProfileSpec {
    let file = |path: &str, permissions: u32, data: &str| json!({"path": path, "permissions": permissions, "content": {"inline": {"data": data}}});
    let mut spec = json!({
        "osName": "flatcar", "osVersion": "1", "version": "v1.0.0", "templateEngine": "Handlebars",
        "provisioningUtility": "ignition", "supportedCloudProviders": [{"name": "aws"}, {"name": "openstack"}],
        "bootstrapConfig": {
            "files": [
                file("/etc/osm/token", 600, "Authorization: Bearer {{late \"api/token\" as=\"raw\"}}\n"),
                file("/opt/bin/fetch", 755, "#!/bin/sh\necho \"<MACHINE_NAME> of {{cluster.apiServer}}\"\n"),
                file("/opt/empty", 644, ""),
            ],
            "units": [
                {"name": "fetch.service", "enable": true,
                 "content": "[Service]\nExecStart=/opt/bin/fetch <MACHINE_NAME>\n[Install]\nWantedBy=multi-user.target\n"},
                {"name": "update-engine.service", "mask": true},
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

fn documents(spec: &Content, values: &LateValues) -> [String; 2] {
    Stage::ALL.map(|stage| user_data(spec, stage, values).unwrap())
}

fn read(document: &str) -> MachineConfig {
    ignition_read(&[("document", document)])
        .unwrap()
        .remove(0)
        .unwrap()
}

/// What machine-controller does with a bootstrap document.
fn named(document: &str, machine: &str) -> String {
    document
        .replace("<MACHINE_NAME>", machine)
        .replace("%3CMACHINE_NAME%3E", machine)
}

#[test]
fn a_machine_gets_every_file_unit_and_key() {
    let rendered = render(&spec(|_| {}), &pool("openstack", |_| {})).unwrap();
    assert_eq!(rendered.warnings, Vec::<String>::new());
    let mut values = placeholders(&rendered.spec);
    values.insert(
        "registry/a.example/password".to_owned(),
        "quo\"te %3CMACHINE_NAME%3E \\ \n".to_owned(),
    );
    let [bootstrap, provisioning] = documents(&rendered.spec, &values);
    let bootstrap = named(&bootstrap, "pool-5d8f-x7k2p");
    judge_user_data_batch(&[("bootstrap", &bootstrap), ("provisioning", &provisioning)].map(
        |(name, text)| UserData {
            name,
            text,
            kubelet: None,
        },
    ))
    .unwrap();

    let config = read(&bootstrap);
    assert_eq!(config.users.len(), 1);
    assert_eq!(config.users[0].name, "core");
    assert_eq!(config.users[0].keys, ["ssh-ed25519 AAAA a", "ssh-rsa BBBB \"b\""]);
    let toml = read(&provisioning).files.remove(0).content;
    let server = toml.parse::<toml::Table>().unwrap()["server"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(server, values["registry/a.example/password"]);

    let root = tempfile::tempdir().unwrap();
    let at = |path: &str| root.path().join(path.trim_start_matches('/'));
    let wanted = at("/etc/systemd/system/multi-user.target.wants/fetch.service");
    // Twice, as after a power cut.
    for _ in 0..2 {
        ignition_apply(&bootstrap, root.path()).unwrap();
    }
    assert!(fs::symlink_metadata(&wanted).unwrap().is_symlink());
    ignition_apply(&provisioning, root.path()).unwrap();

    for (path, mode, content) in [
        ("/etc/hostname", 0o644, "pool-5d8f-x7k2p"),
        ("/etc/machine-name", 0o600, "pool-5d8f-x7k2p"),
        ("/etc/osm/token", 0o600, "Authorization: Bearer api/token\n"),
        (
            "/opt/bin/fetch",
            0o755,
            "#!/bin/sh\necho \"pool-5d8f-x7k2p of https://api.cluster.example:6443\"\n",
        ),
        ("/opt/empty", 0o644, ""),
        (
            "/etc/systemd/system/sshd.service.d/10-a.conf",
            0o644,
            "[Service]\nNice=2\n",
        ),
        ("/etc/systemd/system/sshd.service.d/20-b.conf", 0o644, ""),
        ("/etc/osm/own.toml", 0o400, toml.as_str()),
    ] {
        assert_eq!(fs::read_to_string(at(path)).unwrap(), content, "{path}");
        let metadata = fs::metadata(at(path)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o7777, mode, "{path}");
        assert_eq!((metadata.uid(), metadata.gid()), (0, 0), "{path}");
    }
    let unit = fs::read_to_string(at("/etc/systemd/system/fetch.service")).unwrap();
    assert!(unit.contains("ExecStart=/opt/bin/fetch pool-5d8f-x7k2p\n"));
    assert!(fs::symlink_metadata(&wanted).unwrap().is_symlink());
    let masked = fs::read_link(at("/etc/systemd/system/update-engine.service")).unwrap();
    assert_eq!(masked, Path::new("/dev/null"));
    let keys = at("/home/core/.ssh/authorized_keys.d/ignition");
    assert_eq!(
        fs::read_to_string(&keys).unwrap().trim(),
        "ssh-ed25519 AAAA a\nssh-rsa BBBB \"b\""
    );
    assert_eq!(fs::metadata(&keys).unwrap().uid(), 500);
}

#[test]
fn static_networks_are_for_flatcar() {
    let network = Network {
        cidr: "192.0.2.7/24".to_owned(),
        gateway: "192.0.2.1".to_owned(),
        dns: Dns {
            servers: vec!["192.0.2.2".to_owned()],
        },
        ..Network::default()
    };
    let with_network = |network: &Network| Pool {
        network: network.clone(),
        ..pool("openstack", |_| {})
    };
    let rendered = render(&spec(|_| {}), &with_network(&network)).unwrap().spec;
    let [bootstrap, provisioning] = documents(&rendered, &placeholders(&rendered));
    let config = read(&bootstrap);
    let file = config
        .files
        .iter()
        .find(|file| file.path.ends_with(".network"))
        .unwrap();
    assert!(
        file.content
            .contains("Address=192.0.2.7/24\nGateway=192.0.2.1\nDNS=192.0.2.2\n")
    );
    assert!(
        read(&provisioning)
            .files
            .iter()
            .all(|file| !file.path.ends_with(".network"))
    );

    let half = Network {
        gateway: String::new(),
        ..network.clone()
    };
    let error = render(&spec(|_| {}), &with_network(&half)).unwrap_err();
    assert_eq!(error.reason(), "UnsupportedNetwork");
    assert!(error.to_string().contains("gateway"), "{error}");
    let ubuntu = spec(|spec| {
        spec["osName"] = json!("ubuntu");
        spec["provisioningUtility"] = json!("cloud-init");
    });
    let pool = pool("openstack", |provider| {
        provider["operatingSystem"] = json!("ubuntu")
    });
    let error = render(
        &ubuntu,
        &Pool {
            network,
            ..pool.clone()
        },
    )
    .unwrap_err();
    assert_eq!(error.reason(), "UnsupportedNetwork");
    assert!(render(&ubuntu, &pool).is_ok());
}

#[test]
fn profile_and_pool_must_agree_on_the_utility() {
    let cloud_init = pool("aws", |provider| {
        provider["operatingSystemSpec"] = json!({"provisioningUtility": "cloud-init"});
    });
    let error = render(&spec(|_| {}), &cloud_init).unwrap_err();
    assert_eq!(error.reason(), "UnsupportedProvisioningUtility");
    let text = error.to_string();
    assert!(
        text.contains("for ignition") && text.contains("use cloud-init"),
        "{text}"
    );
    assert!(text.contains("k8c.io/operating-system-profile"), "{text}");

    // Ubuntu's kind of upgrade is not Flatcar's.
    let upgrade = pool("aws", |provider| {
        provider["operatingSystemSpec"] = json!({"distUpgradeOnBoot": true})
    });
    let rendered = render(&spec(|_| {}), &upgrade).unwrap();
    assert!(rendered.warnings[0].contains("distUpgradeOnBoot"));
    assert_eq!(rendered.spec.bootstrap_config.modules, None);
}

#[test]
fn what_ignition_can_not_do_is_said_where_the_profile_is_judged() {
    let file = |path: &str, permissions: u32| json!([{"path": path, "permissions": permissions, "content": {"inline": {"data": ""}}}]);
    type Change = Box<dyn Fn(&mut Value)>;
    let cases: Vec<(&str, Change)> = vec![
        (
            "ubuntu does not support",
            Box::new(|spec| spec["osName"] = json!("ubuntu")),
        ),
        (
            "bootstrapConfig.modules.runcmd: Flatcar applies no modules",
            Box::new(|spec| spec["bootstrapConfig"]["modules"] = json!({"runcmd": ["true"]})),
        ),
        (
            "no package manager",
            Box::new(|spec| spec["provisioningConfig"]["modules"] = json!({"packages": []})),
        ),
        (
            "modules.users: Flatcar applies no modules",
            Box::new(|spec| spec["provisioningConfig"]["modules"] = json!({"users": []})),
        ),
        (
            "(/usr/bin/a): /usr is read-only",
            Box::new(move |spec| spec["bootstrapConfig"]["files"] = file("/usr/bin/a", 644)),
        ),
        (
            "(/proc/sys/kernel/panic): Ignition writes files before",
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
        (
            "/opt/empty/b is below a path that is itself a file",
            Box::new(|spec| spec["bootstrapConfig"]["files"][0]["path"] = json!("/opt/empty/b")),
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
        (
            "fetch.service: line 2 is no [Section]",
            "[Service]\nExecStart\n[Install]\n",
        ),
    ] {
        let spec = spec(|spec| spec["bootstrapConfig"]["units"][0]["content"] = json!(unit));
        let error = render(&spec, &pool("aws", |_| {})).unwrap_err();
        assert_eq!(error.reason(), "UserDataInvalid");
        assert!(error.to_string().contains(problem), "{error}");
    }
}

/// [`MACHINE_NAME`] in a URL.
const ESCAPED: &str = "%3CMACHINE_NAME%3E";

/// Any text, those above all that some layer might trip over.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "(?s).{0,3000}",
        "([\\[\\]=#;\\\\ \n\r\tA%<>&\"'+\u{85}\u{a0}]|Install|Unit|MACHINE_NAME|%3C|\u{0}){0,40}",
        "(\\[[A-Z]{0,3}\\]?\n|[A-C]? ?=x?\\\\?\n|#.?\\\\? ?\n|\n){0,12}",
        "\\[Unit\\]\nA=.{1900,2200}\n",
        "(#.{0,9}\n){0,2}(\\[[A-Z][a-z]{1,8}\\]\n([A-Z]=[^\r\n]{0,30}\n){1,3}){1,3}",
    ]
}

/// It refuses what occurs twice, which a profile for the Go implementation may contain.
#[test]
fn ignition_takes_a_go_profile_that_lists_things_twice() {
    let file = |path: &str| json!({"path": path, "content": {"inline": {"data": "text"}}});
    let (one, two) = (
        json!({"name": "a.conf", "content": "[Unit]\n"}),
        json!({"name": "a.conf", "content": "[Service]\n"}),
    );
    let unit = json!({"name": "a.service", "content": "[Service]\nExecStart=/a\n", "dropIns": [one, two]});
    let stage = json!({
        "files": [file("/a"), file("//a"), file("/etc/hostname"), file("/etc/systemd/system/a.service"),
            file("/etc/systemd/system/a.service.d/a.conf")],
        "units": [unit, unit],
    });
    let spec = spec(|spec| {
        spec["templateEngine"] = json!("GoTemplate");
        (spec["bootstrapConfig"], spec["provisioningConfig"]) = (stage.clone(), stage);
    });
    let rendered = render(&spec, &pool("openstack", |_| {})).unwrap();
    for document in documents(&rendered.spec, &placeholders(&rendered.spec)) {
        ignition_configs(&[("document", &document)]).unwrap();
        let files = read(&document).into_files();
        let of = |path: &str| files.iter().filter(|file| file.path == path).collect::<Vec<_>>();
        assert_eq!(of("/a").len(), 1, "{document}");
        let unit = of("/etc/systemd/system/a.service");
        assert_eq!(
            (unit.len(), unit[0].content.contains("ExecStart")),
            (1, true),
            "{document}"
        );
        let drop_in = of("/etc/systemd/system/a.service.d/a.conf");
        assert_eq!(
            (drop_in.len(), drop_in[0].content.as_str()),
            (1, "[Service]\n"),
            "{document}"
        );
    }
}

#[test]
fn any_text_comes_out_as_it_went_in_or_is_refused() {
    let language = Language {
        spec: Content {
            provisioning_utility: ProvisioningUtility::Ignition,
            ..Content::default()
        },
        encoding: Some("b64"),
        replaced: &[MACHINE_NAME, ESCAPED],
        passed_on: |document| document,
        read: |documents| ignition_read(documents).unwrap(),
        files: MachineConfig::into_files,
    };
    let first = [
        "",
        "\n",
        "[A]",
        "[A]\nb=\\",
        "#\\\n[A]\nb=c",
        "[A]\n#\\\n",
        "[A]\nb",
        MACHINE_NAME,
        ESCAPED,
    ];
    language.passes_on_or_refuses(&first, &text());
}
