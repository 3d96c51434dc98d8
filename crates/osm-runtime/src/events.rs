//! Kubernetes Events: on failure and on recovery, never on every reconcile.
//!
//! The same Event about the same object is counted in the series of the first one. kube's recorder would also count one with another note
//! there, and the API server never changes the note of an Event, so that people would read the old one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::Api;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use osm_api::condition::clip;
use osm_api::rbac::Service;
use osm_api::{Reason, digest};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use crate::error::{brief, is_code};

/// Limit of the API server for a note.
const MAX_NOTE: usize = 1024;

/// A series ends this long after its last Event. It is the time of Kubernetes' own recorder.
const SERIES: Duration = Duration::from_secs(360);

/// Most series that are remembered. Without room, an Event is emitted again instead of counted.
const MOST_SERIES: usize = 2000;

/// Emits Events as a service.
#[derive(Clone)]
pub struct Events {
    client: Client,
    controller: &'static str,
    /// Name of the pod, or of the service.
    instance: String,
    /// By digest of what they report.
    series: Arc<Mutex<HashMap<String, Series>>>,
}

/// An Event that may be emitted again.
#[derive(Clone)]
struct Series {
    event: String,
    count: i32,
    last: Instant,
}

#[derive(Clone, Copy)]
enum Type {
    Normal,
    Warning,
}

impl Type {
    fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

impl Events {
    pub fn new(client: Client, service: Service) -> Self {
        let controller = service.name();
        Self {
            client,
            controller,
            instance: std::env::var("POD_NAME").unwrap_or_else(|_| controller.to_owned()),
            series: Arc::default(),
        }
    }

    /// Emits a Warning. A failure to publish it is logged and otherwise ignored.
    pub async fn warning(&self, about: &ObjectReference, reason: Reason, note: &str) {
        self.publish(about, Type::Warning, reason, note).await;
    }

    /// As [`Self::warning`], for an object that has no such Event yet: it never patches, and needs only the right to create.
    pub async fn warning_once(&self, about: &ObjectReference, reason: Reason, note: &str) {
        let published = self.create(about, Type::Warning, reason, note).await;
        log_failure(about, reason, published.map(drop));
    }

    /// Emits a Normal Event: what needed attention no longer does.
    pub async fn recovery(&self, about: &ObjectReference, reason: Reason, note: &str) {
        self.publish(about, Type::Normal, reason, note).await;
    }

    async fn publish(&self, about: &ObjectReference, type_: Type, reason: Reason, note: &str) {
        let key = key(about, type_, reason, note);
        let known = self.known(&key);
        let published = match &known {
            Some(series) => self.count(about, series).await,
            None => Ok(false),
        };
        let published = match published {
            Ok(true) => Ok(()),
            // There is none yet, or the API server no longer has it.
            Ok(false) => self.create(about, type_, reason, note).await.map(|event| {
                self.remember(
                    key,
                    Series {
                        event,
                        count: 1,
                        last: Instant::now(),
                    },
                );
            }),
            Err(error) => Err(error),
        };
        log_failure(about, reason, published);
    }

    /// The series of this Event, with the Event of now.
    fn known(&self, key: &str) -> Option<Series> {
        let mut all = self.series.lock();
        let now = Instant::now();
        let series = all.get_mut(key).filter(|series| now - series.last < SERIES)?;
        (series.count, series.last) = (series.count.saturating_add(1), now);
        Some(series.clone())
    }

    fn remember(&self, key: String, series: Series) {
        let mut all = self.series.lock();
        if all.len() >= MOST_SERIES {
            let now = Instant::now();
            all.retain(|_, series| now - series.last < SERIES);
        }
        if all.len() < MOST_SERIES {
            all.insert(key, series);
        }
    }

    fn api(&self, about: &ObjectReference) -> Api<Event> {
        let namespace = about.namespace.as_deref().unwrap_or("default");
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Returns whether the Event still exists.
    async fn count(&self, about: &ObjectReference, series: &Series) -> Result<bool, kube::Error> {
        let of_event = EventSeries {
            count: series.count,
            last_observed_time: MicroTime(Timestamp::now()),
        };
        let patch = Patch::Merge(json!({"series": of_event}));
        let patched = self
            .api(about)
            .patch(&series.event, &PatchParams::default(), &patch)
            .await;
        match patched {
            Ok(_) => Ok(true),
            Err(error) if is_code(&error, 404) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the name of the Event.
    async fn create(
        &self,
        about: &ObjectReference,
        type_: Type,
        reason: Reason,
        note: &str,
    ) -> Result<String, kube::Error> {
        let event = Event {
            metadata: ObjectMeta {
                generate_name: Some("osm-".to_owned()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(Timestamp::now())),
            type_: Some(type_.as_str().to_owned()),
            reason: Some(reason.to_string()),
            note: Some(clip(note, MAX_NOTE)),
            action: Some("Reconcile".to_owned()),
            reporting_controller: Some(self.controller.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            regarding: Some(about.clone()),
            ..Event::default()
        };
        let created = self.api(about).create(&PostParams::default(), &event).await?;
        Ok(created.name_any())
    }
}

/// What an Event reports, and about what. The version of the object does not matter.
fn key(about: &ObjectReference, type_: Type, reason: Reason, note: &str) -> String {
    let parts = [
        about.kind.as_deref(),
        about.namespace.as_deref(),
        about.name.as_deref(),
        about.uid.as_deref(),
        Some(type_.as_str()),
        Some(reason.as_str()),
        Some(note),
    ];
    digest::sha256_hex(json!(parts).to_string().as_bytes())
}

fn log_failure(about: &ObjectReference, reason: Reason, published: Result<(), kube::Error>) {
    if let Err(error) = published {
        tracing::warn!(object = about.name, %reason, error = brief(&error), "the Event can't be published");
    }
}
