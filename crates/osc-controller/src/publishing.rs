//! How long it takes until a change of a MachineDeployment is published.
//!
//! The time runs from the event of the watch that shows a new MachineDeployment or a new revision. It ends with the event that shows that
//! secret-syncer has published what was rendered for this revision.

use std::collections::HashMap;

use osm_api::config::Rendered;
use osm_runtime::metrics::Catalog;
use parking_lot::Mutex;
use prometheus::{Histogram, HistogramOpts};
use tokio::time::Instant;

use crate::view::{ConfigView, PoolView};

/// Upper bounds of the buckets, in seconds.
const SECONDS: [f64; 10] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

pub struct Publishing {
    seconds: Histogram,
    /// Changes that are not published yet, by uid of the MachineDeployment. Each has one at most, its last.
    changes: Mutex<HashMap<String, Change>>,
}

struct Change {
    since: Instant,
    /// `None`: a new MachineDeployment, for which machine-controller has not stamped the first revision yet.
    revision: Option<String>,
    /// Digest of what this replica has rendered for the revision.
    rendered: Option<String>,
}

impl Publishing {
    /// # Errors
    /// Where the name is taken.
    pub fn new(catalog: &Catalog) -> Result<Self, prometheus::Error> {
        let seconds = HistogramOpts::new(
            "osm_pool_publish_duration_seconds",
            "Time from a new MachineDeployment or revision until its user data is published.",
        );
        Ok(Self {
            seconds: catalog.add(Histogram::with_opts(seconds.buckets(SECONDS.to_vec())))?,
            changes: Mutex::default(),
        })
    }

    /// The watch shows a MachineDeployment. `is_listed`: the first list has ended, so that an unknown one is new.
    pub fn see(&self, before: Option<&PoolView>, now: &PoolView, is_listed: bool) {
        let before = before.filter(|before| before.pool_ref.uid == now.pool_ref.uid);
        let is_change = match before {
            Some(before) => now.revision.is_some() && before.revision != now.revision,
            None => is_listed,
        };
        if !is_change {
            return;
        }
        let mut changes = self.changes.lock();
        let known = changes.remove(&now.pool_ref.uid);
        // The first revision belongs to the change that has created the MachineDeployment.
        let since = known
            .filter(|known| known.revision.is_none())
            .map_or_else(Instant::now, |known| known.since);
        let change = Change {
            since,
            revision: now.revision.clone(),
            rendered: None,
        };
        changes.insert(now.pool_ref.uid.clone(), change);
    }

    /// This replica has rendered a pool.
    pub fn rendered(&self, uid: &str, rendered: &Rendered) {
        if let Some(change) = self.changes.lock().get_mut(uid)
            && change.revision == rendered.revision
        {
            change.rendered = Some(rendered.digest.clone());
        }
    }

    /// A config has changed. The time counts where this replica has rendered what is published.
    pub fn see_config(&self, config: &ConfigView) {
        let (Some(uid), Some(rendered), Some(published)) = (
            config.pool_uid(),
            &config.status.rendered,
            &config.status.published,
        ) else {
            return;
        };
        let mut changes = self.changes.lock();
        let Some(change) = changes.get(uid) else {
            return;
        };
        let is_published =
            published.digest == rendered.digest && change.revision.as_ref() == Some(&published.revision);
        if !is_published {
            return;
        }
        if change.rendered.as_ref() == Some(&published.digest) {
            self.seconds.observe(change.since.elapsed().as_secs_f64());
        }
        changes.remove(uid);
    }

