use osm_api::Pool;
use osm_api::profile::{File, FileContent, InlineContent, Unit};
use serde_json::json;

use super::*;

fn pool(kubelet: &str) -> Pool {
    let md = serde_json::from_value(json!({
        "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment", "metadata": {"name": "pool"},
        "spec": {"template": {"spec": {"versions": {"kubelet": kubelet}, "providerSpec": {"value": {
            "cloudProvider": "aws", "operatingSystem": "ubuntu"}}}}},
    }));
    Pool::read(&md.unwrap()).unwrap()
}

fn file(path: &str, data: &str) -> File {
    let inline = Some(InlineContent {
        encoding: None,
        data: data.to_owned(),
    });
    File {
        path: path.to_owned(),
        permissions: 644,
        content: FileContent { inline },
    }
}

/// The subjects in these files, with the paths.
fn found(kubelet: &str, files: &[(&str, &str)]) -> Vec<String> {
    let mut spec = Content::default();
    spec.provisioning_config.files = files.iter().map(|(path, data)| file(path, data)).collect();
    let conflicts = find(&spec, &pool(kubelet)).into_iter();
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
            "/opt/bin/setup",
            "#!/bin/sh\nargs=\"--v=1\"\nargs=\"$args --pod-infra-container-image=x\"\nexec /opt/bin/kubelet $args\n",
        ),
        (
            "/opt/bin/run",
            "#!/bin/bash\nargs=(\n  --pod-infra-container-image=x\n)\nsudo nice -n 5 /opt/bin/kubelet \"${args[@]}\"\n",
        ),
        (
            "/etc/systemd/system/node.service",
            "[Service]\nExecStart=/opt/bin/supervise.sh /opt/bin/kubelet \\\n --pod-infra-container-image=x\n",
        ),
    ] {
        let expected = [format!("{path}: --pod-infra-container-image")];
        assert_eq!(found("1.35.0", &[(path, text)]), expected, "{text}");
        assert_eq!(found("1.34.9", &[(path, text)]), [""; 0], "{text}");
    }
}

#[test]
fn flags_in_units_drop_ins_and_commands_are_found() {
    let mut spec = Content::default();
    spec.provisioning_config.units = vec![Unit {
        name: "kubelet.service".to_owned(),
        content: Some("[Service]\nExecStart=/opt/bin/kubelet --network-plugin=cni\n".to_owned()),
        drop_ins: vec![osm_api::profile::DropIn {
            name: "a.conf".to_owned(),
            content: "[Service]\nEnvironment=A=--container-runtime=remote\n".to_owned(),
        }],
        ..Unit::default()
    }];
    spec.bootstrap_config.modules =
        Some(json!({"runcmd": [["kubelet", "--dynamic-config-dir", "/x"]], "ntp": {"enabled": true}}));
    let conflicts: Vec<String> = find(&spec, &pool("1.33.0"))
        .iter()
        .map(ToString::to_string)
        .collect();
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
        assert_eq!(found("1.36.0", &[(path, text)]), [""; 0], "{text}");
    }
}

#[test]
fn values_and_feature_gates_that_the_kubelet_does_not_take() {
    for (kubelet, arguments, expected) in [
        ("1.34.0", "--cloud-provider=aws", Some("--cloud-provider")),
        ("1.34.0", "--cloud-provider openstack", Some("--cloud-provider")),
        ("1.28.0", "--cloud-provider=aws", None),
        ("1.34.0", "--cloud-provider=external", None),
        ("1.34.0", "--cloud-provider=\"\"", None),
        ("1.34.0", "--cloud-provider=$CLOUD", None),
        (
            "1.34.0",
            "--container-runtime-endpoint=unix:///var/run/dockershim.sock",
            Some("--container-runtime-endpoint"),
        ),
        (
            "1.34.0",
            "--feature-gates=RotateKubeletServerCertificate=true,Imagined=true",
            Some("feature gate Imagined"),
        ),
        (
            "1.36.0",
            "--feature-gates=\"KubeletTracing=false\"",
            Some("feature gate KubeletTracing"),
        ),
        ("1.33.0", "--feature-gates=KubeletTracing=false", None),
        ("1.34.0", "--feature-gates=$GATES", None),
        // Nothing is known of its gates.
        ("1.30.0", "--feature-gates=Imagined=true", None),
    ] {
        let text = format!("[Service]\nExecStart=/opt/bin/kubelet {arguments} --v=2\n");
        let expected: Vec<String> = expected
            .iter()
            .map(|subject| format!("{UNIT}: {subject}"))
            .collect();
        assert_eq!(found(kubelet, &[(UNIT, &text)]), expected, "{arguments}");
    }
    let config =
        |rest: &str| format!("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{rest}");
    let path = "/etc/kubernetes/kubelet.conf";
    for (rest, expected) in [
        (
            "featureGates:\n  CSIMigrationAWS: true\n  GracefulNodeShutdown: true\n",
            vec!["feature gate CSIMigrationAWS"],
        ),
        ("featureGates: {KubeletTracing: true}\nunknown: field\n", vec![]),
        (
            "featureGates: {KubeletTracing: false}\n",
            vec!["feature gate KubeletTracing"],
        ),
    ] {
        let expected: Vec<String> = expected
            .iter()
            .map(|subject| format!("{path}: {subject}"))
            .collect();
        assert_eq!(found("1.36.0", &[(path, &config(rest))]), expected, "{rest}");
    }
    let other = "apiVersion: kubelet.config.k8s.io/v1alpha1\nkind: KubeletConfiguration\n";
    assert_eq!(found("1.36.0", &[(path, other)]), [format!("{path}: apiVersion")]);
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
        assert_eq!(
            found("1.34.0", &files),
            ["/opt/bin/setup: containerd 1"],
            "{text}"
        );
        let version_2 = CONFIG.replace("version = 3", "version = 2");
        assert_eq!(
            found("1.34.0", &[files[0], (CONFIG_PATH, &version_2)]),
            [""; 0],
            "{text}"
        );
    }
    let mut spec = Content::default();
    spec.bootstrap_config.modules = Some(json!({"packages": ["curl", ["containerd.io", "1.7.24-1"]]}));
    spec.provisioning_config.files = vec![file(CONFIG_PATH, CONFIG)];
    let conflicts = find(&spec, &pool("1.34.0"));
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
            found("1.34.0", &[("/opt/bin/setup", text), (CONFIG_PATH, CONFIG)]),
            [""; 0],
            "{text}"
        );
    }
}

#[test]
fn the_kubelet_and_containerd_have_one_cgroup_driver() {
    let kubelet = |driver: &str| format!("kind: KubeletConfiguration\ncgroupDriver: {driver}\n");
    for (driver, systemd, fits) in [
        ("systemd", "true", true),
        ("cgroupfs", "true", false),
        ("systemd", "false", false),
        ("cgroupfs", "false", true),
    ] {
        let config = CONFIG.replace("SystemdCgroup = true", &format!("SystemdCgroup = {systemd}"));
        let found = found("1.33.0", &[("/k", &kubelet(driver)), (CONFIG_PATH, &config)]);
        assert_eq!(found.is_empty(), fits, "{driver} {systemd}: {found:?}");
    }
}
