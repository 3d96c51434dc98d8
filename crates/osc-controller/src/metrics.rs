//! Metrics of this controller besides reconciles and conditions.

use std::collections::HashMap;

use osm_api::config::UserDataBytes;
use osm_api::profile::CloudProvider;
use osm_runtime::Metrics;
use osm_runtime::metrics::Catalog;
use parking_lot::Mutex;
use prometheus::{Histogram, HistogramOpts, IntGaugeVec, Opts};

use crate::planning::Waits;
use crate::publishing::Publishing;

const BOOTSTRAP: &str = "bootstrap";

const PROVISIONING: &str = "provisioning";

/// Upper bounds of the time of a rendering, in seconds.
const RENDER_SECONDS: [f64; 12] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
];

pub struct RenderMetrics {
    pub sizes: Sizes,
    pub publishing: Publishing,
    /// Pools that wait to be rendered.
    pub waits: Waits,
    /// Time of each rendering, with the decisions about the pool.
    pub render_seconds: Histogram,
}

impl RenderMetrics {
    /// # Errors
    /// Where a name is taken.
    pub fn new(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let catalog = &metrics.catalog;
        let render_seconds = HistogramOpts::new(
            "osm_render_duration_seconds",
            "Time to render the documents of a pool.",
        );
        Ok(Self {
            sizes: Sizes::new(catalog)?,
            publishing: Publishing::new(catalog)?,
            waits: Waits::new(catalog)?,
            render_seconds: catalog.add(Histogram::with_opts(
                render_seconds.buckets(RENDER_SECONDS.to_vec()),
            ))?,
        })
    }
}

/// The largest documents of each cloud, as last rendered.
pub struct Sizes {
    largest: IntGaugeVec,
    limit: IntGaugeVec,
    seen: Mutex<HashMap<String, (CloudProvider, UserDataBytes)>>,
}

impl Sizes {
    fn new(catalog: &Catalog) -> Result<Self, prometheus::Error> {
        let gauges = |name: &str, help: &str| {
            catalog.add(IntGaugeVec::new(Opts::new(name, help), &["cloud", "stage"]))
        };
        Ok(Self {
            largest: gauges(
                "osm_user_data_bytes",
                "Largest user data of any pool, late-bound values at their largest; bootstrap as the cloud counts it.",
            )?,
            limit: gauges(
                "osm_user_data_limit_bytes",
                "Most user data that a cloud with pools takes, as the cloud counts it.",
            )?,
            seen: Mutex::default(),
        })
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
                self.largest
                    .with_label_values(&[cloud.as_str(), stage])
                    .set(bytes.unwrap_or(0));
            }
            self.note_limit(cloud, of_cloud().next().is_some());
        }
    }

    fn note_limit(&self, cloud: CloudProvider, has_pools: bool) {
        let labels = [cloud.as_str(), BOOTSTRAP];
        match osm_render::limit_bytes(cloud).filter(|_| has_pools) {
            Some(bytes) => {
                let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
                self.limit.with_label_values(&labels).set(bytes);
            }
            // It fails where there is none.
            None => drop(self.limit.remove_label_values(&labels)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_each_cloud_is_reported_with_the_limit_of_the_cloud() {
        let metrics = Metrics::of(osm_api::rbac::Service::OscController).unwrap();
        let sizes = Sizes::new(&metrics.catalog).unwrap();
        let bytes = |bootstrap| UserDataBytes {
            bootstrap,
            provisioning: 10 * bootstrap,
        };
        let reports = |line: &str| String::from_utf8(metrics.encode()).unwrap().contains(line);
        sizes.note("a", Some((CloudProvider::Aws, bytes(7))));
        sizes.note("b", Some((CloudProvider::Aws, bytes(9))));
        assert!(reports(r#"osm_user_data_bytes{cloud="aws",stage="bootstrap"} 9"#));
        assert!(reports(
            r#"osm_user_data_bytes{cloud="aws",stage="provisioning"} 90"#
        ));
        assert!(reports(
            r#"osm_user_data_limit_bytes{cloud="aws",stage="bootstrap"} 16384"#
        ));
        sizes.note("b", Some((CloudProvider::Kubevirt, bytes(9))));
        assert!(reports(r#"osm_user_data_bytes{cloud="aws",stage="bootstrap"} 7"#));
        assert!(reports(
            r#"osm_user_data_bytes{cloud="kubevirt",stage="bootstrap"} 9"#
        ));
        assert!(
            !reports(r#"osm_user_data_limit_bytes{cloud="kubevirt""#),
            "it has none"
        );
        sizes.note("a", None);
        assert!(reports(r#"osm_user_data_bytes{cloud="aws",stage="bootstrap"} 0"#));
        assert!(!reports("osm_user_data_limit_bytes{"), "no pool is left");
    }
}
