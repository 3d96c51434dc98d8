//! The annotations that carry kubelet settings of a pool: one table of what they are, and how they are read.

use std::collections::BTreeMap;

use serde::Serialize;

use super::error::PoolError;
use crate::kubelet_value::{self, eviction_threshold, log_size, reservation};
use crate::names;

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
    /// Sets the field of this annotation, if the kubelet accepts the value.
    set: fn(&mut KubeletSettings, &str) -> Result<(), String>,
}

const fn annotation(
    name: &'static str,
    example: &'static str,
    set: fn(&mut KubeletSettings, &str) -> Result<(), String>,
) -> KubeletAnnotation {
    KubeletAnnotation { name, example, set }
}

/// Every annotation that carries a kubelet setting.
pub const KUBELET_ANNOTATIONS: &[KubeletAnnotation] = &[
    annotation("SystemReserved", "cpu=200m,memory=200Mi", |to, text| {
        set(&mut to.system_reserved, pairs(text, '=', reservation))
    }),
    annotation("KubeReserved", "cpu=200m,memory=200Mi", |to, text| {
        set(&mut to.kube_reserved, pairs(text, '=', reservation))
    }),
    annotation(
        "EvictionHard",
        "memory.available<100Mi,nodefs.available<10%",
        |to, text| set(&mut to.eviction_hard, pairs(text, '<', eviction_threshold)),
    ),
    annotation("ContainerLogMaxSize", "100Mi", |to, text| {
        log_size(text)?;
        set(&mut to.container_log_max_size, Ok(Some(text.to_owned())))
    }),
    annotation("ContainerLogMaxFiles", "5", |to, text| {
        set(&mut to.container_log_max_files, number(text, 2, i32::MAX))
    }),
    annotation("MaxPods", "110", |to, text| {
        set(&mut to.max_pods, number(text, 0, i32::MAX))
    }),
    annotation("ImageGCHighThresholdPercent", "85", |to, text| {
        set(&mut to.image_gc_high_threshold_percent, number(text, 0, 100))
    }),
    annotation("ImageGCLowThresholdPercent", "80", |to, text| {
        set(&mut to.image_gc_low_threshold_percent, number(text, 0, 100))
    }),
    annotation("ImageMinimumGCAge", "2m", |to, text| {
        set(&mut to.image_minimum_gc_age, duration(text))
    }),
    annotation("ImageMaximumGCAge", "24h", |to, text| {
        set(&mut to.image_maximum_gc_age, duration(text))
    }),
];

impl KubeletAnnotation {
    pub fn key(&self) -> String {
        format!("{}{}", names::KUBELET_CONFIG_PREFIX, self.name)
    }
}

fn set<T>(field: &mut Option<T>, value: Result<Option<T>, String>) -> Result<(), String> {
    *field = value?;
    Ok(())
}

/// A duration of at least 0.
fn duration(value: &str) -> Result<Option<String>, String> {
    match kubelet_value::duration(value) {
        Some(0..) => Ok(Some(value.to_owned())),
        _ => Err(kubelet_value::NO_DURATION.to_owned()),
    }
}

/// A whole number in this range.
fn number(value: &str, least: i32, most: i32) -> Result<Option<i32>, String> {
    match value.parse::<i32>() {
        Ok(number) if (least..=most).contains(&number) => Ok(Some(number)),
        _ if most == i32::MAX => Err(format!("must be a whole number from {least}")),
        _ => Err(format!("must be a whole number from {least} to {most}")),
    }
}

impl KubeletSettings {
    pub(super) fn read(annotations: &BTreeMap<String, String>) -> Result<Self, PoolError> {
        let mut settings = Self::default();
        for (key, value) in annotations {
            let name = key.strip_prefix(names::KUBELET_CONFIG_PREFIX);
            // The upstream OSM ignores other names, too: a pool that works with it must go on working. There
            // is a warning.
            if let Some(known) = KUBELET_ANNOTATIONS.iter().find(|known| Some(known.name) == name) {
                (known.set)(&mut settings, value).map_err(|problem| PoolError::annotation(key, &problem))?;
            }
        }
        settings.check_together()?;
        Ok(settings)
    }

    /// Checks rules of the kubelet that span several values, each with its default unless it is set.
    fn check_together(&self) -> Result<(), PoolError> {
        let bad = |name: &str, problem: &str| {
            let key = format!("{}{name}", names::KUBELET_CONFIG_PREFIX);
            Err(PoolError::annotation(&key, problem))
        };
        let low = self.image_gc_low_threshold_percent;
        if low.unwrap_or(80) >= self.image_gc_high_threshold_percent.unwrap_or(85) {
            let name = match low {
                Some(_) => "ImageGCLowThresholdPercent",
                None => "ImageGCHighThresholdPercent",
            };
            return bad(
                name,
                "the image garbage collection's low threshold, 80 unless it is set, must be below the high one, 85 unless it is set",
            );
        }
        let age = |text: &Option<String>| kubelet_value::duration(text.as_deref()?);
        let shortest = age(&self.image_minimum_gc_age).unwrap_or(120_000_000_000);
        let longest = age(&self.image_maximum_gc_age).unwrap_or(0);
        if longest != 0 && longest <= shortest {
            let problem =
                "must be longer than the minimum age, which is 2m unless it is set; 0s: there is no maximum";
            return bad("ImageMaximumGCAge", problem);
        }
        Ok(())
    }
}

/// Whether a text has the form of a resource or signal, such as `memory` or `nodefs.available`. YAML parsers
/// refuse keys of more than 1024 characters.
fn is_name(text: &str) -> bool {
    (1..=253).contains(&text.len())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-._/".contains(c))
}

/// Comma-separated pairs of a name and a value that this check accepts.
fn pairs(
    text: &str,
    separator: char,
    check: fn(&str, &str) -> Result<(), &'static str>,
) -> Result<Option<BTreeMap<String, String>>, String> {
    let mut pairs = BTreeMap::new();
    for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
        let (name, value) = pair.split_once(separator).unwrap_or_default();
        let (name, value) = (name.trim(), value.trim());
        if !is_name(name) || value.is_empty() {
            return Err(format!(
                "must be a list such as cpu{separator}200m,memory{separator}200Mi"
            ));
        }
        check(name, value).map_err(|problem| format!("{name}: {problem}"))?;
        pairs.insert(name.to_owned(), value.to_owned());
    }
    Ok(Some(pairs).filter(|pairs| !pairs.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_example_sets_a_field_of_its_own() {
        let mut all = KubeletSettings::default();
        for row in KUBELET_ANNOTATIONS {
            let before = all.clone();
            (row.set)(&mut all, row.example).unwrap();
            assert_ne!(all, before, "{}", row.name);
        }
        assert!(all.check_together().is_ok());
    }
}
