//! Checks the keys of a document that `osm-apply` of the library applies, and not cloud-init itself.
//!
//! The table of keys is in `osm-apply.py`. It runs the module of every other key by itself, and fails where
//! there is none.

use osm_api::content::Content;
use osm_api::profile::{CloudProvider, OperatingSystem};
use osm_user_data::stage::Stage;
use serde_json::Value;

use super::schema::Problem;
use crate::library;

/// The part of the library that applies documents, and a text that is in no other program.
const APPLIER: (&str, &str) = (
    "lib/osm-apply.py",
    "Applies a cloud-config, without a second run of cloud-init",
);

/// Keys without a module in cloud-init 19.3, which Amazon Linux 2 has:
/// <https://github.com/canonical/cloud-init/tree/19.3/cloudinit/config>.
const NOT_IN_AMAZON_LINUX: [&str; 6] = [
    "ansible",
    "apk_repos",
    "autoinstall",
    "keyboard",
    "updates",
    "wireguard",
];

/// Whether a row in the table of `osm-apply` has the key.
fn is_in(key: &str, row: &str) -> bool {
    let mut table = library::find(APPLIER.0).unwrap_or_default().lines();
    let keys = table.find_map(|line| line.strip_prefix(row)?.strip_prefix(": "));
    keys.is_some_and(|keys| keys.split(' ').any(|listed| listed == key))
}

/// The keys of the modules of a stage, if `osm-apply` applies them. An edge machine runs cloud-init for no
/// document.
fn keys(spec: &Content, stage: Stage) -> impl Iterator<Item = &str> {
    let is_edge = spec
        .cloud_provider
        .as_ref()
        .is_some_and(|cloud| cloud.name == CloudProvider::Edge);
    let mut files = spec.bootstrap_config.files.iter();
    let is_applied = match stage {
        Stage::Bootstrap => is_edge,
        Stage::Provisioning => files.any(|file| file.content.text().contains(APPLIER.1)),
    };
    let modules = stage.of_content(spec).modules.as_ref().and_then(Value::as_object);
    let modules = modules.filter(|_| is_applied).into_iter().flatten();
    modules.map(|(key, _)| key.as_str())
}

/// Keys with which `osm-apply` would fail at every attempt.
pub(super) fn problems(spec: &Content, stage: Stage) -> impl Iterator<Item = Problem> {
    let is_amazon = spec.os_name == Some(OperatingSystem::Amzn2);
    keys(spec, stage).filter_map(move |key| {
        let problem = match stage {
            Stage::Bootstrap if is_in(key, "refused") => "would end the script of edge machines; remove it",
            Stage::Provisioning if is_in(key, "refused") => {
                "would end osm-apply at every attempt; move it to bootstrapConfig, with the commands that need a restart"
            }
            _ if is_amazon && NOT_IN_AMAZON_LINUX.contains(&key) => {
                "has no module in cloud-init 19.3, which Amazon Linux 2 has; remove it"
            }
            _ => return None,
        };
        Some((format!(".{key}"), problem.to_owned()))
    })
}

/// Warnings for keys that no module of cloud-init reads, and that `osm-apply` skips.
pub fn skipped(spec: &Content) -> Vec<String> {
    let of_stage = |stage: Stage| {
        let instead = match stage {
            Stage::Bootstrap => "remove it",
            Stage::Provisioning => "move it to bootstrapConfig, or remove it",
        };
        let skipped = keys(spec, stage).filter(|key| is_in(key, "skipped"));
        skipped.map(move |key| {
            let place = format!("{}.modules.{key}", stage.field());
            format!("{place} has no effect, because no module of cloud-init reads it; {instead}")
        })
    };
    Stage::ALL.into_iter().flat_map(of_stage).collect()
}
