//! The services, with their rows of the [table].

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::grant::{ClusterKind, Grant};
use super::installation::Installation;
use super::table::{self, GoLease};

/// A service with an identity of its own. To add one, add a variant and its row in `Service::row`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::EnumCount)]
#[allow(missing_docs)]
pub enum Service {
    OspController,
    OscController,
    SecretSyncer,
    CsrApprover,
}

/// A row of the table of services.
struct Row {
    name: &'static str,
    values_key: &'static str,
    clusters: &'static [ClusterKind],
    grants: fn(&Installation) -> Vec<Grant>,
    go_leases: fn(&Installation) -> Vec<GoLease>,
}

impl Service {
    /// All services. The length makes the compiler check that none is missing.
    pub const ALL: [Self; <Self as strum::EnumCount>::COUNT] = [
        Self::OspController,
        Self::OscController,
        Self::SecretSyncer,
        Self::CsrApprover,
    ];

    fn row(self) -> Row {
        match self {
            Self::OspController => Row {
                name: "osp-controller",
                values_key: "ospController",
                clusters: &[ClusterKind::Management],
                grants: table::osp_controller,
                go_leases: table::go_leases_of_profiles,
            },
            Self::OscController => Row {
                name: "osc-controller",
                values_key: "oscController",
                clusters: &ClusterKind::ALL,
                grants: table::osc_controller,
                go_leases: table::go_leases,
            },
            Self::SecretSyncer => Row {
                name: "secret-syncer",
                values_key: "secretSyncer",
                clusters: &ClusterKind::ALL,
                grants: table::secret_syncer,
                go_leases: table::go_leases,
            },
            Self::CsrApprover => Row {
                name: "csr-approver",
                values_key: "csrApprover",
                clusters: &[ClusterKind::Worker],
                grants: table::csr_approver,
                // It writes nothing that the Go implementation writes.
                go_leases: |_| Vec::new(),
            },
        }
    }

    /// Name of the binary, the Deployment, the ServiceAccount and the field manager.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Key of the service's section in the values of the Helm chart.
    pub fn values_key(self) -> &'static str {
        self.row().values_key
    }

    /// The clusters that the service connects to. It needs no kubeconfig for any other.
    pub fn clusters(self) -> &'static [ClusterKind] {
        self.row().clusters
    }

    /// Whether it reads profiles, configs or settings, and with them the settings document.
    pub fn reads_settings(self) -> bool {
        self.clusters().contains(&ClusterKind::Management)
    }

    /// The Leases that the Go implementation renews while it writes objects that this service writes, too.
    pub fn go_leases(self, installation: &Installation) -> Vec<GoLease> {
        (self.row().go_leases)(installation)
    }

    /// Everything the service may do, one grant for each namespace of each cluster.
    pub fn grants(self, installation: &Installation) -> Vec<Grant> {
        let mut merged: Vec<Grant> = Vec::new();
        let of_go_leases = self.go_leases(installation).into_iter().map(GoLease::grant);
        for grant in (self.row().grants)(installation).into_iter().chain(of_go_leases) {
            let same =
                |known: &&mut Grant| (known.cluster, &known.namespace) == (grant.cluster, &grant.namespace);
            match merged.iter_mut().find(same) {
                Some(known) => known.rights.extend(grant.rights),
                None => merged.push(grant),
            }
        }
        merged
    }

    /// The rules of the service in one cluster that plays these parts, by namespace; `None`: of the whole cluster.
    pub fn rules(
        self,
        installation: &Installation,
        parts: &[ClusterKind],
    ) -> Vec<(Option<String>, Vec<PolicyRule>)> {
        let mut merged: Vec<(Option<String>, Vec<PolicyRule>)> = Vec::new();
        for grant in self
            .grants(installation)
            .into_iter()
            .filter(|grant| parts.contains(&grant.cluster))
        {
            let place = match merged
                .iter()
                .position(|(namespace, _)| *namespace == grant.namespace)
            {
                Some(place) => place,
                None => {
                    merged.push((grant.namespace, Vec::new()));
                    merged.len() - 1
                }
            };
            let Some((_, rules)) = merged.get_mut(place) else {
                continue;
            };
            for right in grant.rights {
                if !rules.contains(&right.rule) {
                    rules.push(right.rule);
                }
            }
        }
        merged
    }
}
