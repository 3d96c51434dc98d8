//! Finds credentials that users other than root can read on a machine.

use osm_api::config::{LateBound, LateBoundKind, StageConfig};
use osm_user_data::late_bound;

/// Whether a late-bound value of this kind must stay secret.
pub fn is_credential(kind: LateBoundKind) -> bool {
    use LateBoundKind::{
        ContentID, KubeconfigSecretName, PoolID, ProvisioningDigest, ProvisioningKey, ProvisioningSecretName,
        RegistryUsername,
    };
    !matches!(
        kind,
        ProvisioningSecretName
            | ProvisioningKey
            | ProvisioningDigest
            | KubeconfigSecretName
            | PoolID
            | ContentID
            | RegistryUsername
    )
}

/// Whether it is a credential that an operator chose. Tokens of a pool expire, and many profiles of the
/// upstream OSM have them in a script that every user can read.
pub(crate) fn is_password(kind: LateBoundKind) -> bool {
    is_credential(kind) && !matches!(kind, LateBoundKind::APIToken | LateBoundKind::KubeletToken)
}

/// The paths of a stage's files and units that contain a value of a kind that `is_secret`, and that users
/// other than root can read.
pub fn readable(
    config: &StageConfig,
    values: &[LateBound],
    is_secret: impl Fn(LateBoundKind) -> bool,
) -> Vec<String> {
    let secrets: Vec<&str> = values
        .iter()
        .filter(|value| is_secret(value.kind))
        .map(|value| value.id.as_str())
        .collect();
    if secrets.is_empty() {
        return Vec::new();
    }
    let has_secret = |text: &str| {
        // A rendered text has no damaged marker.
        let markers = late_bound::markers(text).unwrap_or_default();
        markers.iter().any(|marker| secrets.contains(&marker.id.as_str()))
    };
    let files = config
        .files
        .iter()
        .filter(|file| others_read(file.permissions) && has_secret(file.content.text()));
    // systemd shows the text of a unit to every user.
    let units = config.units.iter().filter(|unit| {
        let drop_ins = unit.drop_ins.iter().map(|drop_in| &drop_in.content);
        unit.content.iter().chain(drop_ins).any(|text| has_secret(text))
    });
    files
        .map(|file| file.path.clone())
        .chain(units.map(|unit| format!("/etc/systemd/system/{}", unit.name)))
        .collect()
}

/// Whether a mode, octal digits as a decimal number, lets the group or others read.
fn others_read(permissions: i32) -> bool {
    [permissions / 10, permissions]
        .into_iter()
        .any(|digits| (digits % 10) & 4 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_and_others_read_by_these_modes() {
        for (permissions, expected) in [
            (600, false),
            (700, false),
            (711, false),
            (640, true),
            (604, true),
            (755, true),
        ] {
            assert_eq!(others_read(permissions), expected, "{permissions}");
        }
    }
}
