//! From a rendered configuration to the document that a machine reads: late-bound values are filled in, files
//! encoded, the cloud-config written.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use osm_api::config::{OperatingSystemConfigSpec, StageConfig};
use osm_api::names::MACHINE_NAME_PLACEHOLDER;
use osm_api::profile::{CloudProvider, File, ProvisioningUtility, Unit};
use serde_json::{Map, Value, json};

use crate::error::UserDataError;
use crate::late::{self, LateValues};
use crate::{Stage, texts, yaml};

/// Holds the machine's name; the provisioning stage reads it, because only the bootstrap document has names filled
/// in by machine-controller.
pub(crate) const MACHINE_NAME_FILE: &str = "/etc/machine-name";

const UNIT_FOLDER: &str = "/etc/systemd/system";

/// The cloud-config document of a stage, with `values` in the place of late-bound ones.
///
/// The bootstrap document also sets the host name and writes `/etc/machine-name` (on every cloud but `aws`, where the
/// node is named by the cloud), sets the users' SSH keys and turns password logins off.
///
/// # Errors
/// A late-bound value that is missing, that can't stand where its marker stands, or that the configuration does not declare.
pub fn user_data(
    spec: &OperatingSystemConfigSpec,
    stage: Stage,
    values: &LateValues,
) -> Result<String, UserDataError> {
    if spec.provisioning_utility != ProvisioningUtility::CloudInit {
        return Err(UserDataError::UtilityUnsupported);
    }
    let config = match stage {
        Stage::Bootstrap => &spec.bootstrap_config,
        Stage::Provisioning => &spec.provisioning_config,
    };
    let fill = |place: &str, text: &str| late::fill(text, place, &spec.late_bound, values);

    let mut document = Map::new();
    let mut files = Vec::new();
    if stage == Stage::Bootstrap {
        let cloud = spec.cloud_provider.as_ref().map(|cloud| cloud.name);
        if cloud != Some(CloudProvider::Aws) {
            let name = machine_name(spec, cloud);
            document.insert("hostname".to_owned(), json!(name));
            files.push(json!({"path": MACHINE_NAME_FILE, "permissions": "0600", "content": name}));
        }
        document.insert("ssh_pwauth".to_owned(), json!(false));
        if !config.user_ssh_keys.is_empty() {
            document.insert("ssh_authorized_keys".to_owned(), json!(config.user_ssh_keys));
        }
    }
    for file in &config.files {
        files.push(write_file(file, &fill)?);
    }
    for unit in &config.units {
        files.extend(write_unit(unit, &fill)?);
    }
    if !files.is_empty() {
        document.insert("write_files".to_owned(), Value::Array(files));
    }
    let modules = config.modules.clone().unwrap_or(Value::Null);
    let modules = texts::map_value(&format!("{}.modules", stage.field()), &modules, &mut |place, text| {
        fill(place, text)
    })?;
    if let Value::Object(modules) = modules {
        document.extend(modules);
    }
    let mut commands = unit_commands(config);
    if !commands.is_empty() {
        if let Some(Value::Array(own)) = document.remove("runcmd") {
            commands.extend(own);
        }
        document.insert("runcmd".to_owned(), Value::Array(commands));
    }
    let body = yaml::write(&Value::Object(document))
        .map_err(|_| UserDataError::Unwritable { place: stage.field().to_owned() })?;
    Ok(format!("#cloud-config\n{body}"))
}

/// machine-controller puts the name of each machine in; with `edge` it never does, there the pool's name is taken.
fn machine_name(spec: &OperatingSystemConfigSpec, cloud: Option<CloudProvider>) -> &str {
    match &spec.machine_deployment {
        Some(pool) if cloud == Some(CloudProvider::Edge) => &pool.name,
        _ => MACHINE_NAME_PLACEHOLDER,
    }
}

fn write_file(
    file: &File,
    fill: &impl Fn(&str, &str) -> Result<String, UserDataError>,
) -> Result<Value, UserDataError> {
    let inline = file.content.inline.as_ref();
    let text = fill(&file.path, inline.map_or("", |inline| &inline.data))?;
    let permissions = format!("{:04}", if file.permissions == 0 { 644 } else { file.permissions });
    Ok(match inline.and_then(|inline| inline.encoding.as_deref()) {
        Some("b64") => {
            json!({"path": file.path, "permissions": permissions, "encoding": "b64", "content": STANDARD.encode(text)})
        }
        _ => json!({"path": file.path, "permissions": permissions, "content": text}),
    })
}

/// Paths of the files that a unit takes.
pub(crate) fn unit_paths(unit: &Unit) -> Vec<String> {
    let own = unit.content.as_ref().map(|_| format!("{UNIT_FOLDER}/{}", unit.name));
    let drop_ins =
        unit.drop_ins.iter().map(|drop_in| format!("{UNIT_FOLDER}/{}.d/{}", unit.name, drop_in.name));
    own.into_iter().chain(drop_ins).collect()
}

fn write_unit(
    unit: &Unit,
    fill: &impl Fn(&str, &str) -> Result<String, UserDataError>,
) -> Result<Vec<Value>, UserDataError> {
    let texts = unit.content.iter().chain(unit.drop_ins.iter().map(|drop_in| &drop_in.content));
    unit_paths(unit)
        .into_iter()
        .zip(texts)
        .map(|(path, text)| {
            let content = fill(&path, text)?;
            Ok(json!({"path": path, "permissions": "0644", "content": content}))
        })
        .collect()
}

/// Commands that make systemd see, mask and start the units.
fn unit_commands(config: &StageConfig) -> Vec<Value> {
    if config.units.is_empty() {
        return Vec::new();
    }
    let mut commands = vec![json!(["systemctl", "daemon-reload"])];
    for unit in &config.units {
        if unit.mask == Some(true) {
            commands.push(json!(["systemctl", "mask", unit.name]));
        } else if unit.enable == Some(true) {
            commands.push(json!(["systemctl", "enable", "--now", "--no-block", unit.name]));
        }
    }
    commands
}

/// Readable values in the place of late-bound ones, for previews; never use them for a machine.
pub fn placeholders(spec: &OperatingSystemConfigSpec) -> LateValues {
    late::stand_ins(&spec.late_bound)
}
