//! `osmctl mirror-settings`.

use std::path::Path;

use osm_api::Settings;
use osm_api::digest::sha256_hex;

use super::upstream::publish;
use super::{err, osmctl, out, says, succeeds};

const NODE: [&str; 4] = ["--profile", "osp-ubuntu", "--kubelet-version", "1.34.4"];
const RUNC: &str = "github.com/opencontainers/runc/releases/download/v1.3.6";

fn run(folder: &Path, url: &str, more: &[&str]) -> std::process::Output {
    let mirror = ["mirror-settings", "--dir", folder.to_str().unwrap(), "--url", url];
    osmctl(&[&mirror[..], &NODE, more].concat(), "")
}

#[test]
fn downloads_lead_to_the_mirror_and_are_pinned() {
    let folder = tempfile::tempdir().unwrap();
    publish(folder.path(), &NODE);
    let output = run(folder.path(), "http://mirror.example:8080/files/", &[]);
    succeeds(&output);
    let settings = Settings::parse(out(&output)).unwrap();
    let mut expected = Settings::default();
    let sum = |path: &str| sha256_hex(format!("https://{path}").as_bytes());
    for arch in ["amd64", "arm64"] {
        let downloads = &mut expected.downloads;
        let kubelet = sum(&format!("dl.k8s.io/v1.34.4/bin/linux/{arch}/kubelet"));
        let sums = downloads.kubelet.sha256.entry("1.34.4".to_owned()).or_default();
        sums.insert(arch.to_owned(), kubelet);
        let runc = sum(&format!("{RUNC}/runc.{arch}"));
        downloads.runc.sha256.insert(arch.to_owned(), runc);
        let base = "github.com/containerd/containerd/releases/download/v2.2.9";
        let archive = format!("{base}/containerd-static-2.2.9-linux-{arch}.tar.gz");
        downloads.containerd.sha256.insert(arch.to_owned(), sum(&archive));
        let base = "github.com/containernetworking/plugins/releases/download/v1.9.1";
        let archive = format!("{base}/cni-plugins-linux-{arch}-v1.9.1.tgz");
        downloads.cni.sha256.insert(arch.to_owned(), sum(&archive));
        let base = "github.com/kubernetes-sigs/cri-tools/releases/download/v1.34.0";
        let archive = format!("{base}/crictl-v1.34.0-linux-{arch}.tar.gz");
        let sums = downloads.crictl.sha256.entry("1.34.0".to_owned()).or_default();
        sums.insert(arch.to_owned(), sum(&archive));
    }
    let downloads = &mut expected.downloads;
    for url in [
        &mut downloads.kubelet.base_url,
        &mut downloads.containerd.base_url,
        &mut downloads.runc.base_url,
        &mut downloads.cni.base_url,
        &mut downloads.crictl.base_url,
    ] {
        *url = url.replace("https://", "http://mirror.example:8080/files/");
    }
    assert_eq!(settings, expected);
}

#[test]
fn what_the_settings_say_besides_stays() {
    let folder = tempfile::tempdir().unwrap();
    let given = folder.path().join("site.yaml");
    let pin = "1".repeat(64);
    let text = format!(
        "pauseImage: r.example/pause:3\ninitialTaints: [{{key: a, value: \"yes\", effect: NoSchedule}}]\ndownloads:\n  kubelet: {{sha256: {{1.33.0: {{amd64: \"{pin}\"}}}}}}\n  runc: {{version: 1.2.3, baseURL: 'http://a.example/b'}}\n  crictl: {{version: 1.35.0}}\n"
    );
    std::fs::write(&given, &text).unwrap();
    let settings = ["--settings", given.to_str().unwrap()];
    publish(folder.path(), &[&NODE[..], &settings].concat());
    let more = [&settings[..], &["--arch", "amd64"]].concat();
    let output = run(folder.path(), "https://m", &more);
    succeeds(&output);
    let before = Settings::parse(&text).unwrap();
    let after = Settings::parse(out(&output)).unwrap();
    assert_eq!(after.pause_image, before.pause_image);
    assert_eq!(after.initial_taints, before.initial_taints);
    let downloads = &after.downloads;
    assert_eq!(downloads.runc.version.as_deref(), Some("1.2.3"));
    assert_eq!(downloads.runc.base_url, "https://m/a.example/b");
    assert_eq!(downloads.runc.sha256.len(), 1);
    assert_eq!(downloads.kubelet.sha256["1.33.0"]["amd64"], pin);
    assert_eq!(downloads.kubelet.sha256["1.34.4"].len(), 1);
}

#[test]
fn everything_that_is_wrong_is_named_at_once() {
    let folder = tempfile::tempdir().unwrap();
    publish(folder.path(), &NODE);
    let of = |path: &str| folder.path().join(path);
    std::fs::write(of(&format!("{RUNC}/runc.arm64")), "damaged").unwrap();
    std::fs::remove_file(of("dl.k8s.io/v1.34.4/bin/linux/amd64/kubelet")).unwrap();
    let archive =
        "github.com/containernetworking/plugins/releases/download/v1.9.1/cni-plugins-linux-amd64-v1.9.1.tgz";
    std::fs::write(
        of(&format!("{archive}.sha256")),
        "<html>\n<body>not found</body>\n",
    )
    .unwrap();
    let pinned = of("pinned.yaml");
    let pin = "1".repeat(64);
    std::fs::write(
        &pinned,
        format!("downloads: {{runc: {{sha256: {{amd64: \"{pin}\"}}}}}}"),
    )
    .unwrap();
    let output = run(
        folder.path(),
        "https://m",
        &["--settings", pinned.to_str().unwrap()],
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(out(&output).is_empty());
    for text in [
        "but the settings pin 1111",
        "kubelet; download https://dl.k8s.io/v1.34.4/bin/linux/amd64/kubelet to this path",
        "runc.arm64 has the SHA-256 checksum ",
        "cni-plugins-linux-amd64-v1.9.1.tgz.sha256 contains no checksum of cni-plugins-linux-amd64-v1.9.1.tgz",
    ] {
        assert!(err(&output).contains(text), "{text}: {}", err(&output));
    }
    assert_eq!(err(&output).lines().count(), 5, "{}", err(&output));

    publish(folder.path(), &NODE);
    for url in ["https://user:secret@m", "m", "ftp://m", "https://m/$x"] {
        let output = run(folder.path(), url, &[]);
        assert_eq!(output.status.code(), Some(1), "{url}");
        says(&output, "baseURL: must be http(s)://");
        assert!(!err(&output).contains("secret"));
    }
}
