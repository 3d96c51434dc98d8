use osm_api::profile::File;
use serde_json::json;

use super::*;

fn file(path: &str, data: &str) -> File {
    serde_json::from_value(json!({"path": path, "content": {"inline": {"data": data}}})).unwrap()
}

/// The subjects in these files, with the paths.
fn found(kubelet: u64, files: &[(&str, &str)]) -> Vec<String> {
    let mut spec = Content::default();
    spec.provisioning_config.files = files.iter().map(|(path, data)| file(path, data)).collect();
    let conflicts = find(&spec, kubelet).into_iter();
    conflicts
        .map(|conflict| format!("{}: {}", conflict.path, conflict.subject))
        .collect()
}

const UNIT: &str = "/etc/systemd/system/kubelet.service";

#[test]
fn flags_are_found_wherever_the_kubelet_gets_them() {
    for (path, text) in [
        (
            UNIT,
            "[Service]\nExecStart=/opt/bin/kubelet --v=2 \\\n  --pod-infra-container-image=x \\\n  --config=/y\n",
        ),
        (
            UNIT,
            "[Service]\nExecStart=/opt/bin/kubelet \\\n# a comment\n  --pod-infra-container-image x\n",
        ),
        (
            "/etc/systemd/system/kubelet.service.d/10-a.conf",
            "[Service]\nEnvironment=\"A=--pod-infra-container-image=x\"\n",
        ),
        (
            "/etc/node.env",
            "KUBELET_EXTRA_ARGS=--pod-infra-container-image=x\n",
        ),
        (
            "/opt/bin/setup",
            "#!/bin/sh\ncat >/etc/systemd/system/a.service <<EOF\n[Service]\nExecStart=-/usr/bin/kubelet --pod-infra-container-image=x\nEOF\n",
        ),
        (
            "/etc/systemd/system/node.service",
            "[Service]\nExecStart=/opt/bin/supervise.sh /opt/bin/kubelet \\\n --pod-infra-container-image=x\n",
        ),
    ] {
        let expected = [format!("{path}: --pod-infra-container-image")];
        assert_eq!(found(35, &[(path, text)]), expected, "{text}");
        assert_eq!(found(34, &[(path, text)]), [""; 0], "{text}");
    }
}

#[test]
fn flags_in_units_drop_ins_and_commands_are_found() {
    let spec: Content = serde_json::from_value(json!({
        "bootstrapConfig": {
            "modules": {"runcmd": [["kubelet", "--dynamic-config-dir", "/x"]], "ntp": {"enabled": true}},
        },
        "provisioningConfig": {"units": [{
            "name": "kubelet.service", "content": "[Service]\nExecStart=/opt/bin/kubelet --network-plugin=cni\n",
            "dropIns": [{"name": "a.conf", "content": "[Service]\nEnvironment=A=--container-runtime=remote\n"}],
        }]},
    }))
    .unwrap();
    let conflicts: Vec<String> = find(&spec, 33).iter().map(ToString::to_string).collect();
    let starts = [
        "bootstrapConfig.modules.runcmd: --dynamic-config-dir is no flag of kubelet 1.24 and newer",
        "/etc/systemd/system/kubelet.service: --network-plugin is no flag of kubelet 1.24 and newer",
        "/etc/systemd/system/kubelet.service.d/a.conf: --container-runtime is no flag of kubelet 1.27 and newer",
    ];
    assert_eq!(conflicts.len(), starts.len(), "{conflicts:#?}");
    for (conflict, start) in conflicts.iter().zip(starts) {
        assert!(conflict.starts_with(start), "{conflict}");
    }
}

