//! The annotations that carry kubelet settings of a pool: one table of what they are, and how they are read.

use std::collections::BTreeMap;

use serde::Serialize;

use super::PoolError;
use crate::{kubelet_value, names};

/// Kubelet settings that a pool's annotations may carry.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct KubeletSettings {
    pub system_reserved: Option<BTreeMap<String, String>>,
    pub kube_reserved: Option<BTreeMap<String, String>>,
    pub eviction_hard: Option<BTreeMap<String, String>>,
    pub container_log_max_size: Option<String>,
    pub container_log_max_files: Option<i32>,
    pub max_pods: Option<i32>,
    #[serde(rename = "imageGCHighThresholdPercent")]
    pub image_gc_high_threshold_percent: Option<i32>,
    #[serde(rename = "imageGCLowThresholdPercent")]
    pub image_gc_low_threshold_percent: Option<i32>,
    #[serde(rename = "imageMinimumGCAge")]
    pub image_minimum_gc_age: Option<String>,
    #[serde(rename = "imageMaximumGCAge")]
    pub image_maximum_gc_age: Option<String>,
}

/// An annotation that carries a kubelet setting.
pub struct KubeletAnnotation {
    /// What follows [`KUBELET_CONFIG_PREFIX`](names::KUBELET_CONFIG_PREFIX).
    pub name: &'static str,
    pub example: &'static str,
    shape: Shape,
}

type Field<T> = fn(&mut KubeletSettings) -> &mut Option<T>;

/// How a value is read, and where it is kept.
enum Shape {
    /// Comma-separated pairs of a name and a value.
    Pairs {
        separator: char,
        check: fn(&str, &str) -> Result<(), &'static str>,
        field: Field<BTreeMap<String, String>>,
    },
    /// A whole number in this range.
    Number {
        least: i32,
        most: i32,
        field: Field<i32>,
    },
    /// A size of a log file.
    Size(Field<String>),
    /// A duration of at least 0.
    Duration(Field<String>),
}

const fn annotation(name: &'static str, example: &'static str, shape: Shape) -> KubeletAnnotation {
    KubeletAnnotation { name, example, shape }
}

const fn reservations(field: Field<BTreeMap<String, String>>) -> Shape {
    Shape::Pairs {
        separator: '=',
        check: kubelet_value::reservation,
        field,
    }
}

const fn percent(field: Field<i32>) -> Shape {
    Shape::Number {
        least: 0,
        most: 100,
        field,
    }
}

/// Every annotation that carries a kubelet setting.
pub const KUBELET_ANNOTATIONS: &[KubeletAnnotation] = &[
    annotation(
        "SystemReserved",
        "cpu=200m,memory=200Mi",
        reservations(|to| &mut to.system_reserved),
    ),
    annotation(
        "KubeReserved",
        "cpu=200m,memory=200Mi",
        reservations(|to| &mut to.kube_reserved),
    ),
    annotation(
        "EvictionHard",
        "memory.available<100Mi,nodefs.available<10%",
        Shape::Pairs {
            separator: '<',
            check: kubelet_value::eviction_threshold,
            field: |to| &mut to.eviction_hard,
        },
    ),
    annotation(
        "ContainerLogMaxSize",
        "100Mi",
        Shape::Size(|to| &mut to.container_log_max_size),
    ),
    annotation(
        "ContainerLogMaxFiles",
        "5",
        Shape::Number {
            least: 2,
            most: i32::MAX,
            field: |to| &mut to.container_log_max_files,
        },
    ),
    annotation(
        "MaxPods",
        "110",
        Shape::Number {
            least: 0,
            most: i32::MAX,
            field: |to| &mut to.max_pods,
        },
    ),
    annotation(
        "ImageGCHighThresholdPercent",
        "85",
        percent(|to| &mut to.image_gc_high_threshold_percent),
    ),
    annotation(
        "ImageGCLowThresholdPercent",
        "80",
        percent(|to| &mut to.image_gc_low_threshold_percent),
    ),
    annotation(
        "ImageMinimumGCAge",
        "2m",
        Shape::Duration(|to| &mut to.image_minimum_gc_age),
    ),
    annotation(
        "ImageMaximumGCAge",
        "24h",
        Shape::Duration(|to| &mut to.image_maximum_gc_age),
    ),
];

