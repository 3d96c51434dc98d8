//! Names, annotations and labels: those that machine-controller prescribes, and our own.

use std::collections::BTreeMap;

use crate::digest::sha256_hex;

/// API group of the custom resources.
pub const GROUP: &str = "operatingsystemmanager.k8c.io";

/// Condition of an OperatingSystemProfile, owned by osp-controller.
pub const ACCEPTED: &str = "Accepted";
/// Condition of an OperatingSystemConfig, owned by osc-controller.
pub const RENDERED: &str = "Rendered";
/// Condition of an OperatingSystemConfig, owned by osc-controller. It is `False` or absent.
pub const CURRENT: &str = "Current";
/// Condition of an OperatingSystemConfig, owned by secret-syncer.
pub const PUBLISHED: &str = "Published";
/// Condition of both kinds: whether the last good result can be used, even if a newer one failed. It is owned
/// by the owner of [`ACCEPTED`] and [`PUBLISHED`], and written together with them.
pub const READY: &str = "Ready";
/// Condition of a WorkerCluster, owned by osc-controller.
pub const RENDERING: &str = "Rendering";
/// Condition of a WorkerCluster, owned by secret-syncer.
pub const PUBLISHING: &str = "Publishing";
/// Condition of a WorkerCluster, owned by csr-approver.
pub const JOINING: &str = "Joining";

/// Namespace of the Secrets that machine-controller and nodes read. Fixed by machine-controller
/// (`sdk/bootstrap/types.go`).
pub const CLOUD_INIT_SETTINGS: &str = "cloud-init-settings";
/// Namespace that every cluster has from the start. Its uid identifies the cluster.
pub const KUBE_SYSTEM: &str = "kube-system";
/// Key of the document in both Secrets. Fixed by machine-controller.
pub const CLOUD_CONFIG_KEY: &str = "cloud-config";
/// Key of a provisioning Secret whose document is compressed by gzip.
pub const CLOUD_CONFIG_GZIP_KEY: &str = "cloud-config.gz";
/// Key of a provisioning Secret: what the published documents were generated from, except for tokens,
/// compressed by gzip. No machine reads it.
pub const CONTENT_GZIP_KEY: &str = "content.json.gz";
/// Annotation on a bootstrap Secret that machine-controller compares with its MachineSet's revision.
pub const MACHINE_DEPLOYMENT_REVISION: &str = "k8c.io/machine-deployment-revision";
/// Annotation with which machine-controller stamps a MachineDeployment's revision.
pub const REVISION: &str = "machinedeployment.clusters.k8s.io/revision";
/// Key of the script in an edge pool's Secret. Fixed by the upstream OSM.
pub const EDGE_SCRIPT_KEY: &str = "fetch-bootstrap-script";
/// Annotation on a MachineDeployment that names its profile.
pub const PROFILE: &str = "k8c.io/operating-system-profile";
/// Annotation on a MachineDeployment that names the namespace of its profile.
pub const PROFILE_NAMESPACE: &str = "k8c.io/operating-system-profile-namespace";
/// Prefix of annotations that carry kubelet settings of one pool.
pub const KUBELET_CONFIG_PREFIX: &str = "v1.kubelet-config.machine-controller.kubermatic.io/";
/// What all spellings of [`KUBELET_CONFIG_PREFIX`] have in common.
pub const KUBELET_CONFIG: &str = "kubelet-config.machine-controller.kubermatic.io";
/// What all annotations of machine-controller with a feature gate have in common. They never had an effect on
/// user data.
pub const KUBELET_FEATURE_GATES: &str = "kubelet-featuregates.machine-controller.kubermatic.io";
/// What all annotations of machine-controller with a flag of the kubelet have in common. They never had an
/// effect on user data.
pub const KUBELET_FLAGS: &str = "kubelet-flags.machine-controller.kubermatic.io";
/// Annotation on a MachineDeployment: settings in which its pool differs from the installation's, a partial
/// settings document.
pub const SETTINGS: &str = "operatingsystemmanager.k8c.io/settings";
/// Name of the Lease by which replicas of the upstream OSM elect a leader, in the namespace that its flag
/// `-namespace` names. KubeOne and KKP grant it no Leases elsewhere in the cluster of its configs.
pub const GO_LEASE: &str = "operating-system-manager";
/// Name of its further Lease with `-worker-cluster-kubeconfig`, in `kube-system` of the worker cluster, the
/// only namespace there in which KKP granted it Leases.
pub const GO_WORKER_LEASE: &str = "operating-system-manager-worker-manager";
/// Name of its ServiceAccount in `cloud-init-settings`, whose non-expiring token all its user data contains.
pub const GO_ACCOUNT: &str = "cloud-init-getter";
/// Finalizer that the upstream OSM sets on every MachineDeployment. Our services set no finalizers.
pub const GO_FINALIZER: &str = "kubermatic.io/cleanup-operating-system-configs";
/// Annotations by which the upstream OSM recognizes an OperatingSystemConfig that it created and that is up
/// to date. If they are missing, it recreates everything of the pool, which is required for an object that we
/// created.
pub const GO_CONFIG_ANNOTATIONS: [&str; 3] = [
    MACHINE_DEPLOYMENT_REVISION,
    "k8c.io/osp-version",
    "k8c.io/mdannotations-hash",
];
/// Label of the upstream OSM's bootstrap tokens; see [`go_pool_label`].
pub const GO_BOOTSTRAP_TOKEN_LABEL: &str = "machinedeployment.k8s.io/name";
/// Text in a bootstrap document that machine-controller replaces with the name of the machine.
pub const MACHINE_NAME_PLACEHOLDER: &str = "<MACHINE_NAME>";

