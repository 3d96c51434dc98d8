//! What a WorkerCluster, its Secret and the release say about one cluster: how it is served, or why not.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use osm_api::names::{KUBECONFIG_KEY, worker_kubeconfig};
use osm_api::rbac::{Installation, Service};
use osm_api::worker_cluster::{Joining, WorkerCluster, WorkerClusterSpec};
use osm_api::{Reason, condition};

/// A WorkerCluster, as far as it matters here.
pub struct WorkerClusterView {
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    pub generation: Option<i64>,
    /// When it was created, in a form that is ordered.
    pub created: String,
    pub spec: WorkerClusterSpec,
    pub cluster_uid: Option<String>,
    /// The conditions of all services.
    pub conditions: Vec<Condition>,
}

impl WorkerClusterView {
    pub fn of(cluster: WorkerCluster) -> Self {
        let status = cluster.status.clone().unwrap_or_default();
        Self {
            namespace: cluster.namespace().unwrap_or_default(),
            uid: cluster.uid().unwrap_or_default(),
            resource_version: cluster.resource_version().unwrap_or_default(),
            generation: cluster.metadata.generation,
            created: cluster
                .creation_timestamp()
                .map(|at| at.0.to_string())
                .unwrap_or_default(),
            cluster_uid: status.cluster_uid,
            conditions: status.conditions,
            spec: cluster.spec,
        }
    }

    /// Whether `other`, which has the same cluster, was there before.
    pub fn is_younger_than(&self, other: &Self) -> bool {
        let order = |view: &Self| (view.created.clone(), view.namespace.clone());
        self.uid != other.uid && order(self) > order(other)
    }
}

/// The kubeconfig of a Secret; `None`: it has no such key, or no text in it.
pub type KubeconfigText = Option<Arc<str>>;

pub fn kubeconfig(secret: Secret) -> KubeconfigText {
    let bytes = secret.data?.remove(KUBECONFIG_KEY)?;
    Some(String::from_utf8(bytes.0).ok()?.into())
}

/// How a cluster is served. What differs leads to another connection.
#[derive(Clone, PartialEq)]
pub struct Registration {
    /// uid of the WorkerCluster.
    pub uid: String,
    pub installation: Installation,
    pub kubeconfig: Arc<str>,
}

impl Registration {
    /// Whether they differ in the kubeconfig only.
    pub fn is_of_same(&self, other: &Self) -> bool {
        self.uid == other.uid && self.installation == other.installation
    }
}

/// What the condition of this service says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub reason: Reason,
    /// What is wrong and what to do.
    pub message: String,
}

impl State {
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    pub fn verdict(&self, type_: &'static str) -> condition::Verdict {
        condition::Verdict {
            type_,
            status: self.reason == Reason::Serving,
            reason: self.reason,
            message: self.message.clone(),
        }
    }
}

/// How `service` serves the cluster of a WorkerCluster.
///
/// # Errors
/// Why it does not.
pub fn read(
    view: &WorkerClusterView,
    secret: Option<&KubeconfigText>,
    release: &Installation,
    service: Service,
) -> Result<Registration, State> {
    if service == Service::CsrApprover && view.spec.joining == Joining::Static {
        let why = "kube-controller-manager approves machines, because spec.joining is static";
        return Err(State::new(Reason::NotServed, why));
    }
    let name = worker_kubeconfig(service.name());
    let missing = |what: String| {
        let namespace = &view.namespace;
        let command = format!("osmctl kubeconfigs -n {namespace} --worker-context CONTEXT");
        Err(State::new(
            Reason::KubeconfigMissing,
            format!("{what}; write it with `{command}`"),
        ))
    };
    match secret {
        None => missing(format!("there is no Secret {name} in this namespace")),
        Some(None) => missing(format!(
            "the Secret {name} has no kubeconfig in its key {KUBECONFIG_KEY}"
        )),
        Some(Some(text)) => Ok(Registration {
            uid: view.uid.clone(),
            installation: installation(view, release),
            kubeconfig: text.clone(),
        }),
    }
}

/// The release's, but for what belongs to the cluster.
fn installation(view: &WorkerClusterView, release: &Installation) -> Installation {
    let spec = &view.spec;
    Installation {
        id: spec
            .installation
            .clone()
            .unwrap_or_else(|| view.namespace.clone()),
        namespace: view.namespace.clone(),
        profiles_in: Some(release.namespace.clone()),
        profile_namespaces: spec.profile_namespaces.clone(),
        worker_namespace: spec.worker_namespace.clone(),
        ..release.clone()
    }
}