impl KubeletAnnotation {
    pub fn key(&self) -> String {
        format!("{}{}", names::KUBELET_CONFIG_PREFIX, self.name)
    }

    /// Sets the field of this annotation, if the kubelet accepts the value.
    fn set(&self, settings: &mut KubeletSettings, value: &str) -> Result<(), String> {
        match self.shape {
            Shape::Pairs {
                separator,
                check,
                field,
            } => {
                let pairs = parse_pairs(value, separator)?;
                for (key, value) in &pairs {
                    check(key, value).map_err(|problem| format!("{key}: {problem}"))?;
                }
                *field(settings) = Some(pairs).filter(|pairs| !pairs.is_empty());
            }
            Shape::Number { least, most, field } => {
                *field(settings) = Some(number(value, least, most)?);
            }
            Shape::Size(field) => {
                kubelet_value::log_size(value)?;
                *field(settings) = Some(value.to_owned());
            }
            Shape::Duration(field) => {
                if !matches!(kubelet_value::duration(value), Some(0..)) {
                    return Err(kubelet_value::NO_DURATION.to_owned());
                }
                *field(settings) = Some(value.to_owned());
            }
        }
        Ok(())
    }
}

fn number(value: &str, least: i32, most: i32) -> Result<i32, String> {
    match value.parse::<i32>() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ if most == i32::MAX => Err(format!("must be a whole number from {least}")),
        _ => Err(format!("must be a whole number from {least} to {most}")),
    }
}

impl KubeletSettings {
    pub(super) fn read(annotations: &BTreeMap<String, String>) -> Result<Self, PoolError> {
        let mut settings = Self::default();
        for (key, value) in annotations {
            let name = key.strip_prefix(names::KUBELET_CONFIG_PREFIX);
            // The Go implementation ignores other names, too: a pool that works with it must go on working. There is a warning.
            if let Some(known) = KUBELET_ANNOTATIONS.iter().find(|known| Some(known.name) == name) {
                known
                    .set(&mut settings, value)
                    .map_err(|problem| PoolError::InvalidAnnotation {
                        key: key.clone(),
                        problem,
                    })?;
            }
        }
        settings.check_together()?;
        Ok(settings)
    }

    /// Checks rules of the kubelet that span several values.
    fn check_together(&self) -> Result<(), PoolError> {
        let bad = |name: &str, problem: &str| {
            let key = format!("{}{name}", names::KUBELET_CONFIG_PREFIX);
            Err(PoolError::InvalidAnnotation {
                key,
                problem: problem.to_owned(),
            })
        };
        let (low, high) = (
            self.image_gc_low_threshold_percent,
            self.image_gc_high_threshold_percent,
        );
        if !kubelet_value::image_gc_percents(low.map(i64::from), high.map(i64::from)) {
            let name = if low.is_some() {
                "ImageGCLowThresholdPercent"
            } else {
                "ImageGCHighThresholdPercent"
            };
            return bad(name, kubelet_value::IMAGE_GC_PERCENTS);
        }
        if !kubelet_value::image_gc_ages(
            self.image_minimum_gc_age.as_deref(),
            self.image_maximum_gc_age.as_deref(),
        ) {
            return bad("ImageMaximumGCAge", kubelet_value::IMAGE_GC_AGES);
        }
        Ok(())
    }
}

/// Whether a text has the form of a resource or signal, such as `memory` or `nodefs.available`. YAML parsers refuse keys of
/// more than 1024 characters.
fn is_name(text: &str) -> bool {
    (1..=253).contains(&text.len())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-._/".contains(c))
}

fn parse_pairs(text: &str, separator: char) -> Result<BTreeMap<String, String>, String> {
    text.split(',')
        .filter(|pair| !pair.trim().is_empty())
        .map(|pair| match pair.split_once(separator) {
            Some((key, value)) if is_name(key.trim()) && !value.trim().is_empty() => {
                Ok((key.trim().to_owned(), value.trim().to_owned()))
            }
            _ => Err(format!(
                "must be a list such as cpu{separator}200m,memory{separator}200Mi"
            )),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_example_sets_a_field_of_its_own() {
        let mut all = KubeletSettings::default();
        for row in KUBELET_ANNOTATIONS {
            let before = all.clone();
            row.set(&mut all, row.example).unwrap();
            assert_ne!(all, before, "{}", row.name);
        }
        assert!(all.check_together().is_ok());
    }
}