/// Label and annotation on every object that we create: the id of the pool ([`pool_id`]).
pub const POOL: &str = "operatingsystemmanager.k8c.io/pool";
/// Label of the Nodes of pools, with [`POOL`]: the id of the content that the machine booted with. The kubelet sets
/// both when it creates the Node, and may change them, so that nothing is decided by them.
pub const CONTENT: &str = "operatingsystemmanager.k8c.io/content";
/// Label on every object that we create: the installation that owns it. Objects of another installation are
/// never changed.
pub const INSTALLATION: &str = "operatingsystemmanager.k8c.io/installation";
/// Label with the purpose of an object that we create: `bootstrap`, `provisioning`, `kubeconfig`,
/// `edge-script`, `identity`, `token-binding`, `join-claim`.
pub const ROLE: &str = "operatingsystemmanager.k8c.io/role";
/// Label on Leases: the service whose replica has it.
pub const REPLICA_OF: &str = "operatingsystemmanager.k8c.io/replica-of";
/// Label on Leases: `true` if the replica owns no object while another one is ready.
pub const STANDBY: &str = "operatingsystemmanager.k8c.io/standby";
/// Annotation: name of the OperatingSystemConfig that an object was created for.
pub const CONFIG: &str = "operatingsystemmanager.k8c.io/config";
/// Annotation: `namespace/name` of the MachineDeployment.
pub const OWNER: &str = "operatingsystemmanager.k8c.io/machine-deployment";
/// Annotation on an OperatingSystemConfig: uid of the `kube-system` namespace of the cluster it was created
/// for.
pub const CLUSTER_UID: &str = "operatingsystemmanager.k8c.io/worker-cluster-uid";
/// Annotation on every object of a pool: uid of the `kube-system` namespace of the cluster of its
/// OperatingSystemConfig. Only that cluster can confirm that the config is gone.
pub const MANAGEMENT_CLUSTER_UID: &str = "operatingsystemmanager.k8c.io/management-cluster-uid";
pub const DEFAULT_PROFILE: &str = "operatingsystemmanager.k8c.io/default-profile";
/// Label on OperatingSystemProfiles that are copies of a CustomOperatingSystemProfile of the same name.
pub const CUSTOM_PROFILE: &str = "operatingsystemmanager.k8c.io/custom-profile";

