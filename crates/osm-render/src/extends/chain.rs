//! The chain of profiles that a profile extends.

use osm_api::OperatingSystemProfileSpec;

use super::base::{Base, ProfileKey};
use crate::error::ProfileError;
use crate::library;

/// Most bases of a profile: its own, the base of that, and so on. People still follow such a chain, and a
/// change at its end is judged again in each profile above it.
const MAX_BASES: usize = 8;

/// The bases of the profile `key`, the nearest first. `find` returns the profile that a profile in a
/// namespace means by a name. Profiles of the library are found without it.
///
/// # Errors
/// A base that does not exist, a profile that extends itself, or more than eight bases.
pub fn bases(
    key: &ProfileKey,
    spec: &OperatingSystemProfileSpec,
    mut find: impl FnMut(&str, &str) -> Option<Base>,
) -> Result<Vec<Base>, ProfileError> {
    let mut found: Vec<Base> = Vec::new();
    let mut visited = vec![key.clone()];
    let mut wanted = spec.extends.clone();
    while let Some(name) = wanted.take() {
        if found.len() == MAX_BASES {
            return Err(ProfileError::ChainTooLong { limit: MAX_BASES });
        }
        let namespace = visited.last().unwrap_or(key).namespace.clone();
        let base = if name.starts_with(library::PART_PREFIX) {
            Some(of_library(&name, found.last().map_or(spec, |last| &last.spec))?)
        } else {
            find(&namespace, &name)
        };
        let Some(base) = base else {
            return Err(ProfileError::ParentNotFound {
                extending: found.last().map(|last| last.name().to_owned()),
                base: name,
            });
        };
        let again = visited.contains(&base.key);
        visited.push(base.key.clone());
        if again {
            let cycle = visited.iter().skip_while(|key| **key != base.key);
            let names: Vec<String> = cycle.map(|of| of.seen_from(&key.namespace)).collect();
            return Err(ProfileError::ExtendsItself {
                cycle: names.join(" → "),
            });
        }
        wanted.clone_from(&base.spec.extends);
        found.push(base);
    }
    Ok(found)
}

fn of_library(name: &str, extending: &OperatingSystemProfileSpec) -> Result<Base, ProfileError> {
    let key = ProfileKey {
        namespace: String::new(),
        name: name.to_owned(),
    };
    let spec = library::base(name, extending)?;
    Ok(Base { key, spec })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(path: &str) -> ProfileKey {
        let (namespace, name) = path.split_once('/').unwrap_or(("own", path));
        ProfileKey {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    fn spec(extends: Option<&str>) -> OperatingSystemProfileSpec {
        serde_json::from_value(json!({
            "osName": "ubuntu", "osVersion": "24.04", "version": "v1.0.0", "templateEngine": "Handlebars",
            "supportedCloudProviders": [{"name": "aws"}], "extends": extends,
        }))
        .unwrap()
    }

    /// The chain of `own/a`, among profiles that are given as `namespace/name` and what they extend.
    fn chain(extends: &str, others: &[(&str, Option<&str>)]) -> Result<Vec<String>, ProfileError> {
        let stored = |namespace: &str, name: &str| {
            let others = others.iter();
            let mut found = others.filter(|(path, _)| key(path) == key(&format!("{namespace}/{name}")));
            found.next().map(|(path, extends)| Base {
                key: key(path),
                spec: spec(*extends),
            })
        };
        let found = bases(&key("own/a"), &spec(Some(extends)), |namespace, name| {
            stored(namespace, name).or_else(|| stored("installation", name))
        })?;
        Ok(found.into_iter().map(|base| base.key.name).collect())
    }

    #[test]
    fn each_profile_is_looked_for_from_the_one_that_extends_it() {
        assert_eq!(chain("b", &[("own/b", None)]).unwrap(), ["b"]);
        let others = [("own/b", Some("c")), ("installation/c", None), ("own/d", None)];
        assert_eq!(chain("b", &others).unwrap(), ["b", "c"]);
        // A profile of the installation does not mean one of another namespace.
        let error = chain("b", &[("installation/b", Some("c")), ("own/c", None)]).unwrap_err();
        assert_eq!(error.reason(), "ParentNotFound");
        let text = "\"c\", which spec.extends of b names";
        assert!(error.to_string().contains(text), "{error}");
        let error = chain("b", &[]).unwrap_err();
        let text = "the profile \"b\", which spec.extends names,";
        assert!(error.to_string().starts_with(text), "{error}");
    }

    #[test]
    fn profiles_of_the_library_are_found_from_everywhere() {
        assert_eq!(chain("lib/redhat", &[]).unwrap(), ["lib/redhat"]);
        let found = chain("b", &[("own/b", Some("lib/redhat"))]);
        assert_eq!(found.unwrap(), ["b", "lib/redhat"]);
        let error = chain("lib/none", &[]).unwrap_err();
        assert_eq!(error.reason(), "ProfileInvalid");
        let error = error.to_string();
        let names = error.starts_with("spec.extends: ") && error.contains("lib/redhat");
        assert!(names, "{error}");
    }

    #[test]
    fn cycles_are_named_and_the_depth_is_bounded() {
        let circle = [
            ("own/b", Some("c")),
            ("installation/c", Some("d")),
            ("installation/d", Some("c")),
        ];
        for (extends, others, expected) in [
            ("a", &[("own/a", Some("a"))][..], "a → a"),
            ("b", &[("own/b", Some("a")), ("own/a", Some("b"))], "a → b → a"),
            ("b", &circle, "installation/c → installation/d → installation/c"),
        ] {
            let error = chain(extends, others).unwrap_err();
            assert_eq!(error.reason(), "ExtendsInvalid");
            assert!(error.to_string().contains(&format!(": {expected};")), "{error}");
        }
        let names: Vec<String> = (0..=9).map(|i| format!("p{i}")).collect();
        let others = |last: usize| -> Vec<(&str, Option<&str>)> {
            (0..=last)
                .map(|i| (names[i].as_str(), (i < last).then(|| names[i + 1].as_str())))
                .collect()
        };
        assert_eq!(chain("p0", &others(7)).unwrap().len(), 8);
        let error = chain("p0", &others(8)).unwrap_err();
        assert!(error.to_string().contains("more than 8"), "{error}");
    }
}
