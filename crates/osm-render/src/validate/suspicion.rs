//! What is legal in a profile, but probably not what its author meant. `osmctl lint` and the admission webhook warn of it.

use crate::Stage;
use osm_api::profile::OperatingSystemProfileSpec;

/// Modes whose decimal numbers people write by mistake: the number, and the mode that was meant.
const DECIMAL_MODES: [(i32, &str); 4] = [(416, "640"), (420, "644"), (436, "664"), (511, "777")];

/// File permissions that are the decimal number of another mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecimalMode {
    /// Where they are, such as `spec.bootstrapConfig.files[0].permissions`.
    pub path: String,
    pub message: String,
    pub hint: String,
}

/// Finds file permissions that were probably written as a decimal number.
pub fn decimal_modes(spec: &OperatingSystemProfileSpec) -> Vec<DecimalMode> {
    let mut found = Vec::new();
    for stage in Stage::ALL {
        let (name, config) = (stage.field(), stage.config(spec));
        for (index, file) in config.files.iter().enumerate() {
            let meant = DECIMAL_MODES
                .iter()
                .find(|(number, _)| *number == file.permissions);
            found.extend(meant.map(|(number, meant)| DecimalMode {
                path: format!("spec.{name}.files[{index}].permissions"),
                message: format!(
                    "{}: permissions {number} means the mode 0{number}; it is also the decimal number of the mode 0{meant}",
                    file.path
                ),
                hint: format!("write the octal digits without a leading zero: {meant}"),
            }));
        }
    }
    found
}

/// Describes a profile that has the name of a default profile, but other content.
pub fn default_name(name: &str) -> String {
    format!(
        "{name} is the name of a default profile; unless default profiles are disabled, osp-controller replaces this profile with it"
    )
}

/// Whatever is suspicious in the spec of a profile, one line each.
pub fn suspicions(spec: &OperatingSystemProfileSpec) -> Vec<String> {
    decimal_modes(spec)
        .into_iter()
        .map(|mode| format!("{}; {}", mode.message, mode.hint))
        .collect()
}
