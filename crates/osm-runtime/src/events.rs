//! Kubernetes Events: on failure and on recovery, never on every reconcile.
//!
//! Each is an object of its own, so that a service needs no right to change Events. kube's recorder counts a
//! repeated one in the first, even with another note, and the API server never changes the note of an Event,
//! so that people would read the old one.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use osm_api::Reason;
use osm_api::condition::clip;
use osm_api::rbac::Service;

use crate::error::brief;

/// Limit of the API server for a note.
const MAX_NOTE: usize = 1024;

/// Emits Events as a service.
#[derive(Clone)]
pub struct Events {
    client: Client,
    controller: &'static str,
    /// Name of the pod, or of the service.
    instance: String,
}

impl Events {
    pub fn new(client: Client, service: Service) -> Self {
        let controller = service.name();
        Self {
            client,
            controller,
            instance: std::env::var("POD_NAME").unwrap_or_else(|_| controller.to_owned()),
        }
    }

    /// Emits a Warning. A failure to publish it is logged and otherwise ignored.
    pub async fn warning(&self, about: &ObjectReference, reason: Reason, note: &str) {
        self.publish(about, "Warning", reason, note).await;
    }

    /// Emits a Normal Event: what needed attention no longer does.
    pub async fn recovery(&self, about: &ObjectReference, reason: Reason, note: &str) {
        self.publish(about, "Normal", reason, note).await;
    }

    async fn publish(&self, about: &ObjectReference, type_: &str, reason: Reason, note: &str) {
        let event = Event {
            metadata: ObjectMeta {
                generate_name: Some("osm-".to_owned()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(Timestamp::now())),
            type_: Some(type_.to_owned()),
            reason: Some(reason.to_string()),
            note: Some(clip(note, MAX_NOTE)),
            action: Some("Reconcile".to_owned()),
            reporting_controller: Some(self.controller.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            regarding: Some(about.clone()),
            ..Event::default()
        };
        let namespace = about.namespace.as_deref().unwrap_or("default");
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        if let Err(error) = events.create(&PostParams::default(), &event).await {
            tracing::warn!(object = about.name, %reason, error = brief(&error), "the Event can't be published");
        }
    }
}
