//! `osmctl urls`.

use serde_json::{Value, json};

use super::{MACHINE_DEPLOYMENT, PROFILE, err, osmctl, out};

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
    let all = lines(&NODE, "");
    assert_eq!(
        all,
        lines(&[&NODE[..], &["--arch", "arm64", "--arch", "amd64"]].concat(), "")
    );
    // Both share runc's checksum file.
    assert_eq!(all.len(), 2 * expected.len() - 1);
    assert!(expected.iter().all(|url| all.iter().any(|listed| listed == url)));
    let arm64 = all
        .iter()
        .filter(|url| !url.contains("amd64") && !url.ends_with("runc.sha256sum"));
    assert_eq!(
        arm64.filter(|url| url.contains("arm64")).count(),
        expected.len() - 1
    );
}

#[test]
fn a_machine_deployment_settings_and_own_profiles_count() {
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("settings.yaml");
    std::fs::write(
        &settings,
        "downloads: {crictl: {version: 1.35.0, baseURL: 'http://files.example/crictl/'}}",
    )
    .unwrap();
    let settings = settings.to_str().unwrap();
    let amd64 = ["urls", "-f", "-", "--arch", "amd64"];

    let listed = lines(
        &[&amd64[..], &["--settings", settings]].concat(),
        MACHINE_DEPLOYMENT,
    );
    assert_eq!(listed[0], "https://dl.k8s.io/v1.34.2/bin/linux/amd64/kubelet");
    assert_eq!(
        listed[8],
        "http://files.example/crictl/v1.35.0/crictl-v1.35.0-linux-amd64.tar.gz"
    );
    assert_eq!(
        listed[9],
        "http://files.example/crictl/v1.35.0/crictl-v1.35.0-linux-amd64.tar.gz.sha256"
    );
    assert_eq!(listed.len(), 10);

    // The stream's own profile is taken for the built-in one; what its templates don't ask for is not listed.
    let profile = downloading("osp-ubuntu", r#"{{checksum-url \"runc\" arch=\"$arch\"}}"#);
    let listed = lines(&amd64, &format!("{MACHINE_DEPLOYMENT}{profile}"));
    assert_eq!(
        listed,
        [
            "https://github.com/opencontainers/runc/releases/download/v1.3.6/runc.amd64",
            "https://github.com/opencontainers/runc/releases/download/v1.3.6/runc.sha256sum",
        ]
    );

    // Several pools: everything, each once.
    let other = MACHINE_DEPLOYMENT
        .replace("1.34.2", "1.33.9")
        .replace("workers", "others");
    let listed = lines(
        &amd64,
        &format!("{MACHINE_DEPLOYMENT}---{other}---{MACHINE_DEPLOYMENT}"),
    );
    assert_eq!(listed[0], "https://dl.k8s.io/v1.33.9/bin/linux/amd64/kubelet");
    assert_eq!(listed[2], "https://dl.k8s.io/v1.34.2/bin/linux/amd64/kubelet");
    // Two kubelets and, of their minors, two versions of crictl.
    assert_eq!(listed.len(), 14);
}

#[test]
fn without_machine_deployments_versions_and_clouds_are_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("mine.yaml");
    let text = downloading(
        "mine",
        r#"{{#if (eq cloud.name \"aws\")}}{{download-url \"crictl\" arch=\"arm64\"}}{{/if}}{{download-url \"kubelet\" arch=\"$a\"}}"#,
    );
    std::fs::write(
        &profile,
        text.replace("[{name: openstack}]", "[{name: openstack}, {name: aws}]"),
    )
    .unwrap();
    let settings = folder.path().join("settings.yaml");
    std::fs::write(&settings, "downloads: {crictl: {version: 1.35.0}}").unwrap();
    let of = |cloud: &[&str]| {
        let base = [
            "urls",
            "--profile",
            profile.to_str().unwrap(),
            "--settings",
            settings.to_str().unwrap(),
            "--kubelet-version",
            "v1.34.10",
            "--kubelet-version",
            "1.34.9",
        ];
        let listed = lines(&[&base[..], cloud].concat(), "");
        listed
            .into_iter()
            .filter(|url| !url.ends_with(".sha256"))
            .collect::<Vec<_>>()
    };
    let kubelet =
        |version: &str, arch: &str| format!("https://dl.k8s.io/v{version}/bin/linux/{arch}/kubelet");
    let mut expected = vec![
        kubelet("1.34.9", "amd64"),
        kubelet("1.34.9", "arm64"),
        kubelet("1.34.10", "amd64"),
        kubelet("1.34.10", "arm64"),
    ];
    assert_eq!(of(&["--cloud", "openstack"]), expected);
    let crictl = "https://github.com/kubernetes-sigs/cri-tools/releases/download/v1.35.0/crictl-v1.35.0-linux-arm64.tar.gz";
    expected.push(crictl.to_owned());
    assert_eq!(of(&["--cloud", "aws"]), expected);
    assert_eq!(of(&[]), expected);
}

#[test]
fn table_and_json_say_more() {
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("settings.yaml");
    let pin = "a".repeat(64);
    let text = format!("pauseImage: r.example/pause:3\ndownloads: {{runc: {{sha256: {{amd64: {pin}}}}}}}");
    std::fs::write(&settings, text).unwrap();
    let with = [
        "--arch",
        "amd64",
        "--settings",
        settings.to_str().unwrap(),
        "--output",
    ];
    let table = lines(&[&NODE[..], &with, &["table"]].concat(), "");
    assert_eq!(
        table[0].split_whitespace().collect::<Vec<_>>(),
        [
            "NAME", "VERSION", "ARCH", "URL", "CHECKSUM", "URL", "PINNED", "SHA-256"
        ]
    );
    let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(cells(&table[1])[..3], ["kubelet", "1.34.4", "amd64"]);
    assert_eq!(cells(&table[1])[5], "-");
    assert_eq!(cells(&table[3])[5], pin);
    assert_eq!(table.last().unwrap(), "Pause image: r.example/pause:3");
    let table = lines(&[&NODE[..], &["-o", "table"]].concat(), "");
    assert!(
        table
            .last()
            .unwrap()
            .contains("`containerd config default` prints it"),
        "{table:?}"
    );

    let json: Value =
        serde_json::from_str(&lines(&[&NODE[..], &with, &["json"]].concat(), "").join("\n")).unwrap();
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
    let output = osmctl(
        &["urls", "--profile", "osp-ubuntu", "--kubelet-version", "1.99.0"],
        "",
    );
    assert_eq!(
        err(&output).matches("kubelet 1.99.0 is not one of").count(),
        1,
        "{}",
        err(&output)
    );
    assert!(out(&output).lines().all(|line| line.starts_with("https://")));
    let output = osmctl(&["urls", "-f", "-"], &format!("{MACHINE_DEPLOYMENT}{PROFILE}"));
    assert!(output.status.success() && out(&output).is_empty());
    assert!(err(&output).contains("ask for no download"), "{}", err(&output));
}
