//! `osmctl render`.

use super::{MACHINE_DEPLOYMENT, PROFILE, err, osmctl, out, prints, run, says, succeeds};

#[test]
fn a_pool_is_rendered_with_the_built_in_profile() {
    for stage in ["bootstrap", "provisioning"] {
        let output = osmctl(&["render", "-f", "-", "--stage", stage], MACHINE_DEPLOYMENT);
        succeeds(&output);
        assert!(out(&output).starts_with("#cloud-config\n"));
        assert!(!out(&output).contains("osm-late") && !out(&output).contains("hunter2"));
        says(
            &output,
            "cluster.apiServer and cluster.caBundle; the output contains placeholders",
        );
    }
    let output = run("render -f - --stage bootstrap", MACHINE_DEPLOYMENT);
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
    let output = run(
        &format!("render - --settings {settings} --stage bootstrap"),
        &both,
    );
    prints(&output, "content: \"api/token for https://api:6443\"");
    assert_eq!(err(&output), "");

    let profile = write("profile.yaml", &PROFILE.replace("osp-ubuntu", "mine"));
    let pool = write("pool.yaml", MACHINE_DEPLOYMENT);
    let output = run(
        &format!("render {pool} --profile {profile} --stage provisioning"),
        "",
    );
    prints(&output, "echo '1.34.2'");
    let output = run("render - --profile osp-ubuntu --stage provisioning", &both);
    prints(&output, "path: \"/opt/bin/osm-setup\"");
}
