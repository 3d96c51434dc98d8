//! A small profile for Flatcar, and its pools.

use osm_api::{MachineDeployment, OperatingSystemProfileSpec, Pool, Settings};
use osm_render::{RenderError, Rendered, compile, resolve, stand_in_cluster};
use serde_json::{Value, json};

/// A pool with three SSH keys, two of which are the same.
pub fn pool(cloud: &str, change: impl FnOnce(&mut Value)) -> Pool {
    let mut provider = json!({
        "sshPublicKeys": ["ssh-ed25519 AAAA a", " ssh-ed25519 AAAA a\n", "ssh-rsa BBBB \"b\""],
        "cloudProvider": cloud, "operatingSystem": "flatcar",
    });
    change(&mut provider);
    let md: MachineDeployment = serde_json::from_value(json!({
        "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": {"name": "pool", "namespace": "kube-system"},
        "spec": {"template": {"spec": {"versions": {"kubelet": "1.34.2"}, "providerSpec": {"value": provider}}}},
    }))
    .unwrap();
    Pool::read(&md).unwrap()
}

/// With the password of a registry.
pub fn render(spec: &OperatingSystemProfileSpec, pool: &Pool) -> Result<Rendered, RenderError> {
    let settings =
        Settings::parse("containerd: {registries: [{host: a.example, credentials: {name: pull}}]}").unwrap();
    compile(&resolve(spec).unwrap())
        .unwrap()
        .render(pool, &settings, &stand_in_cluster())
}
