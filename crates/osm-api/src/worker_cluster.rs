//! The WorkerCluster custom resource: a user cluster that the services of a fleet serve, one per namespace of
//! the seed.
//!
//! What the services need to connect is in Secrets of fixed names in its namespace; see
//! [`names::worker_kubeconfig`].

// `kube` takes `type_` once for every printer column.
#![allow(clippy::duplicated_attributes)]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::names;
use crate::preserved::preserved_object;
use crate::rbac::Service;

/// The condition that a service reports about a cluster; `None`: it serves no clusters.
pub fn condition(service: Service) -> Option<&'static str> {
    match service {
        Service::OspController => None,
        Service::OscController => Some(names::RENDERING),
        Service::SecretSyncer => Some(names::PUBLISHING),
        Service::CsrApprover => Some(names::JOINING),
    }
}

/// How the cluster differs from the values of the release that serves it.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "operatingsystemmanager.k8c.io",
    version = "v1alpha1",
    kind = "WorkerCluster",
    plural = "workerclusters",
    shortname = "wc",
    category = "osm",
    namespaced,
    status = "WorkerClusterStatus",
    doc = "WorkerCluster is a user cluster that one release serves together with others.",
    derive = "PartialEq",
    validation = (
        "self.metadata.name == 'worker'",
        "a WorkerCluster must have the name worker; create one for another cluster in a namespace of its own"
    ),
    printcolumn(
        name = "Rendering",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Rendering\")].reason",
        description = "Serving, or the reason why osc-controller does not serve the cluster."
    ),
    printcolumn(
        name = "Publishing",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Publishing\")].reason",
        description = "Serving, or the reason why secret-syncer does not serve the cluster."
    ),
    printcolumn(
        name = "Joining",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Joining\")].reason",
        description = "Serving, or the reason why csr-approver does not serve the cluster."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.status==\"False\")].message",
        description = "What is wrong and what to do. It is empty if there is no problem.",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = (
        "has(self.installation) == has(oldSelf.installation) && (!has(self.installation) || self.installation == oldSelf.installation)",
        "spec.installation can't be changed, added or removed, because the objects in the user cluster have it as a label"
    ),
    validation = (
        "has(self.workerNamespace) == has(oldSelf.workerNamespace) && (!has(self.workerNamespace) || self.workerNamespace == oldSelf.workerNamespace)",
        "spec.workerNamespace can't be changed, added or removed, because the records of approved machines are there"
    )
)]
pub struct WorkerClusterSpec {
    /// Settings in which the cluster differs from the release: a JSON merge patch (RFC 7386) without null,
    /// over the document in the ConfigMap of the release. Mistakes are reported as SettingsInvalid.
    // With a schema of the settings, the API server would drop a misspelled field without a word. null is what
    // a server-side apply leaves that takes the last field away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "nullable_object")]
    pub settings: Option<Map<String, Value>>,
    /// Which of the release's further namespaces of profiles the cluster may use. The default is none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")))]
    pub profile_namespaces: Vec<String>,
    /// Profiles that MachineDeployments of this cluster get in place of others: the name that a MachineDeployment
    /// asks for, and the name of the profile that it gets from the same namespace. This way, some clusters can
    /// try a new version of a profile. An alias of an alias is not followed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 100, "additionalProperties" = {"type": "string", "minLength": 1, "maxLength": 253}))]
    pub profile_aliases: BTreeMap<String, String>,
    /// How machines join: whether csr-approver is expected to serve the cluster.
    #[serde(default)]
    pub joining: Joining,
    /// Label value of the objects that are published. The default is the namespace of the WorkerCluster. It
    /// never changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 63),
        regex(pattern = r"^[a-zA-Z0-9]([-._a-zA-Z0-9]*[a-zA-Z0-9])?$")
    )]
    pub installation: Option<String>,
    /// Namespace in the user cluster with the Leases in which csr-approver records approvals. The default is
    /// the namespace of the WorkerCluster. It never changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub worker_namespace: Option<String>,
}

fn nullable_object(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let mut schema = preserved_object(generator);
    schema.insert("nullable".to_owned(), true.into());
    schema
}

/// How the machines of a cluster join it.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Joining {
    /// csr-approver approves each machine.
    #[default]
    Approved,
    /// kube-controller-manager approves any node.
    Static,
}

/// What the services report about a cluster.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WorkerClusterStatus {
    /// uid of the namespace `kube-system` of the cluster, written once by the service that connects first.
    #[serde(default, rename = "clusterUID", skip_serializing_if = "Option::is_none")]
    pub cluster_uid: Option<String>,
    /// `Rendering` is owned by osc-controller, `Publishing` by secret-syncer and `Joining` by csr-approver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
}
