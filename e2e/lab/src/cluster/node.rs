//! The node: a machine whose image contains everything that a node needs, and its certificate.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;

use crate::machines::{self, DataSource, Image, Lab, Link, Machine, Order};
use crate::release::Programs;
use osm_testkit::ControlPlane;

/// Its name.
pub const NODE: &str = "node";

/// Addresses of its pods: what kube-controller-manager gives to the first node.
const PODS: &str = "10.244.0.0/24";

/// What holds a pod's namespaces, by the name that containerd asks for.
pub(super) const PAUSE: &str = "registry.k8s.io/pause:3.10.1";

const CONTAINERD: &str = r#"version = 3
imports = ["/etc/containerd/conf.d/*.toml"]

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "registry.k8s.io/pause:3.10.1"

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/opt/cni/bin"]
conf_dir = "/etc/cni/net.d"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "/opt/bin/runc"
"#;

const CONTAINERD_SERVICE: &str = "[Service]
Type=notify
Environment=PATH=/opt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart=/opt/bin/containerd
Restart=always
Delegate=yes
KillMode=process
";

const KUBELET_SERVICE: &str = "[Unit]
Wants=network-online.target containerd.service
After=network-online.target containerd.service

[Service]
Environment=PATH=/opt/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart=/opt/bin/kubelet --kubeconfig=/etc/kubernetes/kubeconfig --config=/etc/kubernetes/kubelet.json --node-ip=ADDRESS
Restart=always
RestartSec=1
KillMode=process
";

pub(super) fn boot(
    lab: &Lab,
    control_plane: &ControlPlane,
    programs: &Programs,
    image: &Image,
) -> Result<Machine> {
    let address = lab.reserve();
    lab.route(PODS, address)?;
    let layer = |root: &Path| {
        install(root, control_plane, address.into())?;
        let node = programs
            .containerd
            .iter()
            .chain([&programs.runc, &programs.kubelet]);
        copy(node, &root.join("opt/bin"))?;
        copy(programs.cni_plugins.iter(), &root.join("opt/cni/bin"))
    };
    let order = Order {
        name: NODE,
        address,
        link: Link::IPv4,
        image,
        data_source: DataSource::NoCloud,
        user_data: b"#cloud-config\n{}\n",
        layer: &layer,
    };
    lab.boot(&order)
}

fn copy<'a>(programs: impl Iterator<Item = &'a PathBuf>, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    for program in programs {
        let name = program.file_name().context("a program's name")?;
        fs::copy(program, folder.join(name)).with_context(|| program.display().to_string())?;
    }
    Ok(())
}

/// Puts into the node's image what makes it one.
fn install(root: &Path, control_plane: &ControlPlane, address: IpAddr) -> Result<()> {
    let write = |path: &str, content: &str| -> Result<()> {
        let path = root.join(path);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, content).with_context(|| path.display().to_string())
    };
    write("etc/containerd/config.toml", CONTAINERD)?;
    write("etc/cni/net.d/10-lab.conflist", &network())?;
    let (certificate, key) = control_plane.issue(&format!("system:node:{NODE}"), "system:nodes", address)?;
    write("etc/kubernetes/ca.crt", control_plane.ca_pem())?;
    write("etc/kubernetes/node.crt", &certificate)?;
    write("etc/kubernetes/node.key", &key)?;
    write("etc/kubernetes/kubelet.json", &kubelet())?;
    write("etc/kubernetes/kubeconfig", &kubeconfig(control_plane.port()))?;
    let units = "etc/systemd/system";
    write(&format!("{units}/containerd.service"), CONTAINERD_SERVICE)?;
    write(
        &format!("{units}/kubelet.service"),
        &KUBELET_SERVICE.replace("ADDRESS", &address.to_string()),
    )?;
    let wanted = root.join(units).join("multi-user.target.wants");
    fs::create_dir_all(&wanted)?;
    for unit in ["containerd.service", "kubelet.service"] {
        symlink(format!("../{unit}"), wanted.join(unit))?;
    }
    // The node's own, for whatever its pods send elsewhere.
    write("etc/sysctl.d/90-node.conf", "net.ipv4.ip_forward = 1\n")
}

fn network() -> String {
    json!({"cniVersion": "1.0.0", "name": "lab", "plugins": [
        {"type": "bridge", "bridge": "cni0", "isGateway": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": PODS}]], "routes": [{"dst": "0.0.0.0/0"}]}},
    ]})
    .to_string()
}

fn kubelet() -> String {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": true},
            "x509": {"clientCAFile": "/etc/kubernetes/ca.crt"}},
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        // Nobody is there: names are not resolved, and the kubelet does not complain of each pod.
        "clusterDNS": ["10.96.0.10"],
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "tlsCertFile": "/etc/kubernetes/node.crt",
        "tlsPrivateKeyFile": "/etc/kubernetes/node.key",
    })
    .to_string()
}

fn kubeconfig(port: u16) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": NODE,
        "contexts": [{"name": NODE, "context": {"cluster": NODE, "user": NODE}}],
        "clusters": [{"name": NODE, "cluster": {"server": format!("https://{}:{port}", machines::HOST),
            "certificate-authority": "/etc/kubernetes/ca.crt"}}],
        "users": [{"name": NODE, "user": {"client-certificate": "/etc/kubernetes/node.crt",
            "client-key": "/etc/kubernetes/node.key"}}],
    })
    .to_string()
}
