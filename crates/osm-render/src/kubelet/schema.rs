//! What kubelets know: the fields of `KubeletConfiguration` and the feature gates, by minor version.
//!
//! Both are small text files, which are searched as they are: nothing is parsed before it is needed, or kept.

use osm_api::Pool;

use super::TESTED_MINORS;

const FIELDS: &str = include_str!("fields.txt");
const GATES: &str = include_str!("gates.txt");

/// The kubelet of a pool, as far as it is known here.
#[derive(Clone, Debug)]
pub(crate) struct Kubelet {
    /// Such as `1.36`: its minor version, else the nearest that is known.
    pub(crate) judged_as: String,
    /// Whether that is its own.
    pub(crate) known: bool,
}

/// What a kubelet knows of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup<T> {
    /// This kubelet knows it.
    Known(T),
    /// Only kubelets of these versions know it.
    Elsewhere(&'static str),
    /// No kubelet knows it.
    Unknown,
}

impl Kubelet {
    pub(crate) fn of(pool: &Pool) -> Self {
        let (oldest, newest) = TESTED_MINORS;
        let version = &pool.kubelet_version;
        let minor = version.minor.clamp(oldest, newest);
        Self {
            judged_as: format!("1.{minor}"),
            known: version.major == 1 && minor == version.minor,
        }
    }

    /// The type of a struct's field, as in `fields.txt`.
    pub(super) fn field(&self, structure: &str, name: &str) -> Lookup<&'static str> {
        let entry = lines(FIELDS).find_map(|line| {
            line.strip_prefix(structure)?
                .strip_prefix('.')?
                .strip_prefix(name)?
                .strip_prefix(' ')
        });
        match entry.map(|entry| entry.split_once(' ').unwrap_or((entry, ""))) {
            None => Lookup::Unknown,
            Some((kind, "")) => Lookup::Known(kind),
            Some((kind, minors)) if minors.split(' ').any(|minor| minor == self.judged_as) => {
                Lookup::Known(kind)
            }
            Some((_, minors)) => Lookup::Elsewhere(minors),
        }
    }

    /// The only value of a feature gate if it is locked.
    pub(crate) fn gate(&self, name: &str) -> Lookup<Option<bool>> {
        let Some(minors) = lines(GATES).find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')) else {
            return Lookup::Unknown;
        };
        let own = minors
            .split(' ')
            .find_map(|minor| minor.strip_prefix(self.judged_as.as_str()));
        match own.map(|rest| rest.strip_prefix('=')) {
            None => Lookup::Elsewhere(minors),
            Some(locked) => Lookup::Known(locked.map(|value| value == "true")),
        }
    }
}

/// The field of a struct that is written like `name` but for upper and lower case.
pub(super) fn alike(structure: &str, name: &str) -> Option<&'static str> {
    lines(FIELDS).find_map(|line| {
        let (field, _) = line.strip_prefix(structure)?.strip_prefix('.')?.split_once(' ')?;
        field.eq_ignore_ascii_case(name).then_some(field)
    })
}

fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubelet(minor: u64) -> Kubelet {
        Kubelet {
            judged_as: format!("1.{minor}"),
            known: true,
        }
    }

    #[test]
    fn fields_and_gates_have_their_versions() {
        let field = |minor, name| kubelet(minor).field("KubeletConfiguration", name);
        assert_eq!(field(33, "maxPods"), Lookup::Known("int32"));
        assert_eq!(field(33, "maxPod"), Lookup::Unknown);
        assert_eq!(field(36, "memoryReservationPolicy"), Lookup::Known("string"));
        assert_eq!(field(35, "memoryReservationPolicy"), Lookup::Elsewhere("1.36"));
        assert_eq!(kubelet(34).field("Taint", "maxPods"), Lookup::Unknown);
        assert_eq!(alike("KubeletConfiguration", "maxpods"), Some("maxPods"));

        assert_eq!(kubelet(33).gate("KubeletTracing"), Lookup::Known(None));
        assert_eq!(kubelet(36).gate("KubeletTracing"), Lookup::Known(Some(true)));
        assert_eq!(kubelet(36).gate("Kubelet"), Lookup::Unknown);
        assert_eq!(kubelet(33).gate("AllAlpha"), Lookup::Known(None));
    }

    #[test]
    fn every_type_is_one_that_is_judged() {
        let structs: Vec<&str> = lines(FIELDS)
            .filter_map(|line| Some(line.split_once('.')?.0))
            .collect();
        for line in lines(FIELDS) {
            let kind = line.split(' ').nth(1).unwrap();
            let scalar = kind
                .trim_start_matches("[]")
                .trim_start_matches("map[string]")
                .trim_start_matches("[]");
            assert!(
                super::super::SCALARS.contains(&scalar) || structs.contains(&scalar),
                "{line}"
            );
        }
    }
}
