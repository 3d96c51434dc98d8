//! Metrics of a webhook. A service without one has none of them.

use std::time::Duration;

use prometheus::{Error, Histogram, HistogramOpts, IntCounterVec, IntGauge, Opts};

use crate::metrics::{Metrics, SECONDS};

/// Result of a body that is not a review.
pub(super) const UNREADABLE: &str = "unreadable";

#[derive(Clone, Debug)]
pub struct AdmissionMetrics {
    reviews: IntCounterVec,
    seconds: Histogram,
    certificate_expiry: IntGauge,
}

impl AdmissionMetrics {
    /// Adds the metrics to those of the service.
    ///
    /// # Errors
    /// Two metrics share a name.
    pub fn new(metrics: &Metrics) -> Result<Self, Error> {
        let catalog = &metrics.catalog;
        let reviews = Opts::new(
            "osm_admission_reviews_total",
            "Reviews that the admission webhook has answered, if it is enabled.",
        );
        let seconds = HistogramOpts::new(
            "osm_admission_duration_seconds",
            "Time that the admission webhook takes to read and judge a review.",
        );
        Ok(Self {
            reviews: catalog.add(IntCounterVec::new(reviews, &["result"]))?,
            seconds: catalog.add(Histogram::with_opts(seconds.buckets(SECONDS.to_vec())))?,
            certificate_expiry: catalog.add(IntGauge::new(
                "osm_admission_certificate_expiry_timestamp_seconds",
                "End of the certificate of the admission webhook, as Unix time; 0 if there is none yet.",
            ))?,
        })
    }

    pub(super) fn answered(&self, result: &str, took: Duration) {
        self.reviews.with_label_values(&[result]).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// The webhook uses a certificate that ends at this Unix time.
    pub(super) fn uses_certificate(&self, expiry: i64) {
        self.certificate_expiry.set(expiry);
    }
}
