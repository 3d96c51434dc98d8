//! The rights of each service. A function lists the rights of one service, with the reason for each.

use super::grant::{ClusterKind, Grant, Right, named, rule};
use super::installation::Installation;
use crate::names::{CLOUD_INIT_SETTINGS, GO_LEASE, GO_WORKER_LEASE, GROUP, KUBE_SYSTEM, worker_kubeconfig};

pub(super) fn settings(name: &str) -> Right {
    named("", "configmaps", name, "list watch").because("the settings")
}

fn events(about: &'static str) -> Right {
    rule("events.k8s.io", "events", "create").because(about)
}

/// The rule covers every Lease of the namespace, including those of other programs: RBAC cannot name pods
/// that do not exist yet.
pub(super) fn leases() -> Right {
    rule("coordination.k8s.io", "leases", "list watch create patch delete")
        .because("each replica renews its own Lease, and deletes it when it stops")
}

const ANOTHER_CLUSTER: &str =
    "its uid identifies the cluster, so that a kubeconfig of another cluster is detected";

/// The uid of its oldest namespace identifies a cluster.
fn identity_of(cluster: ClusterKind, why: &'static str) -> Grant {
    cluster.within(
        KUBE_SYSTEM,
        vec![named("", "namespaces", KUBE_SYSTEM, "get").because(why)],
    )
}

/// A Lease that the upstream OSM renews while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoLease {
    /// The cluster that it is in.
    pub cluster: ClusterKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: &'static str,
}

impl GoLease {
    fn new(cluster: ClusterKind, namespace: &str, name: &'static str) -> Self {
        Self {
            cluster,
            namespace: namespace.to_owned(),
            name,
        }
    }

    /// The right to watch it: in the namespaces of all clusters of a fleet, or only in its own.
    pub(super) fn grant(self, in_all_clusters: bool) -> Grant {
        let why = "it shows whether the upstream OSM runs";
        let right = named("coordination.k8s.io", "leases", self.name, "list watch").because(why);
        match self.cluster {
            ClusterKind::Management if in_all_clusters => self.cluster.everywhere(vec![right]),
            _ => self.cluster.within(&self.namespace, vec![right]),
        }
    }
}

/// The upstream OSM writes the same profiles and configs.
pub(super) fn go_leases_of_profiles(installation: &Installation) -> Vec<GoLease> {
    vec![GoLease::new(
        ClusterKind::Management,
        &installation.namespace,
        GO_LEASE,
    )]
}

/// The upstream OSM writes the same profiles and configs, or it publishes for the same machines. Its own
/// management cluster may then be another one, or the worker cluster.
pub(super) fn go_leases(installation: &Installation) -> Vec<GoLease> {
    let mut leases = go_leases_of_profiles(installation);
    let of_machines = [GO_LEASE, GO_WORKER_LEASE];
    leases.extend(of_machines.map(|name| GoLease::new(ClusterKind::Worker, KUBE_SYSTEM, name)));
    leases
}

/// What each service that serves the clusters of a fleet may do in the seed. `service` is its name.
pub(super) fn registrations(service: &str) -> Grant {
    ClusterKind::Management.everywhere(vec![
        rule(GROUP, "workerclusters", "list watch").because("the clusters to serve"),
        rule(GROUP, "workerclusters/status", "patch")
            .because("the uid of a cluster, and whether the service serves it"),
        named("", "secrets", &worker_kubeconfig(service), "list watch")
            .because("the kubeconfigs of this service, one for each cluster, and no other Secret"),
    ])
}

/// Rights in the management cluster: `of_release` in the namespace of the installation, and `of_clusters` where
/// the configs are. For a fleet, that is every namespace with a WorkerCluster, so all of them.
fn in_management(installation: &Installation, of_clusters: Vec<Right>, of_release: Vec<Right>) -> Vec<Grant> {
    let within = |rights| ClusterKind::Management.within(&installation.namespace, rights);
    if installation.fleet {
        vec![
            ClusterKind::Management.everywhere(of_clusters),
            within(of_release),
        ]
    } else {
        vec![within([of_clusters, of_release].concat())]
    }
}

