//! containerd's configuration, which the upstream OSM writes without a template.

use std::fmt::Write as _;

use osm_api::profile::File;
use osm_api::settings::{Registry, Settings};
use osm_user_data::late_bound::Encoding;

use super::spelling::Spelling;

/// Where containerd looks for the mirrors of registries.
const CERTS_D: &str = "/etc/containerd/certs.d";

/// `config.toml`, of containerd 2. Credentials are late-bound values.
pub(super) fn config(settings: &Settings, spelling: Spelling) -> String {
    let containerd = &settings.containerd;
    let mut text = String::new();
    let mut add = |line: std::fmt::Arguments<'_>| {
        // Writing to a String never fails.
        let _ = text.write_fmt(line);
    };
    add(format_args!(
        "version = 3\n\n\
         [metrics]\naddress = \"127.0.0.1:1338\"\n\n\
         [plugins.\"io.containerd.cri.v1.images\"]\ndiscard_unpacked_layers = false\n"
    ));
    if let Some(image) = &settings.pause_image {
        add(format_args!(
            "\n[plugins.\"io.containerd.cri.v1.images\".pinned_images]\nsandbox = {}\n",
            quoted(image)
        ));
    }
    add(format_args!(
        "\n[plugins.\"io.containerd.cri.v1.images\".registry]\nconfig_path = {}\n",
        quoted(CERTS_D)
    ));
    for registry in &containerd.registries {
        if registry.credentials.is_some() {
            let value = |part| spelling.of(&format!("registry/{}/{part}", registry.host), Encoding::Toml);
            let (username, password) = (value("username"), value("password"));
            for host in hosts(registry) {
                add(format_args!(
                    "\n[plugins.\"io.containerd.cri.v1.images\".registry.configs.{}.auth]\nusername = {username}\npassword = {password}\n",
                    quoted(host)
                ));
            }
        }
    }
    let owned = containerd.device_ownership_from_security_context;
    add(format_args!(
        "\n[plugins.\"io.containerd.cri.v1.runtime\"]\ndevice_ownership_from_security_context = {owned}\n\n\
         [plugins.\"io.containerd.cri.v1.runtime\".cni]\nbin_dirs = [\"/opt/cni/bin\"]\nconf_dir = \"/etc/cni/net.d\"\n\n\
         [plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n\n\
         [plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.runc.options]\nSystemdCgroup = true\n"
    ));
    text
}

/// The names under which containerd looks the credentials of a registry up.
fn hosts(registry: &Registry) -> impl Iterator<Item = &str> {
    let of_docker = (registry.host == "docker.io").then_some("registry-1.docker.io");
    std::iter::once(registry.host.as_str()).chain(of_docker)
}

/// A `hosts.toml` for docker.io and for each registry with mirrors, in the order of their paths.
pub(crate) fn mirrors(settings: &Settings) -> Vec<File> {
    let docker = Registry {
        host: "docker.io".to_owned(),
        mirrors: Vec::new(),
        credentials: None,
    };
    let listed = || settings.containerd.registries.iter();
    let is_listed = listed().any(|registry| registry.host == docker.host);
    let wanted = listed().filter(|registry| registry.host == docker.host || !registry.mirrors.is_empty());
    let mut files: Vec<File> = wanted
        .chain((!is_listed).then_some(&docker))
        .map(hosts_file)
        .collect();
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files
}

fn hosts_file(registry: &Registry) -> File {
    let mut text = String::new();
    if let Some(server) = crate::model::server(registry) {
        text = format!("server = {}\n", quoted(&server));
    }
    for mirror in &registry.mirrors {
        text.push_str(&format!(
            "\n[host.{}]\ncapabilities = [\"pull\", \"resolve\"]\n",
            quoted(&mirror.url)
        ));
        if mirror.skip_verify {
            text.push_str("skip_verify = true\n");
        }
        if mirror.override_path {
            text.push_str("override_path = true\n");
        }
    }
    File::of_text(format!("{CERTS_D}/{}/hosts.toml", registry.host), 600, text)
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
