//! What KKP says about a user cluster, and whether the fleet can serve it. Names and rules are those of
//! <https://github.com/kubermatic/kubermatic> at 2974df5 (2.31); the source of each is beside it.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, GroupVersionKind};
use serde::Deserialize;

use crate::cluster;

/// Label with which an operator hands a Cluster over to the fleet.
pub const LABEL: &str = "operatingsystemmanager.k8c.io/fleet";

/// Label of a WorkerCluster: the name of the Cluster that it was created for.
pub const CLUSTER: &str = "operatingsystemmanager.k8c.io/kkp-cluster";

/// Deployment of the upstream OSM, in the namespace of the user cluster in the seed.
/// `OperatingSystemManagerDeploymentName` in pkg/resources/resources.go
pub const DEPLOYMENT: &str = "operating-system-manager";

/// Secret with the kubeconfig of an administrator, by the address of the API server in the seed; its key is
/// `kubeconfig`. `InternalUserClusterAdminKubeconfigSecretName` and `KubeconfigSecretKey` in
/// pkg/resources/resources.go, `GetInternalKubeconfigReconciler` in pkg/resources/kubeconfig.go
pub const ADMIN_SECRET: &str = "internal-admin-kubeconfig";

/// State of a component. `HealthStatusUp` in sdk/apis/kubermatic/v1/cluster.go
const UP: &str = "HealthStatusUp";

/// The oldest Kubernetes whose kubelet the profiles support.
const OLDEST: (u64, u64) = (1, 33);

/// User clusters are cluster-scoped objects of the seed. pkg/crd/k8c.io/kubermatic.k8c.io_clusters.yaml
pub fn kind() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("kubermatic.k8c.io", "v1", "Cluster"))
}

/// A user cluster of KKP, `Cluster` in sdk/apis/kubermatic/v1/cluster.go. Its `status.address.adminToken` is a
/// token of an administrator, so nothing else of it is decoded.
#[derive(Deserialize)]
pub struct Cluster {
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    pub status: Status,
}

#[derive(Default, Deserialize)]
struct Spec {
    /// KKP reconciles nothing of the cluster, such as during a restore of etcd.
    #[serde(default)]
    pause: bool,
    #[serde(default)]
    version: String,
}

/// `ClusterStatus` in the same file.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// Namespace of the control plane in the seed.
    pub namespace_name: String,
    versions: Versions,
    extended_health: Health,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Versions {
    /// That of the oldest node; absent if there is none.
    oldest_node_version: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Health {
    apiserver: String,
}

impl Cluster {
    /// Why the cluster can't be served now, as far as the object says.
    pub fn obstacle(&self) -> Option<String> {
        let Self {
            metadata,
            spec,
            status,
        } = self;
        let is_old = |version: &str| {
            let version = semver::Version::parse(version.trim_start_matches('v'));
            version.is_ok_and(|version| (version.major, version.minor) < OLDEST)
        };
        let (major, minor) = OLDEST;
        let old = |what: &str, version: &str| {
            format!(
                "{what} has version {version}, and the profiles need Kubernetes {major}.{minor} or newer; upgrade it first"
            )
        };
        let node = status.versions.oldest_node_version.as_deref().unwrap_or_default();
        if metadata.deletion_timestamp.is_some() {
            // KKP waits for the MachineDeployments, which the services have to let go
            // (pkg/clusterdeletion/node.go).
            Some("KKP is deleting it, and the services are needed until it is gone".to_owned())
        } else if spec.pause {
            Some("it is paused; it is followed again when spec.pause is false".to_owned())
        } else if status.namespace_name.is_empty() || status.extended_health.apiserver != UP {
            Some("its API server is not healthy; see status.extendedHealth".to_owned())
        } else if is_old(&spec.version) {
            Some(old("it", &spec.version))
        } else if is_old(node) {
            Some(old("the kubelet of a node", node))
        } else {
            None
        }
    }
}

/// Why the cluster can't be served while its upstream OSM runs. KKP gives it one replica, unless the Cluster
/// has another number (`DeploymentReconcilerWithoutInitWrapper` in
/// pkg/resources/operatingsystemmanager/deployment.go). Its webhook replaces 0 in the Cluster by a number of the
/// Seed, because mergo takes 0 for empty (`DefaultClusterSpec` in pkg/defaulting/cluster.go).
pub fn running(upstream: &Deployment) -> Option<String> {
    let replicas = cluster::replicas(upstream);
    (replicas > 0).then(|| {
        format!(
            "its upstream OSM has {}; set spec.componentsOverride.operatingSystemManager.replicas of the Cluster to 0, and if KKP \
             replaces it, remove it from defaultComponentSettings and from the default cluster template of the Seed",
            crate::output::count(usize::try_from(replicas).unwrap_or_default(), "replica")
        )
    })
}
