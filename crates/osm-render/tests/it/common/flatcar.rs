//! A small profile for Flatcar, its pools, and what a machine makes of its documents.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use osm_api::profile::ProvisioningUtility;
use osm_api::{OperatingSystemProfileSpec, Pool, Settings};
use osm_render::{RenderError, Rendered, stand_in_cluster};
use osm_user_data::{Stage, placeholders, user_data};
use serde_json::{Value, json};

use super::{compiled, named};

/// The name of the machine.
pub const MACHINE: &str = "pool-5d8f-x7k2p";

/// The password of a registry.
const PASSWORD: &str = "quo\"te %3CMACHINE_NAME%3E $public_ipv4 \\ \n";

/// The profile for Ignition or cloud-init, with a change.
pub fn spec(utility: &str, change: impl FnOnce(&mut Value)) -> OperatingSystemProfileSpec {
    let file = |path: &str, permissions: u32, data: &str| json!({"path": path, "permissions": permissions, "content": {"inline": {"data": data}}});
    let mut spec = json!({
        "osName": "flatcar", "osVersion": "1", "version": "v1.0.0", "templateEngine": "Handlebars",
        "provisioningUtility": utility, "supportedCloudProviders": [{"name": "anexia"}, {"name": "aws"}, {"name": "openstack"}],
        "bootstrapConfig": {
            "files": [
                file("/etc/osm/token", 600, "Authorization: Bearer {{late \"api/token\" as=\"raw\"}}\n"),
                // Compressed, it would be shorter, but machine-controller must find its placeholder.
                file("/opt/bin/fetch", 755, &format!("#!/bin/sh\necho \"<MACHINE_NAME> of {{{{cluster.apiServer}}}}, $private_ipv4\"\n{}", long())),
                file("/opt/long", 644, &long()),
                file("/opt/empty", 644, ""),
            ],
            "units": [
                {"name": "fetch.service", "enable": true,
                 "content": "[Service]\nExecStart=/opt/bin/fetch <MACHINE_NAME> \\$public_ipv6\n[Install]\nWantedBy=multi-user.target\n"},
                {"name": "update-engine.service", "mask": true},
                {"name": "sshd.service", "dropIns": [
                    {"name": "10-a.conf", "content": "[Service]\nNice={{#if proxy.http}}1{{else}}2{{/if}}\n"},
                    {"name": "20-b.conf", "content": "{{#if proxy.http}}[Service]\n{{/if}}"},
                ]},
            ],
        },
        "provisioningConfig": {
            "files": [file("/etc/osm/own.toml", 400, "server = {{late \"registry/a.example/password\" as=\"toml\"}}\n")],
        },
    });
    change(&mut spec);
    serde_json::from_value(spec).unwrap()
}

fn long() -> String {
    "all work and no play\n".repeat(50)
}

/// A pool with three SSH keys, two of which are the same.
pub fn pool(cloud: &str, utility: ProvisioningUtility) -> Pool {
    let mut pool = super::pool("flatcar", cloud, "1.34.2", "IPv4", false);
    pool.os.provisioning_utility = Some(utility);
    let keys = [
        "ssh-ed25519 AAAA a",
        " ssh-ed25519 AAAA a\n",
        "ssh-rsa BBBB \"b\"",
    ];
    pool.ssh_public_keys = keys.map(str::to_owned).to_vec();
    pool
}

/// With the password of a registry.
pub fn render(spec: &OperatingSystemProfileSpec, pool: &Pool) -> Result<Rendered, RenderError> {
    let settings = "containerd: {registries: [{host: a.example, credentials: {name: pull}}]}";
    compiled(spec).render(pool, &Settings::parse(settings).unwrap(), &stand_in_cluster())
}

/// Both documents, the first as machine-controller passes it on.
pub fn documents(rendered: &Rendered) -> [String; 2] {
    let mut values = placeholders(&rendered.spec);
    values.insert("registry/a.example/password".to_owned(), PASSWORD.to_owned());
    let document = |stage| user_data(&rendered.spec, stage, &values).unwrap();
    let [bootstrap, provisioning] = Stage::ALL.map(document);
    [named(&bootstrap, MACHINE), provisioning]
}

/// The machine with this root has what the profile says, and these files.
pub fn assert_applied(root: &Path, more: &[(&str, u32, &str)]) {
    let at = |path: &str| root.join(path.trim_start_matches('/'));
    let read = |path: &str| fs::read_to_string(at(path)).unwrap();
    let fetch = format!(
        "#!/bin/sh\necho \"{MACHINE} of https://api.cluster.example:6443, $private_ipv4\"\n{}",
        long()
    );
    let unit = format!(
        "[Service]\nExecStart=/opt/bin/fetch {MACHINE} \\$public_ipv6\n[Install]\nWantedBy=multi-user.target\n"
    );
    let drop_in = "[Service]\nNice=2\n";
    let own = [
        ("/etc/machine-name", 0o600, MACHINE),
        ("/etc/osm/token", 0o600, "Authorization: Bearer api/token\n"),
        ("/opt/bin/fetch", 0o755, &fetch),
        ("/opt/long", 0o644, &long()),
        ("/opt/empty", 0o644, ""),
        ("/etc/systemd/system/fetch.service", 0o644, &unit),
        ("/etc/systemd/system/sshd.service.d/10-a.conf", 0o644, drop_in),
        ("/etc/systemd/system/sshd.service.d/20-b.conf", 0o644, ""),
        ("/etc/osm/own.toml", 0o400, &read("/etc/osm/own.toml")),
    ];
    for (path, mode, content) in own.iter().chain(more) {
        assert_eq!(read(path), *content, "{path}");
        let metadata = fs::metadata(at(path)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o7777, *mode, "{path}");
        assert_eq!((metadata.uid(), metadata.gid()), (0, 0), "{path}");
    }
    let masked = fs::read_link(at("/etc/systemd/system/update-engine.service")).unwrap();
    assert_eq!(masked, Path::new("/dev/null"));
    let toml: toml::Table = read("/etc/osm/own.toml").parse().unwrap();
    assert_eq!(toml["server"].as_str(), Some(PASSWORD));
}
