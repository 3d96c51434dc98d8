//! Names in templates that no data has. Rendering finds only those in branches that are taken.

use osm_api::profile::OperatingSystemProfileSpec;

use crate::engine::{Located, Part};
use crate::error::TemplatePosition;
use crate::reference::{FIELDS, Field, GO_VARIABLES, GoVariable};
use crate::{Stage, engines, template_walk};

/// A name that no data has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    /// Its place in the spec.
    pub position: TemplatePosition,
    /// What is wrong, with the name.
    pub problem: String,
}

/// The names in the templates of a profile that no data has, where that is certain without rendering. Templates that can't be parsed are
/// left out.
pub fn unknown_names(spec: &OperatingSystemProfileSpec) -> Vec<UnknownName> {
    let engine = engines::engine(spec.template_engine);
    let mut unknown = Vec::new();
    for stage in Stage::ALL {
        let config = stage.config(spec);
        let named = template_walk::templates(stage.field(), config).into_iter();
        let named = named.map(|(place, _, text)| (place, text, Part::Named));
        let texts = template_walk::texts(stage.field(), config).into_iter();
        let texts = texts.map(|source| {
            let part = if source.in_file { Part::File } else { Part::Other };
            (source.place, source.text, part)
        });
        for (template, text, part) in named.chain(texts) {
            let found = engine.unknown_names(text, part).into_iter();
            unknown.extend(found.map(
                |Located {
                     line,
                     column,
                     problem,
                 }| UnknownName {
                    position: TemplatePosition {
                        template: template.clone(),
                        line,
                        column,
                    },
                    problem,
                },
            ));
        }
    }
    unknown
}

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
