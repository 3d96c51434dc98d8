//! Metrics of this controller besides reconciles and conditions.

use std::collections::HashMap;
use std::sync::Arc;

use osm_api::config::UserDataBytes;
use osm_api::profile::CloudProvider;
use osm_runtime::Metrics;
use osm_runtime::cluster_gauge::{ClusterGauge, Part, Shows};
use parking_lot::Mutex;
use prometheus::{IntGaugeVec, Opts};
use strum::IntoEnumIterator;

const BOOTSTRAP: &str = "bootstrap";

const PROVISIONING: &str = "provisioning";

const LABELS: [&str; 2] = ["cloud_provider", "stage"];

/// Makes the metric of the largest documents, beside which is what each cloud takes.
///
/// # Errors
/// Where a name is taken.
pub fn largest_user_data(metrics: &Metrics) -> Result<Arc<ClusterGauge>, prometheus::Error> {
    let limit = Opts::new(
        "osm_user_data_limit_bytes",
        "Most user data that a cloud takes, as the cloud counts it.",
    );
    let limit = metrics.catalog.add(IntGaugeVec::new(limit, &LABELS))?;
    for cloud in CloudProvider::iter() {
        if let Some(bytes) = osm_user_data::limit_bytes(cloud) {
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            limit.with_label_values(&[cloud.as_str(), BOOTSTRAP]).set(bytes);
        }
    }
    let largest = Opts::new(
        "osm_user_data_bytes",
        "Largest user data of any pool, late-bound values at their largest; bootstrap as the cloud counts it.",
    );
    let largest = metrics.catalog.add(IntGaugeVec::new(largest, &LABELS))?;
    Ok(ClusterGauge::new(Shows::Greatest, largest))
}

/// The largest documents of each cloud provider in one cluster, as last rendered.
pub struct Sizes {
    largest: Part,
    seen: Mutex<HashMap<String, (CloudProvider, UserDataBytes)>>,
}

impl Sizes {
    pub fn new(largest: Part) -> Self {
        Self {
            largest,
            seen: Mutex::default(),
        }
    }

    /// Notes the sizes of a config; `None` means that it is gone.
    pub fn note(&self, config: &str, now: Option<(CloudProvider, UserDataBytes)>) {
        let mut seen = self.seen.lock();
        let before = match now {
            Some((cloud, bytes)) => seen.insert(config.to_owned(), (cloud, bytes)),
            None => seen.remove(config),
        };
        let mut clouds: Vec<CloudProvider> = before.iter().chain(&now).map(|(cloud, _)| *cloud).collect();
        clouds.dedup();
        for cloud in clouds {
            let of_cloud = || {
                seen.values()
                    .filter(|(other, _)| *other == cloud)
                    .map(|(_, bytes)| bytes)
            };
            let largest = [
                (BOOTSTRAP, of_cloud().map(|bytes| bytes.bootstrap).max()),
                (PROVISIONING, of_cloud().map(|bytes| bytes.provisioning).max()),
            ];
            for (stage, bytes) in largest {
                self.largest.set(&[cloud.as_str(), stage], bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_each_cloud_is_reported_with_the_limit_of_the_cloud() {
        let metrics = Metrics::of(osm_api::rbac::Service::OscController).unwrap();
        let sizes = Sizes::new(largest_user_data(&metrics).unwrap().part());
        let bytes = |bootstrap| UserDataBytes {
            bootstrap,
            provisioning: 10 * bootstrap,
        };
        let reports = |metric: &str, cloud: &str, stage: &str, bytes: u32| {
            let line = format!("osm_{metric}{{cloud_provider=\"{cloud}\",stage=\"{stage}\"}} {bytes}\n");
            let text = String::from_utf8(metrics.encode()).unwrap();
            assert!(text.contains(&line), "{line} is not in {text}");
            text
        };
        sizes.note("a", Some((CloudProvider::Aws, bytes(7))));
        sizes.note("b", Some((CloudProvider::Aws, bytes(9))));
        reports("user_data_bytes", "aws", BOOTSTRAP, 9);
        reports("user_data_bytes", "aws", PROVISIONING, 90);
        sizes.note("b", Some((CloudProvider::Kubevirt, bytes(9))));
        reports("user_data_bytes", "aws", BOOTSTRAP, 7);
        reports("user_data_bytes", "kubevirt", BOOTSTRAP, 9);
        sizes.note("a", None);
        reports("user_data_bytes", "aws", BOOTSTRAP, 0);
        let text = reports("user_data_limit_bytes", "aws", BOOTSTRAP, 16384);
        assert!(
            !text.contains("limit_bytes{cloud_provider=\"kubevirt\""),
            "it has none"
        );
    }
}
