//! Metrics of this controller besides reconciles and conditions: the size of user data.

use std::collections::HashMap;

use osm_api::config::UserDataBytes;
use osm_api::profile::CloudProvider;
use osm_runtime::Metrics;
use parking_lot::Mutex;
use prometheus::{IntGaugeVec, Opts};

/// The largest documents of each cloud, as last rendered.
pub struct Sizes {
    gauge: IntGaugeVec,
    seen: Mutex<HashMap<String, (CloudProvider, UserDataBytes)>>,
}

impl Sizes {
    /// # Errors
    /// Where its name is taken.
    pub fn new(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let help = "Largest user data of any pool, late-bound values at their largest; bootstrap as the cloud counts it.";
        let gauge = IntGaugeVec::new(Opts::new("user_data_bytes", help), &["cloud", "stage"])?;
        metrics.register(gauge.clone())?;
        Ok(Self {
            gauge,
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
                ("bootstrap", of_cloud().map(|bytes| bytes.bootstrap).max()),
                ("provisioning", of_cloud().map(|bytes| bytes.provisioning).max()),
            ];
            for (stage, bytes) in largest {
                self.gauge
                    .with_label_values(&[cloud.as_str(), stage])
                    .set(bytes.unwrap_or(0));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_of_each_cloud_is_reported() {
        let metrics = Metrics::new().unwrap();
        let sizes = Sizes::new(&metrics).unwrap();
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
        sizes.note("b", Some((CloudProvider::Azure, bytes(9))));
        assert!(reports(r#"osm_user_data_bytes{cloud="aws",stage="bootstrap"} 7"#));
        assert!(reports(
            r#"osm_user_data_bytes{cloud="azure",stage="bootstrap"} 9"#
        ));
        sizes.note("a", None);
        assert!(reports(r#"osm_user_data_bytes{cloud="aws",stage="bootstrap"} 0"#));
    }
}
