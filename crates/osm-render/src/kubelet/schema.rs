//! Knows what kubelets support: the fields of `KubeletConfiguration` and the feature gates, by minor version.
//!
//! Both are small text files, which are searched as they are: nothing is parsed before it is needed, or kept.

use osm_api::Pool;

/// Oldest and newest minor version of Kubernetes 1 that templates are tested with.
pub(crate) const TESTED_MINORS: (u64, u64) = (33, 37);

const FIELDS: &str = include_str!("fields.txt");
const GATES: &str = include_str!("gates.txt");

/// The kubelet of a pool, as far as it is known here.
#[derive(Clone, Debug)]
pub(super) struct Kubelet {
    /// Its minor version, else the nearest that is known.
    pub(super) minor: u64,
    /// Such as `1.36`.
    pub(super) judged_as: String,
    /// Whether that is its own.
    pub(super) known: bool,
}

impl Kubelet {
    pub(super) fn of(pool: &Pool) -> Self {
        let (oldest, newest) = TESTED_MINORS;
        let version = &pool.kubelet_version;
        let minor = version.minor.clamp(oldest, newest);
        Self {
            minor,
            judged_as: format!("1.{minor}"),
            known: version.major == 1 && minor == version.minor,
        }
    }

    /// The type of a struct's field, as in `fields.txt`. `None`: this kubelet has no such field.
    pub(super) fn field(&self, structure: &str, name: &str) -> Option<&'static str> {
        let entry = lines(FIELDS).find_map(|line| {
            line.strip_prefix(structure)?
                .strip_prefix('.')?
                .strip_prefix(name)?
                .strip_prefix(' ')
        })?;
        match entry.split_once(' ') {
            None => Some(entry),
            Some((kind, minors)) => minors
                .split(' ')
                .any(|minor| minor == self.judged_as)
                .then_some(kind),
        }
    }

    /// A feature gate. `None`: this kubelet does not know it.
    pub(super) fn gate(&self, name: &str) -> Option<Gate> {
        self.of_line(lines(GATES).find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?)
    }

    /// The feature gates that can't be on without others, by name.
    pub(super) fn gates_with_needs(&self) -> impl Iterator<Item = (&'static str, Gate)> {
        let with_needs = lines(GATES).filter(|line| line.contains(NEEDS));
        with_needs.filter_map(|line| {
            let (name, minors) = line.split_once(' ')?;
            let gate = self.of_line(minors)?;
            (!gate.needs.is_empty()).then_some((name, gate))
        })
    }

    /// What `gates.txt` has behind a name.
    fn of_line(&self, minors: &'static str) -> Option<Gate> {
        let mut minors = minors.split(' ');
        let own = minors.find_map(|minor| minor.strip_prefix(&*self.judged_as)?.strip_prefix(':'))?;
        let mut words = own.split(':');
        let (stage, is_on) = (words.next()?, words.next()? == "on");
        let rest: Vec<&str> = words.collect();
        Some(Gate {
            stage,
            is_on,
            is_locked: rest.contains(&"locked"),
            needs: rest
                .iter()
                .find_map(|word| word.strip_prefix(NEEDS))
                .unwrap_or_default(),
        })
    }
}

/// What precedes the gates that a gate needs.
const NEEDS: &str = "needs=";

/// A feature gate of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gate {
    /// `alpha`, `beta`, `ga` or `deprecated`.
    pub(super) stage: &'static str,
    /// Whether it is on unless it is set.
    pub(super) is_on: bool,
    /// Whether it can't be set to anything else.
    pub(super) is_locked: bool,
    /// The gates without which it can't be on, separated by commas.
    pub(super) needs: &'static str,
}

fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_type_is_one_that_is_judged() {
        let structs: Vec<&str> = lines(FIELDS)
            .filter_map(|line| Some(line.split_once('.')?.0))
            .collect();
        for line in lines(FIELDS) {
            let kind = line.split(' ').nth(1).unwrap();
            // Such as `map[string][]string`.
            let scalar = kind.rsplit(']').next().unwrap();
            assert!(
                super::super::scalar(scalar, &Value::Null).is_some() || structs.contains(&scalar),
                "{line}"
            );
        }
    }
}
