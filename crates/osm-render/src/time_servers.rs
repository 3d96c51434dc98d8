//! Time servers of the settings, in each system's own way.
//!
//! They are part of the bootstrap document: the first request to the API server needs a correct clock.

use osm_api::config::StageConfig;
use osm_api::pool::Pool;
use osm_api::profile::{File, OperatingSystem, Unit};
use osm_user_data::reader::Reader;
use serde_json::json;

use crate::additions;

/// Makes chrony read the file with our servers, now and at every boot. A failure must not keep the machine
/// from joining.
const READ_BY_CHRONY: &str = "grep -q '^include /etc/chrony.d/' /etc/chrony.conf || echo 'include /etc/chrony.d/*.conf' >>/etc/chrony.conf; \
    systemctl try-restart chronyd.service; :";

/// Read by systemd-timesyncd when it starts. coreos-cloudinit writes files while it runs.
const RESTART: &str = "[Unit]\nDescription=Take the time from the servers of the settings\nBefore=osm-bootstrap.service\n\n\
    [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/bin/systemctl try-restart systemd-timesyncd.service\n\n\
    [Install]\nWantedBy=multi-user.target\n";

/// Sets the time servers. Returns a warning if the profile itself prevents it.
pub(crate) fn configure(
    reader: Reader,
    bootstrap: &mut StageConfig,
    pool: &Pool,
    servers: &[String],
) -> Option<String> {
    if servers.is_empty() {
        return None;
    }
    let not_used = |what: &str| {
        Some(format!(
            "system.ntpServers of the settings has no effect, because the profile sets {what}"
        ))
    };
    let (path, text) = match (reader, pool.operating_system) {
        // cloud-init 19.3, which it has, knows no time servers of Amazon Linux.
        (Reader::CloudInit, OperatingSystem::Amzn2) => (
            "/etc/chrony.d/osm.conf",
            servers
                .iter()
                .map(|server| format!("server {server} iburst\n"))
                .collect(),
        ),
        (Reader::CloudInit, _) => {
            let modules = additions::modules(bootstrap)?;
            if modules.contains_key("ntp") {
                return not_used("bootstrapConfig.modules.ntp");
            }
            modules.insert("ntp".to_owned(), json!({"enabled": true, "servers": servers}));
            return None;
        }
        (Reader::CoreosCloudinit | Reader::Ignition, _) => (
            "/etc/systemd/timesyncd.conf.d/10-osm.conf",
            format!("[Time]\nNTP={}\n", servers.join(" ")),
        ),
    };
    if bootstrap.files.iter().any(|file| file.path == path) {
        return not_used(path);
    }
    bootstrap.files.push(File::of_text(path, 644, text));
    match reader {
        Reader::CloudInit => {
            let command = vec![json!(READ_BY_CHRONY)];
            let modules = additions::modules(bootstrap)?;
            additions::set(modules, "runcmd", |own| [command, own].concat());
        }
        Reader::CoreosCloudinit => bootstrap.units.insert(
            0,
            Unit {
                name: "osm-time-servers.service".to_owned(),
                enable: Some(true),
                content: Some(RESTART.to_owned()),
                ..Unit::default()
            },
        ),
        // Its files are there before anything starts.
        Reader::Ignition => {}
    }
    None
}
