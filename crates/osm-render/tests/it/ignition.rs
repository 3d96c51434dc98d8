//! Ignition configs: read by Ignition's own parser, applied by Ignition itself.

use std::fs;
use std::os::unix::fs::MetadataExt;

use osm_api::profile::ProvisioningUtility::{CloudInit, Ignition};
use osm_judges::{MachineConfig, ignition_apply, ignition_read};
use osm_render::resolve;
use serde_json::json;

use crate::common::any_text::{MACHINE_NAME, passes_on_or_refuses};
use crate::common::flatcar::{MACHINE, assert_applied, documents, pool, render, spec};
use crate::common::table;

fn read(document: &str) -> MachineConfig {
    ignition_read(&[("document", document)])
        .unwrap()
        .remove(0)
        .unwrap()
}

#[test]
fn a_machine_gets_every_file_unit_and_key() {
    let rendered = render(&spec("ignition", |_| {}), &pool("openstack", Ignition)).unwrap();
    assert_eq!(rendered.warnings, Vec::<String>::new());
    let [bootstrap, provisioning] = documents(&rendered);
    let config = read(&bootstrap);
    assert_eq!(config.users.len(), 1);
    assert_eq!(config.users[0].name, "core");
    assert_eq!(config.users[0].keys, ["ssh-ed25519 AAAA a", "ssh-rsa BBBB \"b\""]);

    let root = tempfile::tempdir().unwrap();
    let wanted = "etc/systemd/system/multi-user.target.wants/fetch.service";
    let is_wanted = || fs::symlink_metadata(root.path().join(wanted)).is_ok_and(|link| link.is_symlink());
    // Twice, as after a power cut.
    for _ in 0..2 {
        ignition_apply(&bootstrap, root.path()).unwrap();
    }
    assert!(is_wanted());
    ignition_apply(&provisioning, root.path()).unwrap();
    assert!(is_wanted());
    assert_applied(root.path(), &[("/etc/hostname", 0o644, MACHINE)]);
    let keys = root.path().join("home/core/.ssh/authorized_keys.d/ignition");
    let text = fs::read_to_string(&keys).unwrap();
    assert_eq!(text.trim(), "ssh-ed25519 AAAA a\nssh-rsa BBBB \"b\"");
    assert_eq!(fs::metadata(&keys).unwrap().uid(), 500);
}

#[test]
fn profile_and_pool_must_agree_on_the_utility() {
    let spec = spec("ignition", |_| {});
    let cloud_init = pool("aws", CloudInit);
    let error = render(&spec, &cloud_init).unwrap_err();
    assert_eq!(error.reason(), "UnsupportedProvisioningUtility");
    for text in [
        "for ignition",
        "use cloud-init",
        "k8c.io/operating-system-profile",
    ] {
        assert!(error.to_string().contains(text), "{error}");
    }
    // Ubuntu's kind of upgrade is not Flatcar's.
    let mut upgrade = pool("aws", Ignition);
    upgrade.os.dist_upgrade_on_boot = true;
    let rendered = render(&spec, &upgrade).unwrap();
    assert!(rendered.warnings[0].contains("distUpgradeOnBoot"));
    assert_eq!(rendered.spec.bootstrap_config.modules, None);
}

/// Who refuses a bootstrap stage, the stage, and a part of the message. A test of Go templates has more,
/// which are refused in every language.
const MISTAKES: &str = r#"
both | {"modules": {"packages": []}} | no package manager
both | {"modules": {"users": []}} | modules.users: Flatcar applies no modules
both | {"files": [{"path": "/etc/hostname", "content": {"inline": {"data": ""}}}]} | written more than once
ignition | {"files": [{"path": "/proc/a", "content": {"inline": {"data": ""}}}]} | Ignition writes files before
cloud-init | {"files": [{"path": "/proc/a", "content": {"inline": {"data": ""}}}]} | coreos-cloudinit creates new files
"#;

#[test]
fn what_flatcar_can_not_do_is_said_where_the_profile_is_judged() {
    for [who, stage, problem] in table(MISTAKES, " | ") {
        for utility in ["ignition", "cloud-init"] {
            if who == "both" || who == utility {
                let stage = serde_json::from_str(stage).unwrap();
                let error = resolve(&spec(utility, |spec| spec["bootstrapConfig"] = stage)).unwrap_err();
                assert_eq!(error.reason(), "ProfileInvalid");
                assert!(error.to_string().contains(problem), "{utility}: {error}");
            }
        }
    }
    // What only shows when it is rendered. A test of rendering has units without a section [Install].
    for (utility, unit, problem) in [
        (
            "ignition",
            "[Service]\nA\n[Install]\n",
            "fetch.service: line 2 isn't a",
        ),
        ("cloud-init", "[Service]\r\n[Install]\n", "control characters"),
    ] {
        let spec = spec(utility, |spec| {
            spec["bootstrapConfig"]["units"][0]["content"] = json!(unit)
        });
        let pool = pool("aws", spec.provisioning_utility);
        let error = render(&spec, &pool).unwrap_err();
        assert_eq!(error.reason(), "UserDataInvalid");
        assert!(error.to_string().contains(problem), "{error}");
    }
}

/// [`MACHINE_NAME`] in a URL.
const ESCAPED: &str = "%3CMACHINE_NAME%3E";

#[test]
fn any_text_comes_out_as_it_went_in_or_is_refused() {
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
    passes_on_or_refuses("ignition", Some("b64"), &first, |documents| {
        ignition_read(documents).unwrap()
    });
}
