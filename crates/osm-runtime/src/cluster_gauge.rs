//! A metric to which each cluster contributes. What a cluster contributed is taken back when it ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus::IntGaugeVec;

/// What the metric shows of the values that clusters contribute. It shows 0 if there are none.
#[derive(Clone, Copy, Debug)]
pub enum Shows {
    Sum,
    Least,
    Greatest,
}

/// The metric. Its values are kept by label values and cluster.
pub struct ClusterGauge {
    gauge: IntGaugeVec,
    shows: Shows,
    values: Mutex<BTreeMap<(Vec<String>, u64), i64>>,
    parts: AtomicU64,
}

impl ClusterGauge {
    pub fn new(shows: Shows, gauge: IntGaugeVec) -> Arc<Self> {
        // Without labels it is there from the start. With labels, this fails.
        let _ = gauge.get_metric_with_label_values::<&str>(&[]);
        Arc::new(Self {
            gauge,
            shows,
            values: Mutex::default(),
            parts: AtomicU64::new(0),
        })
    }

    /// The part of one cluster.
    pub fn part(self: &Arc<Self>) -> Part {
        Part {
            of: self.clone(),
            number: self.parts.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn show(&self, values: &BTreeMap<(Vec<String>, u64), i64>, labels: &[String]) {
        let those = values.range((labels.to_vec(), 0)..=(labels.to_vec(), u64::MAX));
        let those = those.map(|(_, value)| *value);
        let shown = match self.shows {
            Shows::Sum => Some(those.sum()),
            Shows::Least => those.min(),
            Shows::Greatest => those.max(),
        };
        self.gauge.with_label_values(labels).set(shown.unwrap_or(0));
    }
}

/// What one cluster contributes to a metric.
pub struct Part {
    of: Arc<ClusterGauge>,
    number: u64,
}

impl Part {
    /// Contributes this value under these values of the labels; `None`: no longer one. Returns the value
    /// before.
    pub fn set(&self, labels: &[&str], value: Option<i64>) -> Option<i64> {
        let labels: Vec<String> = labels.iter().map(ToString::to_string).collect();
        let mut values = self.of.values.lock();
        let before = match value {
            Some(value) => values.insert((labels.clone(), self.number), value),
            None => values.remove(&(labels.clone(), self.number)),
        };
        if before != value {
            self.of.show(&values, &labels);
        }
        before
    }

    /// The same for a number of things, in a metric without labels.
    pub fn count(&self, things: usize) -> Option<i64> {
        self.set(&[], Some(i64::try_from(things).unwrap_or(i64::MAX)))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut values = self.of.values.lock();
        let own = values.keys().filter(|(_, part)| *part == self.number);
        let own: Vec<Vec<String>> = own.map(|(labels, _)| labels.clone()).collect();
        for labels in own {
            values.remove(&(labels.clone(), self.number));
            self.of.show(&values, &labels);
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Opts;

    use super::*;

    #[test]
    fn it_shows_what_all_clusters_contribute_until_they_end() {
        for (shows, both, one) in [(Shows::Sum, 12, 5), (Shows::Least, 5, 5), (Shows::Greatest, 7, 5)] {
            let gauge = IntGaugeVec::new(Opts::new("name", "help"), &["stage"]).unwrap();
            let gauge = ClusterGauge::new(shows, gauge);
            let shown = || gauge.gauge.with_label_values(&["a"]).get();
            let (first, second) = (gauge.part(), gauge.part());
            first.set(&["a"], Some(5));
            second.set(&["a"], Some(9));
            second.set(&["a"], Some(7));
            second.set(&["b"], Some(100));
            assert_eq!(shown(), both, "{shows:?}");
            drop(second);
            assert_eq!(shown(), one, "{shows:?}");
            first.set(&["a"], None);
            assert_eq!(shown(), 0, "{shows:?}");
            assert!(gauge.values.lock().is_empty());
        }
    }
}
