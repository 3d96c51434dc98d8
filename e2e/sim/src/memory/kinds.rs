//! The kinds that the server stores.

/// A kind of objects.
#[derive(Debug)]
pub(super) struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
    /// A custom resource: it has a status of its own and generations, and is not updated without a
    /// resourceVersion.
    pub custom: bool,
}

impl Kind {
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

const ADMISSION: &str = "admissionregistration.k8s.io";
/// Plural of CustomResourceDefinitions.
pub(super) const DEFINITIONS: &str = "customresourcedefinitions";

const MACHINES: &str = "cluster.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const OSM: &str = "operatingsystemmanager.k8c.io";

const fn of(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
) -> Kind {
    Kind {
        group,
        version,
        kind,
        plural,
        namespaced,
        custom: false,
    }
}

const fn custom(group: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind {
        group,
        version: "v1alpha1",
        kind,
        plural,
        namespaced: true,
        custom: true,
    }
}

static KINDS: [Kind; 25] = [
    of("", "v1", "Namespace", "namespaces", false),
    of("", "v1", "ConfigMap", "configmaps", true),
    of("", "v1", "Secret", "secrets", true),
    of("", "v1", "ServiceAccount", "serviceaccounts", true),
    of(RBAC, "v1", "Role", "roles", true),
    of(RBAC, "v1", "RoleBinding", "rolebindings", true),
    of(RBAC, "v1", "ClusterRole", "clusterroles", false),
    of(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", false),
    // Stored, and not enforced.
    of(
        ADMISSION,
        "v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        false,
    ),
    of(
        ADMISSION,
        "v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        false,
    ),
    // Each custom kind is known here. Its definition adds the schema, the columns and the short names.
    of(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        DEFINITIONS,
        false,
    ),
    // What csr-approver and osmctl look for.
    of("", "v1", "Node", "nodes", false),
    of("", "v1", "Pod", "pods", true),
    of("apps", "v1", "Deployment", "deployments", true),
    of(
        "certificates.k8s.io",
        "v1",
        "CertificateSigningRequest",
        "certificatesigningrequests",
        false,
    ),
    of("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", true),
    of("coordination.k8s.io", "v1", "Lease", "leases", true),
    of("events.k8s.io", "v1", "Event", "events", true),
    // The same objects in the other version of their kind.
    of("", "v1", "Event", "events", true),
    custom(MACHINES, "MachineDeployment", "machinedeployments"),
    custom(MACHINES, "MachineSet", "machinesets"),
    custom(MACHINES, "Machine", "machines"),
    custom(OSM, "OperatingSystemProfile", "operatingsystemprofiles"),
    custom(OSM, "OperatingSystemConfig", "operatingsystemconfigs"),
    custom(OSM, "WorkerCluster", "workerclusters"),
];

pub(super) fn all() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter()
}

/// The kind with this name in paths.
pub(super) fn by_plural(group: &str, plural: &str) -> Option<&'static Kind> {
    KINDS
        .iter()
        .find(|kind| kind.group == group && kind.plural == plural)
}

/// The kind of an object.
pub(super) fn by_name(api_version: &str, name: &str) -> Option<&'static Kind> {
    KINDS
        .iter()
        .find(|kind| kind.kind == name && kind.api_version() == api_version)
}

pub(super) fn plurals() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.plural)
}

/// The plural of the kind of an object that is stored.
pub(super) fn of_object(object: &serde_json::Value) -> Option<&'static str> {
    let kind = object.get("kind")?.as_str()?;
    KINDS
        .iter()
        .find(|known| known.kind == kind)
        .map(|known| known.plural)
}

/// The plural of a known kind.
pub(super) fn plural(plural: &str) -> Option<&'static str> {
    KINDS
        .iter()
        .map(|kind| kind.plural)
        .find(|known| *known == plural)
}

/// The kind with this plural, in whatever group.
pub(super) fn only(plural: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.plural == plural)
}