    /// A MachineDeployment is gone, or belongs to another replica.
    pub fn forget(&self, uid: &str) {
        self.changes.lock().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use osm_runtime::Metrics;
    use serde_json::json;
    use tokio::time::advance;

    use super::*;

    fn pool(uid: &str, revision: Option<&str>) -> PoolView {
        let mut metadata = json!({"name": "p", "namespace": "n", "uid": uid, "annotations": {}});
        if let Some(revision) = revision {
            metadata["annotations"][osm_api::names::REVISION] = json!(revision);
        }
        let md = json!({"metadata": metadata, "spec": {}});
        PoolView::of(&serde_json::from_value(md).unwrap())
    }

    fn rendered(revision: &str, digest: &str) -> Rendered {
        Rendered {
            digest: digest.to_owned(),
            revision: Some(revision.to_owned()),
            ..Rendered::default()
        }
    }

    /// A config for which `rendered` is the digest of what is rendered, and `published` revision and digest of what is published.
    fn config(uid: &str, rendered: &str, (revision, published): (&str, &str)) -> ConfigView {
        let object = json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemConfig",
            "metadata": {"name": "p-n-config"},
            "spec": {"poolRef": {"apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
                "namespace": "n", "name": "p", "uid": uid}},
            "status": {
                "rendered": {"digest": rendered},
                "published": {"digest": published, "revision": revision, "bootstrapSecret": "b",
                    "provisioningSecret": "p", "credentialExpires": "2026-01-01T00:00:00Z"},
            },
        });
        ConfigView::of(serde_json::from_value(object).unwrap())
    }

    struct Watched {
        metrics: Metrics,
        publishing: Publishing,
    }

    impl Watched {
        fn new() -> Self {
            let metrics = Metrics::of(osm_api::rbac::Service::OscController).unwrap();
            let publishing = Publishing::new(&metrics.catalog).unwrap();
            Self { metrics, publishing }
        }

        /// The number of changes that counted, and their seconds together.
        fn counted(&self) -> (String, String) {
            let text = String::from_utf8(self.metrics.encode()).unwrap();
            let value = |name: &str| {
                let start = format!("osm_pool_publish_duration_seconds_{name} ");
                text.lines()
                    .find_map(|line| line.strip_prefix(&start))
                    .unwrap()
                    .to_owned()
            };
            (value("count"), value("sum"))
        }

        #[track_caller]
        fn assert_counted(&self, count: &str, seconds: &str) {
            assert_eq!(self.counted(), (count.to_owned(), seconds.to_owned()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_pool_counts_from_its_creation_and_a_revision_from_its_stamp() {
        let watched = Watched::new();
        let publishing = &watched.publishing;
        let second = Duration::from_secs(1);
        publishing.see(None, &pool("u", None), true);
        advance(2 * second).await;
        publishing.see(Some(&pool("u", None)), &pool("u", Some("1")), true);
        publishing.rendered("u", &rendered("1", "one"));
        publishing.see_config(&config("u", "one", ("0", "none")));
        watched.assert_counted("0", "0");
        advance(second).await;
        publishing.see_config(&config("u", "one", ("1", "one")));
        watched.assert_counted("1", "3");
        // A renewal of the credentials.
        publishing.see_config(&config("u", "one", ("1", "one")));
        watched.assert_counted("1", "3");

        // Of two revisions, the last one counts. What was rendered for the one before it does not.
        publishing.see(Some(&pool("u", Some("1"))), &pool("u", Some("2")), true);
        publishing.rendered("u", &rendered("2", "two"));
        advance(second).await;
        publishing.see(Some(&pool("u", Some("2"))), &pool("u", Some("3")), true);
        publishing.see_config(&config("u", "two", ("2", "two")));
        publishing.rendered("u", &rendered("2", "two"));
        publishing.rendered("u", &rendered("3", "three"));
        publishing.see_config(&config("u", "three", ("2", "two")));
        advance(4 * second).await;
        publishing.see_config(&config("u", "three", ("3", "three")));
        watched.assert_counted("2", "7");
        assert!(publishing.changes.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_there_at_the_start_and_what_others_have_rendered_does_not_count() {
        let watched = Watched::new();
        let publishing = &watched.publishing;
        // The first list.
        publishing.see(None, &pool("u", Some("1")), false);
        // Neither the same again, nor a revision that is taken away.
        publishing.see(Some(&pool("u", Some("1"))), &pool("u", Some("1")), true);
        publishing.see(Some(&pool("u", Some("1"))), &pool("u", None), true);
        assert!(publishing.changes.lock().is_empty());
        // Another replica has rendered it, and counts it.
        publishing.see(Some(&pool("u", Some("1"))), &pool("u", Some("2")), true);
        publishing.see_config(&config("u", "two", ("2", "two")));
        assert!(publishing.changes.lock().is_empty());
        // It is gone, or another replica's.
        publishing.see(None, &pool("w", Some("1")), true);
        publishing.rendered("w", &rendered("1", "one"));
        publishing.forget("w");
        publishing.see_config(&config("w", "one", ("1", "one")));
        // Another object of the same name is new.
        publishing.see(Some(&pool("w", Some("1"))), &pool("x", Some("1")), true);
        watched.assert_counted("0", "0");
        publishing.rendered("x", &rendered("1", "one"));
        publishing.see_config(&config("x", "one", ("1", "one")));
        watched.assert_counted("1", "0");
    }
}