/// Annotation on a bootstrap Secret: SHA-256 of what it was published from by reference, 64 hex characters:
/// the digest of the rendered content, and which state of which objects its documents take values from.
pub const PUBLISHED_FROM: &str = "operatingsystemmanager.k8c.io/published-from";
/// Annotation on a bootstrap Secret: name of the provisioning Secret that the document names.
pub const PROVISIONING_SECRET: &str = "operatingsystemmanager.k8c.io/provisioning-secret";
/// Annotation on a bootstrap Secret: uid of the provisioning Secret that the document names.
pub const PROVISIONING_SECRET_UID: &str = "operatingsystemmanager.k8c.io/provisioning-secret-uid";
/// Annotation on the Secrets of a pool: uid of the ServiceAccount that its token is of. If the pool has
/// another one by now, the token is invalid.
pub const BOUND_TO: &str = "operatingsystemmanager.k8c.io/bound-to";
/// Annotation on a bootstrap Secret: when its token expires, RFC 3339.
pub const EXPIRES: &str = "operatingsystemmanager.k8c.io/credential-expiration-time";
/// Annotation on a bootstrap Secret: when its token is renewed, RFC 3339.
pub const RENEW_AT: &str = "operatingsystemmanager.k8c.io/renew-at";
/// Annotation on a provisioning Secret and on a kubeconfig Secret: no token that may fetch it lives longer
/// than this, RFC 3339.
pub const KEEP_UNTIL: &str = "operatingsystemmanager.k8c.io/keep-until";
/// Key in Secrets that are replaced in one write: SHA-256 of their other data and of the annotations that
/// decisions depend on. It is not an annotation, since a document may hold a password, which the digest of
/// the document would help to guess.
pub const CONTENT_DIGEST_KEY: &str = "content-digest";
/// Key of the kubeconfig in a kubeconfig Secret. Profiles of the upstream OSM read it.
pub const KUBECONFIG_KEY: &str = "kubeconfig";
/// Annotation on the Lease that records an approval: the name of the node.
pub const NODE_NAME: &str = "operatingsystemmanager.k8c.io/node-name";
/// Annotation on the Lease that records an approval: `namespace/name` of the Machine, or of the
/// MachineDeployment of an edge pool.
pub const JOINS_AS: &str = "operatingsystemmanager.k8c.io/joins-as";
/// Annotation on the Lease that records an approval: uid of that object.
pub const JOINS_AS_UID: &str = "operatingsystemmanager.k8c.io/joins-as-uid";
/// Name of every WorkerCluster, so that a namespace has at most one.
pub const WORKER_CLUSTER: &str = "worker";
/// Default name of the ConfigMap that holds the settings document.
pub const SETTINGS_CONFIG_MAP: &str = "osm-settings";
/// Key of the settings document in that ConfigMap.
pub const SETTINGS_KEY: &str = "settings.yaml";

/// Longest name of a Kubernetes object of the kinds used here: a DNS subdomain.
pub const MAX_NAME: usize = 253;

/// Longest value of a label, and so the longest name of a Node: the kubelet writes it into the label
/// `kubernetes.io/hostname`.
pub const MAX_LABEL: usize = 63;

/// What [`is_dns_subdomain`] accepts, for messages.
pub const NAME_RULE: &str = "must be a name of at most 253 lowercase letters, digits, - and ., with a letter or digit at both ends of each part between dots";

/// What [`is_dns_label`] accepts, for messages.
pub const NAMESPACE_RULE: &str =
    "must be a name of at most 63 lowercase letters, digits and -, with a letter or digit at both ends";

/// Whether a text is a DNS label, as names of namespaces are.
pub fn is_dns_label(text: &str) -> bool {
    text.len() <= MAX_LABEL && !text.contains('.') && is_dns_subdomain(text)
}

/// Whether a text is a DNS subdomain of lower-case letters, digits and `-`, as names of objects are.
pub fn is_dns_subdomain(text: &str) -> bool {
    let end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |label: &str| {
        label.starts_with(end) && label.ends_with(end) && label.chars().all(|c| end(c) || c == '-')
    };
    text.len() <= MAX_NAME && text.split('.').all(label)
}

/// Whether a text is a key in the data of a Secret or ConfigMap.
pub fn is_data_key(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    (1..=MAX_NAME).contains(&text.len()) && text.chars().all(good) && text != "." && !text.starts_with("..")
}

/// Name of the OperatingSystemConfig of a MachineDeployment. Not unique: `a-b` in `c` and `a` in `b-c` share
/// one.
pub fn config_name(machine_deployment: &str, namespace: &str) -> String {
    format!("{machine_deployment}-{namespace}-config")
}

/// Name of the bootstrap Secret of a MachineDeployment, fixed by machine-controller.
pub fn bootstrap_secret_name(machine_deployment: &str, namespace: &str) -> String {
    format!("{machine_deployment}-{namespace}-bootstrap-config")
}

/// Name of the bootstrap Secret that goes with an OperatingSystemConfig, by the name of the latter.
pub fn bootstrap_secret_of(config: &str) -> Option<String> {
    config
        .strip_suffix("-config")
        .map(|pool| format!("{pool}-bootstrap-config"))
}

/// Value of [`GO_BOOTSTRAP_TOKEN_LABEL`]: both names, unless that is too long for a label.
pub fn go_pool_label(machine_deployment: &str, namespace: &str) -> String {
    let both = format!("{namespace}-{machine_deployment}");
    if both.len() < 63 {
        both
    } else {
        machine_deployment.to_owned()
    }
}

/// Name of the Secret with the script that makes a machine of provider `edge` a node. Fixed by the upstream
/// OSM.
pub fn edge_script_secret_name(machine_deployment: &str, namespace: &str) -> String {
    format!("edge-provider-script-{machine_deployment}-{namespace}")
}

/// Name of the Secret with the edge script that goes with an OperatingSystemConfig, by the name of the
/// latter.
pub fn edge_script_secret_of(config: &str) -> Option<String> {
    config
        .strip_suffix("-config")
        .map(|pool| format!("edge-provider-script-{pool}"))
}

