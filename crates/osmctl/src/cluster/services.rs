//! Reads the Deployments, the pods and the Leases of OSM, and what the pods answer. It reads no Secret.

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::core::ApiResource;
use osm_api::names::{INSTALLATION, REPLICA_OF, STANDBY_OF};
use osm_api::rbac::ClusterKind;
use serde_json::Value;

use super::{Clusters, Failure, Flags, Gatherer, List, Listed};
use crate::progress::Progress;
use crate::snapshot::{Part, Snapshot};

/// Label of everything that belongs to the services, in the chart and in the manifests.
const SELECTOR: &str = "app.kubernetes.io/name=operating-system-manager";

/// Where the services serve, unless a port of the pod has this name.
const PORT: i64 = 8080;
const PORT_NAME: &str = "http";

/// What a cluster is called that is the management and the worker cluster of services with a home cluster.
const USER_CLUSTER: &str = "user";

/// Kinds whose Events show why a pod does not run.
const KINDS: [&str; 4] = ["Deployment", "ReplicaSet", "Pod", "Job"];

/// The services of an installation, as plain data.
#[derive(Debug, Default)]
pub struct Services {
    /// The cluster, and the version of its API server.
    pub versions: Vec<(&'static str, String)>,
    pub deployments: Vec<Value>,
    pub pods: Vec<Value>,
    /// Leases of replicas. A replica that is alive renews its Lease.
    pub leases: Vec<Value>,
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
    let clusters = Clusters::connect(flags).await?;
    let mut gatherer = clusters.gatherer(&progress);
    let mut services = Services::default();
    let name = match clusters.home {
        Some(_) => USER_CLUSTER,
        None => ClusterKind::Management.name(),
    };
    match gatherer.management.version().await {
        Ok(version) => services.versions.push((name, version)),
        Err(failure) if failure.is_forbidden() => gatherer.note(Part::Services, failure.to_string()),
        Err(failure) => return Err(failure.into()),
    }
    if clusters.worker.is_some() {
        let version = gatherer.worker.version().await;
        gatherer.keep_version(&mut services, ClusterKind::Worker, version);
    }
    if clusters.home.is_some() {
        let version = gatherer.home.version().await;
        gatherer.keep_version(&mut services, ClusterKind::Home, version);
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
    services.leases = gatherer.leases(clusters.worker.is_some()).await;
    Ok((gatherer.snapshot, services))
}

impl Gatherer<'_> {
    fn keep_version(
        &mut self,
        services: &mut Services,
        cluster: ClusterKind,
        version: Result<String, Failure>,
    ) {
        match version {
            Ok(version) => services.versions.push((cluster.name(), version)),
            Err(failure) => self.note(Part::Services, failure.to_string()),
        }
    }

    async fn services(&mut self, services: &mut Services) {
        services.deployments = self.of_services(&ApiResource::erase::<Deployment>(&())).await;
        services.pods = self.of_services(&ApiResource::erase::<Pod>(&())).await;
        if services.deployments.is_empty() && !self.snapshot.lacks(Part::Services) {
            let namespace = self.snapshot.home_namespace();
            let (place, flag) = match self.snapshot.home {
                Some(_) => (" of the home cluster", "--home-namespace"),
                None => ("", "--namespace"),
            };
            let message = format!(
                "no Deployment in namespace {namespace}{place} has the label {SELECTOR}; set {flag}, or add the images and flags of the services by hand"
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
        let list = List::within(kind, self.snapshot.home_namespace()).labels(SELECTOR);
        let result = self.home.list(&list).await;
        self.kept_of_services(result)
    }

    /// The Leases of replicas. Without a home cluster, those of csr-approver are in the worker cluster.
    async fn leases(&mut self, has_worker: bool) -> Vec<Value> {
        let kind = ApiResource::erase::<Lease>(&());
        let list = List::within(&kind, self.snapshot.home_namespace()).labels(INSTALLATION);
        let result = self.home.list(&list).await;
        let mut leases = self.kept_of_services(result);
        if has_worker {
            let list = List::within(&kind, &self.snapshot.namespace).labels(INSTALLATION);
            let result = self.worker.list(&list).await;
            leases.extend(self.kept_of_services(result));
        }
        // Others record approvals of csr-approver.
        leases.retain(|lease: &Value| {
            let labels = lease.pointer("/metadata/labels");
            labels.is_some_and(|labels| {
                [REPLICA_OF, STANDBY_OF]
                    .iter()
                    .any(|key| labels.get(key).is_some())
            })
        });
        leases
    }

    fn kept_of_services(&mut self, result: Result<Listed<Value>, Failure>) -> Vec<Value> {
        match result {
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
            let list = List::within(&kind, self.snapshot.home_namespace())
                .fields(format!("involvedObject.kind={about}"));
            match self.home.list::<Event>(&list).await {
                Ok(listed) => found.extend(self.kept(Part::Events, listed)),
                Err(failure) => self.note(Part::Events, failure.to_string()),
            }
        }
        found.retain(is_theirs);
        services.events = found;
    }

    async fn ask(&mut self, pod: &Value, what: &'static str, answers: &mut Vec<Answer>) {
        let Some(name) = name(pod) else { return };
        let (namespace, port) = (self.snapshot.home_namespace(), port(pod));
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/{what}");
        let shown = format!("/{what} of pod {name} through the API server (pods/proxy)");
        match self.home.text(&path, &shown).await {
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
