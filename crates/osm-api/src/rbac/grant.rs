//! A right, its reason, and where it is granted.

use k8s_openapi::api::rbac::v1::PolicyRule;

/// What a cluster is to an installation. One cluster may be all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterKind {
    /// Profiles, configs, settings and Leases are here.
    Management,
    /// The machines' own: MachineDeployments and `cloud-init-settings` are here.
    Worker,
}

impl ClusterKind {
    pub const ALL: [Self; 2] = [Self::Management, Self::Worker];

    /// `management` or `worker`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Management => "management",
            Self::Worker => "worker",
        }
    }

    pub(super) fn within(self, namespace: &str, rights: Vec<Right>) -> Grant {
        Grant {
            cluster: self,
            namespace: Some(namespace.to_owned()),
            rights,
        }
    }

    pub(super) fn everywhere(self, rights: Vec<Right>) -> Grant {
        Grant {
            cluster: self,
            namespace: None,
            rights,
        }
    }
}

/// Rights in one namespace, or in a whole cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    pub cluster: ClusterKind,
    /// Namespace of a Role; `None`: a ClusterRole.
    pub namespace: Option<String>,
    pub rights: Vec<Right>,
}

/// A rule, and what it is for.
#[derive(Clone, Debug, PartialEq)]
pub struct Right {
    pub rule: PolicyRule,
    /// What the service needs it for.
    pub why: &'static str,
}

/// A rule whose reason is still to be given.
pub(super) struct Unexplained(PolicyRule);

impl Unexplained {
    pub(super) fn because(self, why: &'static str) -> Right {
        Right { rule: self.0, why }
    }
}

/// A right on all objects of these resources. Names of resources and verbs are separated by spaces.
pub(super) fn rule(group: &str, resources: &str, verbs: &str) -> Unexplained {
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    Unexplained(PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(words(resources)),
        verbs: words(verbs),
        ..PolicyRule::default()
    })
}

/// A right on the object of this name.
pub(super) fn named(group: &str, resource: &str, name: &str, verbs: &str) -> Unexplained {
    let Unexplained(rule) = rule(group, resource, verbs);
    Unexplained(PolicyRule {
        resource_names: Some(vec![name.to_owned()]),
        ..rule
    })
}
