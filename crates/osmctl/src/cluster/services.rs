//! Reads the Deployments and the pods of OSM, and what the pods answer. It reads no Secret.

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::core::ApiResource;
use serde_json::Value;

use super::{Flags, Gatherer, List, Reader, connect};
use crate::progress::Progress;
use crate::snapshot::{Part, Snapshot};

/// Label of everything that belongs to the services, in the chart and in the manifests.
const SELECTOR: &str = "app.kubernetes.io/name=operating-system-manager";

/// Where the services serve, unless a port of the pod has this name.
const PORT: i64 = 8080;
const PORT_NAME: &str = "http";

/// Kinds whose Events show why a pod does not run.
const KINDS: [&str; 4] = ["Deployment", "ReplicaSet", "Pod", "Job"];

/// The services of an installation, as plain data.
#[derive(Debug, Default)]
pub struct Services {
    /// The cluster, and the version of its API server.
    pub versions: Vec<(&'static str, String)>,
    pub deployments: Vec<Value>,
    pub pods: Vec<Value>,
    /// Events about the pods and what creates them.
    pub events: Vec<Event>,
    pub answers: Vec<Answer>,
}

/// What a pod answers.
#[derive(Debug)]
pub struct Answer {
    pub pod: String,
    /// `metrics` or `readyz`.
    pub what: &'static str,
    pub text: String,
}

/// Reads everything about an installation that can be read. The snapshot names what can't be.
///
/// # Errors
/// No connection.
pub async fn read_with_services(flags: &Flags) -> Result<(Snapshot, Services)> {
    let progress = Progress::new();
    let management = connect::management(flags).await?;
    let worker = connect::worker(flags).await?;
    let reader = |connection| Reader::new(connection, flags.request_timeout, &progress);
    let mut gatherer = Gatherer {
        management: reader(&management),
        worker: reader(worker.as_ref().unwrap_or(&management)),
        snapshot: Snapshot {
            namespace: flags.namespace.clone(),
            settings_config_map: flags.settings_config_map.clone(),
            ..Snapshot::default()
        },
    };
    let mut services = Services::default();
    match gatherer.management.version().await {
        Ok(version) => services.versions.push(("management", version)),
        Err(failure) if failure.is_forbidden() => gatherer.note(Part::Services, failure.to_string()),
        Err(failure) => return Err(failure.into()),
    }
    if worker.is_some() {
        match gatherer.worker.version().await {
            Ok(version) => services.versions.push(("worker", version)),
            Err(failure) => gatherer.note(Part::Services, failure.to_string()),
        }
    }
    if let Err(error) = gatherer.machine_deployments().await {
        gatherer.note(Part::MachineDeployments, error.to_string());
    }
    if let Err(error) = gatherer.configs().await {
        gatherer.note(Part::Configs, error.to_string());
    }
    gatherer.profiles().await;
    gatherer.settings().await;
    gatherer.events().await;
    gatherer.services(&mut services).await;
    Ok((gatherer.snapshot, services))
}

impl Gatherer<'_> {
    async fn services(&mut self, services: &mut Services) {
        services.deployments = self.of_services(&ApiResource::erase::<Deployment>(&())).await;
        services.pods = self.of_services(&ApiResource::erase::<Pod>(&())).await;
        if services.deployments.is_empty() && !self.snapshot.lacks(Part::Services) {
            let namespace = &self.snapshot.namespace;
            let message = format!(
                "no Deployment in namespace {namespace} has the label {SELECTOR}; set --namespace, or add the images and flags of the services by hand"
            );
            self.note(Part::Services, message);
        }
        self.events_of_services(services).await;
        for pod in &services.pods {
            for what in ["readyz", "metrics"] {
                self.ask(pod, what, &mut services.answers).await;
            }
        }
    }

    async fn of_services(&mut self, kind: &ApiResource) -> Vec<Value> {
        let list = List::within(kind, &self.snapshot.namespace).labels(SELECTOR);
        match self.management.list(&list).await {
            Ok(listed) => self.kept(Part::Services, listed),
            Err(failure) => {
                self.note(Part::Services, failure.to_string());
                Vec::new()
            }
        }
    }

    /// Those about objects whose names begin with that of a Deployment.
    async fn events_of_services(&mut self, services: &mut Services) {
        let names: Vec<&str> = services.deployments.iter().filter_map(name).collect();
        let is_theirs = |event: &Event| {
            let about = event.involved_object.name.as_deref().unwrap_or_default();
            names.iter().any(|name| about.starts_with(name))
        };
        let kind = ApiResource::erase::<Event>(&());
        let mut found = Vec::new();
        for about in KINDS {
            let list =
                List::within(&kind, &self.snapshot.namespace).fields(format!("involvedObject.kind={about}"));
            match self.management.list::<Event>(&list).await {
                Ok(listed) => found.extend(self.kept(Part::Events, listed)),
                Err(failure) => self.note(Part::Events, failure.to_string()),
            }
        }
        found.retain(is_theirs);
        services.events = found;
    }

    async fn ask(&mut self, pod: &Value, what: &'static str, answers: &mut Vec<Answer>) {
        let Some(name) = name(pod) else { return };
        let (namespace, port) = (&self.snapshot.namespace, port(pod));
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/{what}");
        let shown = format!("/{what} of pod {name} through the API server (pods/proxy)");
        match self.management.text(&path, &shown).await {
            Ok(text) => answers.push(Answer {
                pod: name.to_owned(),
                what,
                text,
            }),
            Err(failure) => self.note(Part::Services, failure.to_string()),
        }
    }
}

fn name(object: &Value) -> Option<&str> {
    object.pointer("/metadata/name").and_then(Value::as_str)
}

fn port(pod: &Value) -> i64 {
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array);
    let mut ports = containers
        .into_iter()
        .flatten()
        .filter_map(|container| container.get("ports")?.as_array())
        .flatten();
    let named = ports.find(|port| port.get("name").and_then(Value::as_str) == Some(PORT_NAME));
    named
        .and_then(|port| port.get("containerPort")?.as_i64())
        .unwrap_or(PORT)
}
