//! `osmctl render`.

use super::{MACHINE_DEPLOYMENT, PROFILE, err, naming_profile, osmctl, out};

#[test]
fn a_pool_is_rendered_with_the_built_in_profile() {
    for stage in ["bootstrap", "provisioning"] {
        let output = osmctl(&["render", "-f", "-", "--stage", stage], MACHINE_DEPLOYMENT);
        assert!(output.status.success(), "{}", err(&output));
        assert!(out(&output).starts_with("#cloud-config\n"));
        assert!(!out(&output).contains("osm-late") && !out(&output).contains("hunter2"));
        assert!(
            err(&output).contains("cluster.apiServer and cluster.caBundle; the output contains placeholders"),
            "{}",
            err(&output)
        );
    }
    let output = osmctl(&["render", "-f", "-", "--stage", "bootstrap"], MACHINE_DEPLOYMENT);
    assert!(
        out(&output).contains("hostname: \"<MACHINE_NAME>\"") && out(&output).contains("ssh-ed25519 AAAA me")
    );
}

#[test]
fn a_profile_in_the_stream_or_by_flag_and_settings_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let both = format!("{MACHINE_DEPLOYMENT}{PROFILE}");
    let settings = write(
        "settings.yaml",
        "cluster: {apiServer: 'https://api:6443', caBundle: \"-----BEGIN CERTIFICATE-----\\nx\\n-----END CERTIFICATE-----\"}",
    );
    let output = osmctl(
        &[
            "render",
            "-f",
            "-",
            "--settings",
            &settings,
            "--stage",
            "bootstrap",
        ],
        &both,
    );
    assert!(
        out(&output).contains("content: \"api/token for https://api:6443\""),
        "{}{}",
        out(&output),
        err(&output)
    );
    assert_eq!(err(&output), "");

    let profile = write("profile.yaml", &PROFILE.replace("osp-ubuntu", "mine"));
    let pool = write("pool.yaml", MACHINE_DEPLOYMENT);
    let output = osmctl(
        &[
            "render",
            "-f",
            &pool,
            "--profile",
            &profile,
            "--stage",
            "provisioning",
        ],
        "",
    );
    assert!(
        out(&output).contains("echo '1.34.2'"),
        "{}{}",
        out(&output),
        err(&output)
    );
    let built_in = [
        "render",
        "-f",
        "-",
        "--profile",
        "osp-ubuntu",
        "--stage",
        "provisioning",
    ];
    assert!(out(&osmctl(&built_in, &both)).contains("path: \"/opt/bin/osm-setup\""));
}

/// Extends the profile `base`, whose commands it adds to.
const EXTENDING: &str = r#"
---
apiVersion: operatingsystemmanager.k8c.io/v1alpha1
kind: OperatingSystemProfile
metadata: {name: mine}
spec:
  extends: osp-ubuntu
  osName: ubuntu
  osVersion: "24.04"
  version: v2.0.0
  templateEngine: Handlebars
  supportedCloudProviders: [{name: openstack}]
  provisioningConfig: {modules: {runcmd: ["echo mine"]}}
"#;

#[test]
fn a_profile_extends_one_of_the_inputs_or_a_built_in_one() {
    let arguments = ["render", "-f", "-", "--stage", "provisioning"];
    let pool = naming_profile("mine");
    let output = osmctl(&arguments, &format!("{pool}{EXTENDING}"));
    let text = out(&output);
    assert!(
        text.contains("path: \"/opt/bin/osm-setup\"") && text.contains("echo mine"),
        "{text}{}",
        err(&output)
    );
    let output = osmctl(&arguments, &format!("{pool}{PROFILE}{EXTENDING}"));
    let text = out(&output);
    let (own, base) = (text.find("echo mine"), text.find("echo '1.34.2'"));
    assert!(base.is_some() && base < own, "{text}{}", err(&output));

    // A file with a profile and its base is one profile.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("profiles.yaml");
    std::fs::write(
        &file,
        format!("{PROFILE}{EXTENDING}").replace("osp-ubuntu", "base"),
    )
    .unwrap();
    let with_file = [&arguments[..], &["--profile", file.to_str().unwrap()]].concat();
    let output = osmctl(&with_file, MACHINE_DEPLOYMENT);
    assert!(out(&output).contains("echo mine"), "{}", err(&output));

    for (extends, problem) in [
        ("nothing", "\"nothing\", which spec.extends names"),
        ("mine", "mine → mine"),
    ] {
        let extending = EXTENDING.replace("extends: osp-ubuntu", &format!("extends: {extends}"));
        let output = osmctl(&arguments, &format!("{pool}{extending}"));
        assert!(
            !output.status.success() && err(&output).contains(problem),
            "{}",
            err(&output)
        );
    }
}

#[test]
fn flatcar_gets_an_ignition_config() {
    for stage in ["bootstrap", "provisioning"] {
        let pool = MACHINE_DEPLOYMENT.replace("ubuntu", "flatcar");
        let output = osmctl(&["render", "-f", "-", "--stage", stage], &pool);
        assert!(output.status.success(), "{}", err(&output));
        let config: serde_json::Value = serde_json::from_str(out(&output)).unwrap();
        assert_eq!(config["ignition"]["version"], "3.3.0");
    }
}

#[test]
fn flatcar_with_cloud_init_gets_a_profile_of_its_own() {
    let pool = MACHINE_DEPLOYMENT
        .replace("ubuntu", "flatcar")
        .replace("distUpgradeOnBoot: false", "provisioningUtility: cloud-init")
        .replace("cloudProvider: openstack", "cloudProvider: anexia");
    let output = osmctl(&["render", "-f", "-", "--stage", "bootstrap"], &pool);
    assert!(output.status.success(), "{}", err(&output));
    assert!(
        out(&output).starts_with("#cloud-config\n") && out(&output).contains("\ncoreos:\n"),
        "{}",
        out(&output)
    );
}