/// Identity of a pool: 20 hex characters of namespace, name and uid, so that a MachineDeployment that was
/// recreated under the same name is another pool.
pub fn pool_id(namespace: &str, name: &str, uid: &str) -> String {
    let mut id = sha256_hex(format!("{namespace}/{name}/{uid}").as_bytes());
    id.truncate(20);
    id
}

/// Name of an object that we create for a pool: `osm-<kind>-<pool id>`.
pub fn pool_object(kind: &str, pool_id: &str) -> String {
    format!("osm-{kind}-{pool_id}")
}

/// Name of the ServiceAccount in `cloud-init-settings` with which a pool's machines fetch their documents and
/// join.
pub fn pool_account(pool_id: &str) -> String {
    pool_object("node", pool_id)
}

/// Name of the Lease that records the approval of a node for one Machine.
pub fn join_claim_name(node: &str, machine_uid: &str) -> String {
    let id: String = sha256_hex(format!("{node}/{machine_uid}").as_bytes())
        .chars()
        .take(20)
        .collect();
    format!("osm-join-{id}")
}

/// Name of a pool's kubeconfig Secret. It is the same for every content of the pool.
pub fn kubeconfig_secret_name(pool_id: &str) -> String {
    pool_object("kubeconfig", pool_id)
}

/// Name of the Secret with the kubeconfig of a service, or of the renewal, in the namespace of a
/// WorkerCluster; its key is [`KUBECONFIG_KEY`]. RBAC grants rights by name, but not by label.
pub fn worker_kubeconfig(of: &str) -> String {
    format!("{WORKER_CLUSTER}-{of}")
}

/// Name of the Secret without data that tokens of a pool are bound to which a version before 0.1.0 issued. It
/// goes with the pool.
pub fn token_binding_secret_name(pool_id: &str) -> String {
    pool_object("token-binding", pool_id)
}

/// What the names of provisioning Secrets begin with.
pub const PROVISIONING_PREFIX: &str = "osm-provisioning-";

/// Name of one of a pool's provisioning Secrets, by a hash (20 hex characters of it are used).
pub fn provisioning_secret_name(pool_id: &str, hash: &str) -> String {
    let short: String = hash.chars().take(20).collect();
    format!("{PROVISIONING_PREFIX}{pool_id}-{short}")
}

/// Whether a Secret of this name is one of the pool's provisioning Secrets. Nobody can edit a name.
pub fn is_provisioning_secret_of(pool_id: &str, name: &str) -> bool {
    name.starts_with(&provisioning_secret_name(pool_id, ""))
}

/// The longest value of a label or annotation of ours that is kept.
const LONGEST_VALUE: usize = 32 * 1024;

/// Selects the labels or annotations that OSM writes. Others can be of any size.
pub fn only_ours(all: Option<&BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let is_ours = |(name, value): &(&String, &String)| {
        let group = name.split_once('/').map(|(group, _)| group);
        matches!(group, Some(GROUP | "k8c.io")) && value.len() <= LONGEST_VALUE && name.len() <= MAX_NAME
    };
    let ours = all.into_iter().flatten().filter(is_ours);
    ours.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contract_names() {
        assert_eq!(config_name("pool", "kube-system"), "pool-kube-system-config");
        let expected = "pool-kube-system-bootstrap-config";
        assert_eq!(bootstrap_secret_name("pool", "kube-system"), expected);
        let wanted = Some(bootstrap_secret_name("a-config", "c"));
        assert_eq!(bootstrap_secret_of(&config_name("a-config", "c")), wanted);
        assert_eq!(
            edge_script_secret_of(&config_name("a-config", "c")),
            Some(edge_script_secret_name("a-config", "c"))
        );
        assert!(is_dns_label(&"x".repeat(63)) && !is_dns_label(&"x".repeat(64)));
        assert!(!is_dns_label("a.b") && !is_dns_label("") && !is_dns_label("a_b"));
        assert_eq!(go_pool_label("pool", "kube-system"), "kube-system-pool");
        assert_eq!(go_pool_label(&"x".repeat(51), "kube-system"), "x".repeat(51));
        assert_eq!(
            config_name("a-b", "c"),
            config_name("a", "b-c"),
            "the ambiguity that osc-controller settles"
        );
    }

    #[test]
    fn a_pool_is_its_uid() {
        let id = pool_id("kube-system", "pool", "1");
        assert_eq!(id.len(), 20);
        assert_ne!(id, pool_id("kube-system", "pool", "2"));
        assert_eq!(pool_object("node", &id), format!("osm-node-{id}"));
    }
}
