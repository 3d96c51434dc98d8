//! Webhook configurations, and the Services that they call.

use osm_api::names;
use serde_json::{Value, json};

use super::marks::{WEBHOOK, is_of_chart};
use super::pods::selects_only;
use super::seen::Seen;
use crate::cluster::Object;

/// Names of the Services of the webhook. The usual name is among them even if the Service is gone.
pub(super) fn services(seen: &Seen, webhook: Option<&Object>, others: &[&Object]) -> Vec<String> {
    let mut names = vec![WEBHOOK.to_owned()];
    for service in seen.services.iter().filter(|service| !is_of_chart(service)) {
        let selector = service.value.pointer("/spec/selector");
        if selects_only(
            selector,
            webhook.map(std::slice::from_ref).unwrap_or_default(),
            others,
        ) && service.name() != WEBHOOK
        {
            names.push(service.name().to_owned());
        }
    }
    names
}

/// Whether a webhook calls one of these Services.
fn calls(webhook: &Value, namespace: &str, services: &[String]) -> bool {
    let service = |field: &str| webhook.pointer(&format!("/clientConfig/service/{field}"));
    service("namespace") == Some(&json!(namespace))
        && service("name").is_some_and(|name| services.iter().any(|known| name == known.as_str()))
}

/// Whether any webhook of a configuration calls one of these Services.
pub fn calls_any(configuration: &Object, namespace: &str, services: &[String]) -> bool {
    let webhooks = configuration.items("/webhooks");
    webhooks.iter().any(|webhook| calls(webhook, namespace, services))
}

/// The configurations all of whose webhooks call these Services, and why a person has to decide about others.
pub(super) fn sort(seen: &Seen, services: &[String], kept: &[String]) -> (Vec<Object>, Vec<String>) {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    let covers = |webhook: &Value| {
        let rules = webhook.get("rules").and_then(Value::as_array);
        let groups = rules
            .into_iter()
            .flatten()
            .filter_map(|rule| rule.get("apiGroups")?.as_array());
        groups.flatten().any(|group| group == names::GROUP)
    };
    for configuration in &seen.webhooks {
        let webhooks = configuration.items("/webhooks");
        let calling = webhooks
            .iter()
            .filter(|webhook| calls(webhook, &seen.namespace, services))
            .count();
        let name = configuration.name();
        if calling > 0 && calling == webhooks.len() {
            found.push(configuration.clone());
        } else if calling > 0 {
            problems.push(format!(
                "{configuration} contains webhooks of the Go implementation and of another program; remove the former from it"
            ));
        } else if webhooks.iter().any(covers) && !kept.iter().any(|kept| kept == name) {
            problems.push(format!(
                "{configuration} covers the group {}, but does not call a Service of the Go implementation in namespace {}; \
                 pass --keep-webhook {name} if it belongs to another program, and delete it otherwise",
                names::GROUP,
                seen.namespace,
            ));
        }
    }
    (found, problems)
}
