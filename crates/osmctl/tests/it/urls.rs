//! `osmctl urls`.

use super::{MACHINE_DEPLOYMENT, PROFILE, err, osmctl, out, prints, run, says, succeeds};

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
fn without_machine_deployments_versions_are_chosen() {
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
    let listed = lines(&[&base[..], &["--kubelet-version", "1.34.9"]].concat(), "");
    // Those of each cloud and of each version.
    for part in ["crictl", "v1.34.9/", "v1.34.10/"] {
        assert!(listed.iter().any(|url| url.contains(part)), "{part}: {listed:?}");
    }
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

#[test]
fn settings_among_the_inputs_decide() {
    let settings = "---\ndownloads: {containerd: {version: 2.1.4, baseURL: 'http://mirror.example/c'}}\n";
    let input = format!("{MACHINE_DEPLOYMENT}{settings}");
    let wanted = "http://mirror.example/c/v2.1.4/containerd-static-2.1.4-linux-amd64.tar.gz\n";
    let output = run("urls -f -", &input);
    succeeds(&output);
    prints(&output, wanted);
    // Those of the command line come first.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "downloads: {containerd: {version: 2.1.5}}").unwrap();
    let output = run(&format!("urls -f - --settings {}", file.path().display()), &input);
    prints(&output, "/v2.1.5/containerd-static-2.1.5-linux-arm64.tar.gz\n");
    assert!(!out(&output).contains("mirror.example"));
    let output = run("urls -f -", &format!("{input}{settings}"));
    says(&output, "the inputs contain two settings documents");
    let output = run("mirror-settings -f - --dir none --url http://m", &input);
    says(&output, "mirror.example/c/v2.1.4");
}
