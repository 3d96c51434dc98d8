//! `osmctl events`: Events about MachineDeployments, configs and profiles.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};

use crate::output::Format;
use crate::snapshot::{ClusterPool, Snapshot, event_time};
use crate::{cluster, output, snapshot};

/// List the Events of the objects that take part, the oldest first
///
/// The objects are MachineDeployments, OperatingSystemConfigs, OperatingSystemProfiles and CustomOperatingSystemProfiles.
/// The API server keeps Events for an hour, unless it is configured differently.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # All pools and profiles of an installation
  osmctl events

  # One pool, with its config and its profile
  osmctl events kube-system/workers")]
pub struct Events {
    /// Pool: NAME or NAMESPACE/NAME of a MachineDeployment [default: all]
    pool: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    cluster: cluster::Flags,
}

impl Events {
    /// Reads the cluster and prints.
    pub fn run(self) -> Result<ExitCode> {
        let needs = cluster::Needs {
            profiles: true,
            events: true,
            ..cluster::Needs::default()
        };
        let snapshot = cluster::read(&self.cluster, needs)?;
        let pools = snapshot.pools();
        let pool = self.pool.as_deref().map(|name| snapshot::find(&pools, name));
        let events = select(&snapshot, pool.transpose()?);
        snapshot.warn();
        output::print(&match self.output {
            Format::Text if events.is_empty() => "No Events.\n".to_owned(),
            Format::Text => table(&events),
            Format::Json => json(&events, &snapshot),
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The latest Events of a pool, or of all: time, type, reason, object and message.
pub fn latest(snapshot: &Snapshot, pool: Option<&ClusterPool<'_>>, most: usize) -> Vec<[String; 5]> {
    let events = select(snapshot, pool);
    let latest = events.iter().rev().take(most);
    latest
        .map(|event| {
            let [time, _, _, type_, reason, object, message] = line(event);
            [time, type_, reason, object, message]
        })
        .collect()
}

/// The Events of a pool, or all, the oldest first.
fn select<'a>(snapshot: &'a Snapshot, pool: Option<&ClusterPool<'_>>) -> Vec<&'a Event> {
    let is_wanted = |event: &&Event| pool.is_none_or(|pool| is_about(snapshot, pool, event));
    let mut events: Vec<&Event> = snapshot.events.iter().filter(is_wanted).collect();
    events.sort_by_key(|event| (event_time(event), event.metadata.name.clone()));
    events
}

fn is_about(snapshot: &Snapshot, pool: &ClusterPool<'_>, event: &Event) -> bool {
    let about = &event.involved_object;
    let is = |namespace: &str, name: &str| {
        about.namespace.as_deref() == Some(namespace) && about.name.as_deref() == Some(name)
    };
    match about.kind.as_deref() {
        Some("MachineDeployment") => is(&pool.namespace, &pool.name),
        Some("OperatingSystemConfig") => {
            let name = osm_api::names::config_name(&pool.name, &pool.namespace);
            is(&snapshot.namespace, &name)
        }
        _ => {
            let profile = pool.machine_deployment.and_then(|md| snapshot.profile_name(md));
            profile.is_some_and(|(namespace, name)| is(&namespace, &name))
        }
    }
}

/// The program that emitted an Event.
pub fn component(event: &Event) -> &str {
    let reporting = event
        .reporting_component
        .as_deref()
        .filter(|name| !name.is_empty());
    let source = event
        .source
        .as_ref()
        .and_then(|source| source.component.as_deref());
    reporting.or(source).unwrap_or("-")
}

fn object(event: &Event) -> String {
    let about = &event.involved_object;
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    format!(
        "{} {}/{}",
        text(&about.kind),
        text(&about.namespace),
        text(&about.name)
    )
}

/// How often it was seen.
fn count(event: &Event) -> i32 {
    let series = event.series.as_ref().and_then(|series| series.count);
    series.or(event.count).unwrap_or(1)
}

fn shown_time(event: &Event) -> String {
    event_time(event).map_or_else(|| "-".to_owned(), output::timestamp)
}

fn table(events: &[&Event]) -> String {
    let head = [
        "TIME",
        "COUNT",
        "COMPONENT",
        "TYPE",
        "REASON",
        "OBJECT",
        "MESSAGE",
    ]
    .map(str::to_owned);
    let lines = events.iter().map(|event| line(event));
    output::table(&std::iter::once(head).chain(lines).collect::<Vec<_>>())
}

/// Whoever may create Events decides what they contain.
fn line(event: &Event) -> [String; 7] {
    [
        shown_time(event),
        count(event).to_string(),
        component(event).to_owned(),
        event.type_.clone().unwrap_or_default(),
        event.reason.clone().unwrap_or_default(),
        object(event),
        event.message.clone().unwrap_or_default(),
    ]
    .map(|text| output::visible(&output::one_line(&text)))
}

fn json(events: &[&Event], snapshot: &Snapshot) -> String {
    let events: Vec<Value> = events.iter().map(|event| shown(event)).collect();
    output::json(&json!({"events": events, "unread": snapshot.unread_json()}))
}

/// An Event for programs.
pub fn shown(event: &Event) -> Value {
    json!({
        "time": event_time(event).map(|time| time.to_string()),
        "count": count(event),
        "component": component(event),
        "type": event.type_,
        "reason": event.reason,
        "kind": event.involved_object.kind,
        "namespace": event.involved_object.namespace,
        "name": event.involved_object.name,
        "message": event.message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::fixtures;

    fn event(kind: &str, namespace: &str, name: &str, time: &str, more: Value) -> Event {
        let mut event = json!({
            "metadata": {"name": format!("{kind}-{name}")}, "type": "Warning", "reason": "R", "message": "a\nb",
            "involvedObject": {"kind": kind, "namespace": namespace, "name": name}, "eventTime": format!("2026-01-01T{time}.000000Z"),
        });
        event
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn events_of_a_pool_are_those_of_its_objects_by_time() {
        let mut snapshot = fixtures::snapshot();
        let (config, later) = (
            "workers-kube-system-config",
            json!({"series": {"count": 4, "lastObservedTime": "2026-01-01T11:00:00.000000Z"},
            "reportingComponent": "osc-controller"}),
        );
        let source = json!({"source": {"component": "machine-controller"}});
        snapshot.events = vec![
            event("MachineDeployment", "kube-system", "workers", "10:00:00", later),
            event("OperatingSystemConfig", "osm", config, "10:30:00", json!({})),
            event("OperatingSystemProfile", "osm", "osp-tiny", "10:10:00", json!({})),
            event("MachineDeployment", "kube-system", "other", "10:20:00", source),
            event(
                "OperatingSystemProfile",
                "team",
                "osp-tiny",
                "10:40:00",
                json!({}),
            ),
        ];
        let pools = snapshot.pools();
        let names = |pool| -> Vec<String> { select(&snapshot, pool).into_iter().map(object).collect() };
        assert_eq!(
            names(Some(&pools[0])),
            [
                "OperatingSystemProfile osm/osp-tiny",
                "OperatingSystemConfig osm/workers-kube-system-config",
                "MachineDeployment kube-system/workers",
            ]
        );
        assert_eq!(names(None).len(), 5);
        let text = table(&select(&snapshot, None));
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[2].contains("machine-controller") && lines[2].ends_with("a b"),
            "{text}"
        );
        assert!(lines[5].contains("4       osc-controller"), "{text}");
        let latest = latest(&snapshot, Some(&pools[0]), 2);
        let objects: Vec<&str> = latest.iter().map(|[.., object, _]| object.as_str()).collect();
        assert_eq!(
            objects,
            [
                "MachineDeployment kube-system/workers",
                "OperatingSystemConfig osm/workers-kube-system-config"
            ]
        );
        snapshot.events[0].message = Some("\u{1b}[2Jgone".to_owned());
        assert!(!table(&select(&snapshot, None)).contains('\u{1b}'));
    }
}
