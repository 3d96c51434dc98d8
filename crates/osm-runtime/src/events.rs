//! Kubernetes Events: on failure and on recovery, never on every reconcile.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client};
use osm_api::Reason;
use osm_api::condition::clip;
use osm_api::rbac::Service;

use crate::error::brief;

/// Limit of the API server for a note.
const MAX_NOTE: usize = 1024;
/// Longest name of an object for which the recorder can derive a valid name of an Event.
const MAX_NAME: usize = 220;

/// Emits Events as a service.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
    client: Client,
    reporter: Reporter,
}

impl Events {
    pub fn new(client: Client, service: Service) -> Self {
        let reporter = Reporter {
            controller: service.name().to_owned(),
            instance: std::env::var("POD_NAME").ok(),
        };
        Self {
            recorder: Recorder::new(client.clone(), reporter.clone()),
            client,
            reporter,
        }
    }

    /// Emits a Warning. A failure to publish it is logged and otherwise ignored.
    pub async fn warning(&self, about: &ObjectReference, reason: Reason, note: &str) {
        self.publish(about, EventType::Warning, reason, note).await;
    }

    /// As [`Self::warning`], for an object that has no such Event yet: it never patches, and needs only the right to create.
    pub async fn warning_once(&self, about: &ObjectReference, reason: Reason, note: &str) {
        let event = event(EventType::Warning, reason, note);
        let published = self.publish_unnamed(about, &event).await;
        log_failure(about, reason, published);
    }

    /// Emits a Normal Event: what needed attention no longer does.
    pub async fn recovery(&self, about: &ObjectReference, reason: Reason, note: &str) {
        self.publish(about, EventType::Normal, reason, note).await;
    }

    async fn publish_unnamed(&self, about: &ObjectReference, event: &Event) -> Result<(), kube::Error> {
        let type_ = if matches!(event.type_, EventType::Normal) {
            "Normal"
        } else {
            "Warning"
        };
        let object = events::v1::Event {
            metadata: ObjectMeta {
                generate_name: Some("osm-".to_owned()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(jiff::Timestamp::now())),
            type_: Some(type_.to_owned()),
            reason: Some(event.reason.clone()),
            note: event.note.clone(),
            action: Some(event.action.clone()),
            reporting_controller: Some(self.reporter.controller.clone()),
            reporting_instance: Some(
                self.reporter
                    .instance
                    .clone()
                    .unwrap_or_else(|| self.reporter.controller.clone()),
            ),
            regarding: Some(about.clone()),
            ..events::v1::Event::default()
        };
        let namespace = about.namespace.as_deref().unwrap_or("default");
        let api: Api<events::v1::Event> = Api::namespaced(self.client.clone(), namespace);
        api.create(&PostParams::default(), &object).await.map(drop)
    }

    async fn publish(&self, about: &ObjectReference, type_: EventType, reason: Reason, note: &str) {
        let event = event(type_, reason, note);
        // The recorder names an Event after its object, which makes some names too long.
        let published = match about.name.as_deref() {
            Some(name) if name.len() > MAX_NAME => self.publish_unnamed(about, &event).await,
            _ => self.recorder.publish(&event, about).await,
        };
        log_failure(about, reason, published);
    }
}

fn event(type_: EventType, reason: Reason, note: &str) -> Event {
    Event {
        type_,
        reason: reason.to_string(),
        note: Some(clip(note, MAX_NOTE)),
        action: "Reconcile".to_owned(),
        secondary: None,
    }
}

fn log_failure(about: &ObjectReference, reason: Reason, published: Result<(), kube::Error>) {
    if let Err(error) = published {
        tracing::warn!(object = about.name, %reason, error = brief(&error), "the Event can't be published");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_note_is_clipped() {
        for (bytes, kept) in [(MAX_NOTE, MAX_NOTE), (MAX_NOTE + 1, MAX_NOTE)] {
            let event = event(EventType::Normal, Reason::Rendered, &"x".repeat(bytes));
            assert!(
                event
                    .note
                    .is_some_and(|note| note.len() <= kept && note.len() > kept - 10)
            );
        }
    }
}
