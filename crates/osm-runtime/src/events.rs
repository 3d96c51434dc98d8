//! Kubernetes Events: on failure and on recovery, never on every reconcile.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use osm_api::condition::clip;
use osm_api::rbac::Service;

use crate::status::brief;

/// The API server's limit for a note.
const MAX_NOTE: usize = 1024;

/// Publishes Events in the name of a service.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
}

impl Events {
    /// Events of `service`.
    pub fn new(client: Client, service: Service) -> Self {
        let reporter =
            Reporter { controller: service.name().to_owned(), instance: std::env::var("POD_NAME").ok() };
        Self { recorder: Recorder::new(client, reporter) }
    }

    /// Something needs attention. A failure to publish is logged and otherwise ignored.
    pub async fn warning(&self, about: &ObjectReference, reason: &str, note: &str) {
        self.publish(about, EventType::Warning, reason, note).await;
    }

    /// What needed attention no longer does.
    pub async fn recovery(&self, about: &ObjectReference, reason: &str, note: &str) {
        self.publish(about, EventType::Normal, reason, note).await;
    }

    async fn publish(&self, about: &ObjectReference, type_: EventType, reason: &str, note: &str) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(clip(note, MAX_NOTE)),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, about).await {
            tracing::warn!(object = about.name, reason, error = brief(&error), "the Event can't be published");
        }
    }
}
