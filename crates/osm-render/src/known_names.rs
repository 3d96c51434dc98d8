//! Which paths the data of templates has, by the tables that document them.

use crate::reference::{FIELDS, GO_VARIABLES};

/// The part of a path that no field of the data has, with what is before it.
pub(crate) fn unknown_field<'n>(names: impl IntoIterator<Item = &'n str>) -> Option<String> {
    // Maps and lists have more below than the table lists.
    let is_open = |kind: &str| kind.starts_with("map") || kind.starts_with("list");
    first_unknown(FIELDS, is_open, names)
}

/// As [`unknown_field`], for variables of Go templates, without the leading dot.
pub(crate) fn unknown_variable<'n>(names: impl IntoIterator<Item = &'n str>) -> Option<String> {
    // Maps have keys, and some types of Go have methods.
    first_unknown(GO_VARIABLES, |_| true, names)
}

fn first_unknown<'n>(
    table: &[(&str, &str)],
    is_open: impl Fn(&str) -> bool,
    names: impl IntoIterator<Item = &'n str>,
) -> Option<String> {
    let rows = || {
        table
            .iter()
            .map(|(name, kind)| (name.trim_start_matches('.'), *kind))
    };
    let mut path = String::new();
    for name in names {
        let above = rows().find(|(known, _)| *known == path);
        if !path.is_empty() {
            path.push('.');
        }
        let has_parts = rows().any(|(known, _)| known.starts_with(&path));
        path.push_str(name);
        let is_known = rows().any(|(known, _)| {
            let rest = known.strip_prefix(&path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        if is_known {
            continue;
        }
        let can_have_more = above.is_some_and(|(_, kind)| is_open(kind)) && !has_parts;
        return (!can_have_more).then_some(path);
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
