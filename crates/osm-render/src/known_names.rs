//! Which paths the data of templates has, by the tables that document them.

use crate::reference::{FIELDS, Field, GO_VARIABLES, GoVariable};

/// What a table of names says about the parts of a path.
trait Row {
    /// The path without a leading dot.
    fn path(&self) -> &'static str;

    /// Whether there can be more below than the table lists.
    fn is_open(&self) -> bool;
}

impl Row for Field {
    fn path(&self) -> &'static str {
        self.path
    }

    fn is_open(&self) -> bool {
        self.kind.starts_with("map") || self.kind.starts_with("list")
    }
}

impl Row for GoVariable {
    fn path(&self) -> &'static str {
        self.name.trim_start_matches('.')
    }

    fn is_open(&self) -> bool {
        // Maps have keys, and some types of Go have methods.
        true
    }
}

/// The part of a path that no field of the data has, with what is before it.
pub(crate) fn unknown_field<'n>(names: impl IntoIterator<Item = &'n str>) -> Option<String> {
    first_unknown(FIELDS, names)
}

/// As [`unknown_field`], for variables of Go templates, without the leading dot.
pub(crate) fn unknown_variable<'n>(names: impl IntoIterator<Item = &'n str>) -> Option<String> {
    first_unknown(GO_VARIABLES, names)
}

fn first_unknown<'n>(table: &[impl Row], names: impl IntoIterator<Item = &'n str>) -> Option<String> {
    let mut path = String::new();
    for name in names {
        let above = table.iter().find(|row| row.path() == path);
        if !path.is_empty() {
            path.push('.');
        }
        let has_parts = table.iter().any(|row| row.path().starts_with(&path));
        path.push_str(name);
        let is_known = table.iter().any(|row| {
            let rest = row.path().strip_prefix(&path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        if is_known {
            continue;
        }
        let is_open = above.is_some_and(Row::is_open) && !has_parts;
        return (!is_open).then_some(path);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_certain_is_unknown() {
        let field = |path: &str| unknown_field(path.split('.'));
        for known in [
            "kubelet.version",
            "kubelet",
            "kubelet.featureGates.Some",
            "initialTaints.0.key",
            "downloads.cni.sha256.amd64",
            "cloud.guestAgent.unit",
        ] {
            assert_eq!(field(known), None, "{known}");
        }
        for (path, unknown) in [
            ("kubelet.versin", "kubelet.versin"),
            ("kublet.version", "kublet"),
            ("cloud.name.first", "cloud.name.first"),
            ("downloads.cni.sha256.arm", "downloads.cni.sha256.arm"),
        ] {
            assert_eq!(field(path).as_deref(), Some(unknown));
        }
        let variable = |path: &str| unknown_variable(path.split('.'));
        for known in [
            "NetworkConfig.DNS.Servers",
            "NetworkConfig.IsStaticIPConfig",
            "ProfileSecret",
            "KubeReserved.cpu",
            "ImageMinimumGCAge.Duration.Seconds",
        ] {
            assert_eq!(variable(known), None, "{known}");
        }
        for (path, unknown) in [
            ("Typo.A", "Typo"),
            ("NetworkConfig.Cidr", "NetworkConfig.Cidr"),
            ("RhelConfig.DisableAutoUpdate", "RhelConfig.DisableAutoUpdate"),
            ("NetworkConfig.DNS.Server", "NetworkConfig.DNS.Server"),
        ] {
            assert_eq!(variable(path).as_deref(), Some(unknown));
        }
    }
}