pub(super) fn osp_controller(installation: &Installation) -> Vec<Grant> {
    let read = || rule(GROUP, "operatingsystemprofiles", "list watch").because("the profiles to validate");
    let write = |why| rule(GROUP, "operatingsystemprofiles", "get create update").because(why);
    let status =
        || rule(GROUP, "operatingsystemprofiles/status", "patch").because("the result of the validation");
    let events = || events("Events: a profile is refused or accepted again, a default profile was restored");
    let custom = || {
        rule(GROUP, "customoperatingsystemprofiles", "list watch")
            .because("only with `--custom-profiles`: the custom profiles to copy")
    };
    let why = "default profiles are installed, and restored when they are changed";
    let mut own = vec![read(), write(why), status(), events()];
    own.extend(installation.custom_profiles.then(custom));
    own.extend([settings(&installation.settings), leases()]);
    let further = installation.extra_namespaces().map(|other| {
        let mut rights = vec![read(), status(), events()];
        if installation.custom_profiles {
            let why = "only with `--custom-profiles`: copies of custom profiles are written";
            rights.extend([custom(), write(why)]);
        }
        ClusterKind::Management.within(other, rights)
    });
    let own = ClusterKind::Management.within(&installation.namespace, own);
    std::iter::once(own).chain(further).collect()
}

pub(super) fn osc_controller(installation: &Installation) -> Vec<Grant> {
    let profiles = || {
        rule(GROUP, "operatingsystemprofiles", "get list watch")
            .because("the profiles to render; a live read when a pool gets a new revision")
    };
    let configs = vec![
        rule(
            GROUP,
            "operatingsystemconfigs",
            "get list watch create update patch delete",
        )
        .because("one per MachineDeployment, deleted after everything published for its pool"),
        rule(GROUP, "operatingsystemconfigs/status", "patch")
            .because("the conditions Rendered and Current, and the rendered documents"),
    ];
    let own = vec![profiles(), settings(&installation.settings), leases()];
    let mut everywhere = vec![
        rule("cluster.k8s.io", "machinedeployments", "get list watch")
            .because("the pools, in any namespace; a live read before a pool is retired"),
        events("Events: a pool in any namespace cannot be rendered, or can be rendered again"),
    ];
    if installation.go_finalizers {
        let why = "only with `--remove-upstream-finalizers`: removes a leftover finalizer from MachineDeployments that are being deleted";
        everywhere.push(rule("cluster.k8s.io", "machinedeployments", "patch").because(why));
    }
    let cluster_info = "address and CA of the API server, for nodes";
    let slices = "address of the API server, if there is no cluster-info";
    let mut grants = in_management(installation, configs, own);
    grants.extend([
        ClusterKind::Worker.everywhere(everywhere),
        identity_of(ClusterKind::Worker, ANOTHER_CLUSTER),
        ClusterKind::Worker.within(
            "kube-public",
            vec![named("", "configmaps", "cluster-info", "list watch").because(cluster_info)],
        ),
        ClusterKind::Worker.within(
            "default",
            vec![rule("discovery.k8s.io", "endpointslices", "list watch").because(slices)],
        ),
    ]);
    if installation.fleet {
        let why = "its uid tells the configs of the seed's own machines from those of user clusters";
        grants.push(identity_of(ClusterKind::Management, why));
    }
    let further = installation.namespaces_to_render_from().into_iter().skip(1);
    grants.extend(further.map(|other| ClusterKind::Management.within(other, vec![profiles()])));
    let maps = || {
        rule("", "configmaps", "get list watch")
            .because("the settings of a pool, in a ConfigMap with any name")
    };
    let of_pools = installation.pool_settings_namespaces.iter();
    grants.extend(of_pools.map(|other| ClusterKind::Worker.within(other, vec![maps()])));
    grants
}

