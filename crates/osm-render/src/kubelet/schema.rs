//! What kubelets know: the fields of `KubeletConfiguration` and the feature gates, by minor version.
//!
//! Both are small text files, which are searched as they are: nothing is parsed before it is needed, or kept.

use osm_api::Pool;

use super::TESTED_MINORS;

const FIELDS: &str = include_str!("fields.txt");
const GATES: &str = include_str!("gates.txt");

/// The kubelet of a pool, as far as it is known here.
#[derive(Clone, Debug)]
pub(super) struct Kubelet {
    /// Such as `1.36`: its minor version, else the nearest that is known.
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

    /// The only value of a feature gate if it is locked. `None`: this kubelet does not know it.
    pub(super) fn gate(&self, name: &str) -> Option<Option<bool>> {
        let minors = lines(GATES).find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        let mut own = minors.split(' ');
        let own = own.find_map(|minor| minor.strip_prefix(self.judged_as.as_str()))?;
        Some(own.strip_prefix('=').map(|value| value == "true"))
    }
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
