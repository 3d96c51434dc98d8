//! The kinds of objects that a migration touches.

use crate::cluster::Kind;

const fn namespaced(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> Kind {
    Kind {
        group,
        version,
        kind,
        plural,
        is_namespaced: true,
    }
}

const fn of_cluster(group: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind {
        group,
        version: "v1",
        kind,
        plural,
        is_namespaced: false,
    }
}

const ADMISSION: &str = "admissionregistration.k8s.io";
const CERT_MANAGER: &str = "cert-manager.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const MACHINES: &str = "cluster.k8s.io";

pub const VALIDATING: Kind = of_cluster(
    ADMISSION,
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
);
pub const MUTATING: Kind = of_cluster(
    ADMISSION,
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
);
pub const DEPLOYMENT: Kind = namespaced("apps", "v1", "Deployment", "deployments");
pub const BUDGET: Kind = namespaced("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets");
pub const SERVICE: Kind = namespaced("", "v1", "Service", "services");
pub const ACCOUNT: Kind = namespaced("", "v1", "ServiceAccount", "serviceaccounts");
pub const SECRET: Kind = namespaced("", "v1", "Secret", "secrets");
pub const CERTIFICATE: Kind = namespaced(CERT_MANAGER, "v1", "Certificate", "certificates");
pub const ISSUER: Kind = namespaced(CERT_MANAGER, "v1", "Issuer", "issuers");
pub const ROLE: Kind = namespaced(RBAC, "v1", "Role", "roles");
pub const ROLE_BINDING: Kind = namespaced(RBAC, "v1", "RoleBinding", "rolebindings");
pub const CLUSTER_ROLE: Kind = of_cluster(RBAC, "ClusterRole", "clusterroles");
pub const CLUSTER_ROLE_BINDING: Kind = of_cluster(RBAC, "ClusterRoleBinding", "clusterrolebindings");

/// Kinds that are read, and never changed.
pub const DAEMON_SET: Kind = namespaced("apps", "v1", "DaemonSet", "daemonsets");
pub const STATEFUL_SET: Kind = namespaced("apps", "v1", "StatefulSet", "statefulsets");
pub const CRON_JOB: Kind = namespaced("batch", "v1", "CronJob", "cronjobs");
pub const JOB: Kind = namespaced("batch", "v1", "Job", "jobs");
pub const CONFIG_MAP: Kind = namespaced("", "v1", "ConfigMap", "configmaps");
pub const MACHINE: Kind = namespaced(MACHINES, "v1alpha1", "Machine", "machines");
pub const POOL: Kind = namespaced(MACHINES, "v1alpha1", "MachineDeployment", "machinedeployments");
pub const PROFILE: Kind = namespaced(
    osm_api::names::GROUP,
    "v1alpha1",
    "OperatingSystemProfile",
    "operatingsystemprofiles",
);
pub const CONFIG: Kind = namespaced(
    osm_api::names::GROUP,
    "v1alpha1",
    "OperatingSystemConfig",
    "operatingsystemconfigs",
);

/// Every kind that a step changes.
const CHANGED: [Kind; 13] = [
    VALIDATING,
    MUTATING,
    DEPLOYMENT,
    BUDGET,
    SERVICE,
    ACCOUNT,
    SECRET,
    CERTIFICATE,
    ISSUER,
    ROLE,
    ROLE_BINDING,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
];

/// The kind of this name among those that a step changes.
pub fn find(name: &str) -> Option<Kind> {
    CHANGED.into_iter().find(|kind| kind.kind == name)
}