pub(super) fn secret_syncer(installation: &Installation) -> Vec<Grant> {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let configs = vec![
        rule(GROUP, "operatingsystemconfigs", "get list watch")
            .because("the content to publish; a live read before publishing"),
        rule(GROUP, "operatingsystemconfigs/status", "patch")
            .because("the condition Published, and what is published"),
        events("Events: a pool cannot be published, or can be published again"),
    ];
    let own = vec![settings(&installation.settings), leases()];
    let everywhere = vec![
        named("", "namespaces", CLOUD_INIT_SETTINGS, "list watch")
            .because("everything is restored once the namespace exists again"),
        rule("cluster.k8s.io", "machinedeployments", "get").because(
            "the password of a subscription, which no config contains; a live read before deleting orphans",
        ),
    ];
    let of_nodes = "a node may get exactly its pool's Secrets; lost labels are restored";
    let of_secrets =
        "what machine-controller and nodes read, and registry credentials; Roles grant nodes `get` on them";
    let made = vec![
        rule("", "secrets", "get list watch create update patch delete").because(of_secrets),
        rule("", "serviceaccounts", "get list watch create patch delete")
            .because("the identity of each pool; lost labels are restored"),
        rule("", "serviceaccounts/token", "create").because("the tokens that nodes boot with"),
        rule(RBAC, "roles", "get list watch create update patch delete").because(of_nodes),
        rule(RBAC, "roles", "bind").because(
            "the API server creates a RoleBinding without first comparing it with all other bindings",
        ),
        rule(RBAC, "rolebindings", "get list watch create patch delete").because(of_nodes),
    ];
    let mut grants = in_management(installation, configs, own);
    grants.extend([
        identity_of(ClusterKind::Management, ANOTHER_CLUSTER),
        identity_of(ClusterKind::Worker, ANOTHER_CLUSTER),
        ClusterKind::Worker.everywhere(everywhere),
        ClusterKind::Worker.within(CLOUD_INIT_SETTINGS, made),
    ]);
    grants
}

/// Signer of the client certificates of kubelets.
pub const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// It has no right on Secrets but its kubeconfigs of a fleet. With the right to approve, it can issue the
/// credentials of any node.
pub(super) fn csr_approver(installation: &Installation) -> Vec<Grant> {
    const CERTIFICATES: &str = "certificates.k8s.io";
    let claims = rule(
        "coordination.k8s.io",
        "leases",
        "get list watch create update delete",
    )
    .because("each approval is recorded in a Lease, so that a Machine gets one certificate");
    let client = "client certificates of nodes, of this signer only";
    let everywhere = vec![
        rule(CERTIFICATES, "certificatesigningrequests", "list watch")
            .because("the requests of joining nodes"),
        rule(CERTIFICATES, "certificatesigningrequests/approval", "patch")
            .because("the decision; with the next permission, it can issue the credentials of any node"),
        named(CERTIFICATES, "signers", CLIENT_SIGNER, "approve").because(client),
        rule(
            "cluster.k8s.io",
            "machines machinesets machinedeployments",
            "get list watch",
        )
        .because("a node may join only as a Machine of its pool, read before approvals"),
        rule("", "nodes", "get list watch")
            .because("a node that exists is never replaced; a live read before each approval"),
        rule("authorization.k8s.io", "subjectaccessreviews", "create")
            .because("whether kube-controller-manager would approve any node for the token of a pool"),
        events("Events: a machine may not join, or tokens of pools may join as any node"),
    ];
    let here = |cluster: ClusterKind, rights| match cluster {
        ClusterKind::Worker => cluster.within(installation.worker_namespace(), rights),
        ClusterKind::Management => cluster.within(&installation.namespace, rights),
    };
    let mut grants = if installation.fleet {
        vec![
            here(ClusterKind::Management, vec![leases()]),
            here(ClusterKind::Worker, vec![claims]),
            identity_of(ClusterKind::Worker, ANOTHER_CLUSTER),
        ]
    } else {
        vec![here(ClusterKind::Worker, vec![claims, leases()])]
    };
    grants.push(ClusterKind::Worker.everywhere(everywhere));
    grants
}
