//! `osmctl urls`.

use serde_json::{Value, json};

use super::{MACHINE_DEPLOYMENT, PROFILE, err, osmctl, out, run, says};

const NODE: [&str; 5] = ["urls", "--profile", "osp-ubuntu", "--kubelet-version", "1.34.4"];

fn lines(arguments: &[&str], input: &str) -> Vec<String> {
    let output = osmctl(arguments, input);
    assert!(output.status.success(), "{arguments:?}: {}", err(&output));
    assert_eq!(err(&output), "", "{arguments:?}");
    out(&output).lines().map(str::to_owned).collect()
}

/// [`PROFILE`] with a template that downloads.
fn downloading(name: &str, template: &str) -> String {
    PROFILE
        .replace("echo {{shell kubelet.version}}", template)
        .replace("osp-ubuntu", name)
}

#[test]
fn standard_output_is_urls_each_once_and_in_order() {
    let amd64 = [&NODE[..], &["--arch", "amd64"]].concat();
    let expected = [
        "https://dl.k8s.io/v1.34.4/bin/linux/amd64/kubelet",
        "https://dl.k8s.io/v1.34.4/bin/linux/amd64/kubelet.sha256",
        "https://github.com/containerd/containerd/releases/download/v2.2.9/containerd-static-2.2.9-linux-amd64.tar.gz",
        "https://github.com/containerd/containerd/releases/download/v2.2.9/containerd-static-2.2.9-linux-amd64.tar.gz.sha256sum",
        "https://github.com/opencontainers/runc/releases/download/v1.3.6/runc.amd64",
        "https://github.com/opencontainers/runc/releases/download/v1.3.6/runc.sha256sum",
        "https://github.com/containernetworking/plugins/releases/download/v1.9.1/cni-plugins-linux-amd64-v1.9.1.tgz",
        "https://github.com/containernetworking/plugins/releases/download/v1.9.1/cni-plugins-linux-amd64-v1.9.1.tgz.sha256",
        "https://github.com/kubernetes-sigs/cri-tools/releases/download/v1.34.0/crictl-v1.34.0-linux-amd64.tar.gz",
        "https://github.com/kubernetes-sigs/cri-tools/releases/download/v1.34.0/crictl-v1.34.0-linux-amd64.tar.gz.sha256",
    ];
    assert_eq!(lines(&amd64, ""), expected);
    // Both architectures share runc's checksum file.
    assert_eq!(lines(&NODE, "").len(), 2 * expected.len() - 1);
}

#[test]
fn a_machine_deployment_settings_and_own_profiles_count() {
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("settings.yaml");
    let text = "downloads: {crictl: {version: 1.35.0, baseURL: 'http://files.example/crictl/'}}";
    std::fs::write(&settings, text).unwrap();
    let settings = settings.to_str().unwrap();
    let amd64 = ["urls", "-f", "-", "--arch", "amd64"];
    let with_settings = [&amd64[..], &["--settings", settings]].concat();
    let listed = lines(&with_settings, MACHINE_DEPLOYMENT);
    assert_eq!(listed[0], "https://dl.k8s.io/v1.34.2/bin/linux/amd64/kubelet");
    let crictl = "http://files.example/crictl/v1.35.0/crictl-v1.35.0-linux-amd64.tar.gz";
    assert_eq!(listed[8..], [crictl.to_owned(), format!("{crictl}.sha256")]);

    // The stream's own profile is taken for the built-in one; what its templates don't ask for is not listed.
    let profile = downloading("osp-ubuntu", r#"{{checksum-url \"runc\" arch=\"$arch\"}}"#);
    let listed = lines(&amd64, &format!("{MACHINE_DEPLOYMENT}{profile}"));
    let runc = "https://github.com/opencontainers/runc/releases/download/v1.3.6/runc";
    assert_eq!(listed, [".amd64", ".sha256sum"].map(|end| format!("{runc}{end}")));
}

#[test]
fn without_machine_deployments_versions_and_clouds_are_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("mine.yaml");
    let text = downloading(
        "mine",
        r#"{{#if (eq cloud.name \"aws\")}}{{download-url \"crictl\" arch=\"arm64\"}}{{/if}}{{download-url \"kubelet\" arch=\"amd64\"}}"#,
    );
    let text = text.replace("[{name: openstack}]", "[{name: openstack}, {name: aws}]");
    std::fs::write(&profile, text).unwrap();
    let base = [
        "urls",
        "--profile",
        profile.to_str().unwrap(),
        "--kubelet-version",
        "v1.34.10",
    ];
    let of = |more: &[&str]| lines(&[&base[..], &["--kubelet-version", "1.34.9"], more].concat(), "");
    let has = |listed: &[String], name: &str| listed.iter().any(|url| url.contains(name));
    let (all, openstack, aws) = (of(&[]), of(&["--cloud", "openstack"]), of(&["--cloud", "aws"]));
    assert_eq!(all, aws);
    assert!(has(&aws, "crictl") && !has(&openstack, "crictl"), "{openstack:?}");
    for version in ["v1.34.9/", "v1.34.10/"] {
        assert!(has(&openstack, version), "{version}: {openstack:?}");
    }
}

#[test]
fn json_says_more() {
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("settings.yaml");
    let pin = "a".repeat(64);
    let text = format!("pauseImage: r.example/pause:3\ndownloads: {{runc: {{sha256: {{amd64: {pin}}}}}}}");
    std::fs::write(&settings, text).unwrap();
    let with = format!("--arch amd64 -o json --settings {}", settings.display());
    let output = run(&format!("{} {with}", NODE.join(" ")), "");
    let json: Value = serde_json::from_str(out(&output)).unwrap();
    assert_eq!(json["pauseImage"], "r.example/pause:3");
    assert_eq!(
        json["downloads"][2],
        json!({
            "name": "runc",
            "version": "1.3.6",
            "architecture": "amd64",
            "url": "https://github.com/opencontainers/runc/releases/download/v1.3.6/runc.amd64",
            "checksumURL": "https://github.com/opencontainers/runc/releases/download/v1.3.6/runc.sha256sum",
            "sha256": pin,
        })
    );
}

#[test]
fn what_deserves_a_look_is_said_once_and_apart() {
    let output = run("urls --profile osp-ubuntu --kubelet-version 1.99.0", "");
    assert_eq!(
        err(&output).matches("kubelet 1.99.0 is not one of").count(),
        1,
        "{}",
        err(&output)
    );
    assert!(out(&output).lines().all(|line| line.starts_with("https://")));
    let output = run("urls -f -", &format!("{MACHINE_DEPLOYMENT}{PROFILE}"));
    assert!(output.status.success() && out(&output).is_empty());
    says(&output, "ask for no download");
}
