//! The services, with their rows of the [table].

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::grant::{ClusterKind, Grant};
use super::installation::Installation;
use super::table::{self, GoLease};

/// A service with an identity of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::EnumCount, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
#[allow(missing_docs)]
pub enum Service {
    OspController,
    OscController,
    SecretSyncer,
    CsrApprover,
}

impl Service {
    /// All services. The length makes the compiler check that none is missing.
    pub const ALL: [Self; <Self as strum::EnumCount>::COUNT] = [
        Self::OspController,
        Self::OscController,
        Self::SecretSyncer,
        Self::CsrApprover,
    ];

    /// Name of the binary, the Deployment, the ServiceAccount and the field manager.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Key of the service's section in the values of the Helm chart.
    pub fn values_key(self) -> &'static str {
        match self {
            Self::OspController => "ospController",
            Self::OscController => "oscController",
            Self::SecretSyncer => "secretSyncer",
            Self::CsrApprover => "csrApprover",
        }
    }

    /// The clusters that the service connects to. It needs no kubeconfig for any other.
    pub fn clusters(self) -> &'static [ClusterKind] {
        match self {
            Self::OspController => &[ClusterKind::Management],
            Self::OscController | Self::SecretSyncer => &ClusterKind::ALL,
            Self::CsrApprover => &[ClusterKind::Worker],
        }
    }

    /// Whether it reads profiles, configs or settings, and with them the settings document.
    pub fn reads_settings(self) -> bool {
        self.clusters().contains(&ClusterKind::Management)
    }

    /// The Leases that the upstream OSM renews while it writes objects that this service writes, too.
    pub fn go_leases(self, installation: &Installation) -> Vec<GoLease> {
        match self {
            Self::OspController => table::go_leases_of_profiles(installation),
            Self::OscController | Self::SecretSyncer => table::go_leases(installation),
            Self::CsrApprover => Vec::new(),
        }
    }

    /// Everything the service may do, one grant for each namespace of each cluster.
    pub fn grants(self, installation: &Installation) -> Vec<Grant> {
        let mut merged: Vec<Grant> = Vec::new();
        let serves_clusters = installation.fleet && self != Self::OspController;
        let go_leases = self.go_leases(installation).into_iter();
        let of_go_leases = go_leases.map(|lease| lease.grant(serves_clusters));
        let registrations = serves_clusters.then(|| table::registrations(self.name()));
        let grants = match self {
            Self::OspController => table::osp_controller(installation),
            Self::OscController => table::osc_controller(installation),
            Self::SecretSyncer => table::secret_syncer(installation),
            Self::CsrApprover => table::csr_approver(installation),
        };
        for grant in grants.into_iter().chain(registrations).chain(of_go_leases) {
            let same =
                |known: &&mut Grant| (known.cluster, &known.namespace) == (grant.cluster, &grant.namespace);
            match merged.iter_mut().find(same) {
                Some(known) => known.rights.extend(grant.rights),
                None => merged.push(grant),
            }
        }
        merged
    }

    /// The rules of the service in one cluster that plays these parts, by namespace; `None`: of the whole
    /// cluster.
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
            let rules = grant.rights.into_iter().map(|right| right.rule);
            match merged
                .iter_mut()
                .find(|(namespace, _)| *namespace == grant.namespace)
            {
                Some((_, known)) => {
                    for rule in rules {
                        if !known.contains(&rule) {
                            known.push(rule);
                        }
                    }
                }
                None => merged.push((grant.namespace, rules.collect())),
            }
        }
        merged
    }
}