#[test]
fn what_is_no_flag_of_the_kubelet_is_left_alone() {
    for (path, text) in [
        (
            UNIT,
            "[Service]\n# --pod-infra-container-image=x\nExecStart=/opt/bin/kubelet --container-runtime-endpoint=unix:///run/c.sock\n",
        ),
        (
            "/opt/bin/setup",
            "curl -Lo /opt/bin/kubelet https://example\nnode-exporter --log-file=/x\n",
        ),
        (
            "/opt/bin/setup",
            "systemctl restart kubelet --no-block\ndocker run --network-plugin=x\n",
        ),
        (
            "/opt/bin/ccm",
            "cloud-controller-manager --cloud-config=/etc/x --logtostderr\n",
        ),
        // Such a script decides itself.
        (
            "/opt/bin/run",
            "if kubelet --help | grep -q -- --pod-infra-container-image; then a=--pod-infra-container-image=x; fi\nexec kubelet $a\n",
        ),
    ] {
        assert_eq!(found(36, &[(path, text)]), [""; 0], "{text}");
    }
}

const CONFIG: &str = "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.runc.options]\nSystemdCgroup = true\n";
const CONFIG_PATH: &str = "/etc/containerd/config.toml";

#[test]
fn containerd_1_is_found_in_every_form_of_its_installation() {
    for text in [
        "apt-get install -y containerd.io=1.7*\napt-mark hold containerd.io\n",
        "apt-get install -y \\\n  curl \\\n  \"containerd.io=1.6.33-1\"\n",
        "yum install -y containerd.io-1.6* yum-plugin-versionlock\n",
        "Package: containerd.io\nPin: version 1.7.*\nPin-Priority: 999\n",
        "CONTAINERD_VERSION=1.7.13\ncurl -LO https://x/v${CONTAINERD_VERSION}/containerd-${CONTAINERD_VERSION}-linux-amd64.tar.gz\n",
        "CONTAINERD_VERSION=\"${CONTAINERD_VERSION:-v1.7.13}\"\n",
        "containerdVersion: \"1.6.8\"\n",
        "curl -LO https://github.com/containerd/containerd/releases/download/v1.7.13/containerd-1.7.13-linux-amd64.tar.gz\n",
        "curl -LO https://x/cri-containerd-cni-1.6.8-linux-amd64.tar.gz\n",
        "dpkg -i containerd.io_1.6.9-1_amd64.deb\n",
        "{\"containerd\": \"1.7.0\"}\n",
    ] {
        let files = [("/opt/bin/setup", text), (CONFIG_PATH, CONFIG)];
        assert_eq!(found(34, &files), ["/opt/bin/setup: containerd 1"], "{text}");
        let version_2 = CONFIG.replace("version = 3", "version = 2");
        assert_eq!(
            found(34, &[files[0], (CONFIG_PATH, &version_2)]),
            [""; 0],
            "{text}"
        );
    }
    let mut spec = Content::default();
    spec.bootstrap_config.modules = Some(json!({"packages": ["curl", ["containerd.io", "1.7.24-1"]]}));
    spec.provisioning_config.files = vec![file(CONFIG_PATH, CONFIG)];
    let conflicts = find(&spec, 34);
    assert_eq!(conflicts.len(), 1, "{conflicts:#?}");
    assert_eq!(conflicts[0].path, "bootstrapConfig.modules.packages");
}

#[test]
fn what_is_not_containerd_1_is_left_alone() {
    for text in [
        "apt-get install -y containerd.io=2.2*\n",
        "apt-get install -y containerd.io runc=1.3.6\n",
        "# containerd.io=1.7*\napt-get install -y containerd.io\n",
        "CNI=1.9.1\ncurl https://x/v$CNI/cni.tgz\ncontainerd config default\n",
        "curl -LO https://github.com/containerd/nerdctl/releases/download/v1.7.6/nerdctl-1.7.6.tar.gz\n",
        "case $ID in a) v=containerd.io=1.7* ;; *) v=containerd.io=2.2* ;; esac\n",
        "containerd-shim-runc-v2\nio.containerd.grpc.v1.cri\ncontainerd_address=10.1.2.3\n",
    ] {
        assert_eq!(
            found(34, &[("/opt/bin/setup", text), (CONFIG_PATH, CONFIG)]),
            [""; 0],
            "{text}"
        );
    }
}
