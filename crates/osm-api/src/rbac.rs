//! What each service may do: one table, from which the demo, the tests and the chart get their roles.

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::names::{CLOUD_INIT_SETTINGS, GROUP, SETTINGS_CONFIG_MAP};

/// What is particular to one installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// Namespace of profiles, configs and settings.
    pub namespace: String,
    /// Name of the settings ConfigMap.
    pub settings: String,
    /// Further namespaces of profiles, for MachineDeployments with the annotation
    /// [`PROFILE_NAMESPACE`](crate::names::PROFILE_NAMESPACE).
    pub profile_namespaces: Vec<String>,
    /// Namespaces of MachineDeployments whose ConfigMaps may hold a pool's settings, for the annotation
    /// [`SETTINGS`](crate::names::SETTINGS).
    pub pool_settings_namespaces: Vec<String>,
}

impl Installation {
    /// Every namespace that profiles are read from, each once; the installation's own comes first.
    pub fn namespaces_of_profiles(&self) -> Vec<&str> {
        let mut all = vec![self.namespace.as_str()];
        for namespace in &self.profile_namespaces {
            if !all.contains(&namespace.as_str()) {
                all.push(namespace);
            }
        }
        all
    }
}

impl Default for Installation {
    fn default() -> Self {
        Self {
            namespace: "kube-system".to_owned(),
            settings: SETTINGS_CONFIG_MAP.to_owned(),
            profile_namespaces: Vec::new(),
            pool_settings_namespaces: vec!["kube-system".to_owned()],
        }
    }
}

/// A service with an identity of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Service {
    OspController,
    OscController,
    SecretSyncer,
}

impl Service {
    /// All services.
    pub const ALL: [Self; 3] = [Self::OspController, Self::OscController, Self::SecretSyncer];

    /// Name of the binary, the Deployment, the ServiceAccount and the field manager.
    pub fn name(self) -> &'static str {
        match self {
            Self::OspController => "osp-controller",
            Self::OscController => "osc-controller",
            Self::SecretSyncer => "secret-syncer",
        }
    }

    /// Everything the service may do, one grant for each namespace.
    pub fn grants(self, installation: &Installation) -> Vec<Grant> {
        let mut merged: Vec<Grant> = Vec::new();
        for grant in self.all_grants(installation) {
            match merged.iter_mut().find(|known| known.namespace == grant.namespace) {
                Some(known) => known.rules.extend(grant.rules),
                None => merged.push(grant),
            }
        }
        merged
    }

    fn all_grants(self, installation: &Installation) -> Vec<Grant> {
        let Installation { namespace, settings, .. } = installation;
        let cluster = |rules| Grant { namespace: None, rules };
        let here = |rules| Grant { namespace: Some(namespace.clone()), rules };
        let in_namespace = |other: &str, rules| Grant { namespace: Some(other.to_owned()), rules };
        let settings = || named("", &["configmaps"], &[settings], &["get", "list", "watch"]);
        let events = || rule("events.k8s.io", &["events"], &["create", "patch"]);
        let profiles = || rule(GROUP, &["operatingsystemprofiles"], &["get", "list", "watch"]);
        let further = installation.namespaces_of_profiles().into_iter().skip(1);
        match self {
            Self::OspController => {
                let status = || rule(GROUP, &["operatingsystemprofiles/status"], &["patch"]);
                let write = rule(GROUP, &["operatingsystemprofiles"], &["create", "update"]);
                let own = here(vec![profiles(), write, status(), settings(), events()]);
                let further = further.map(|other| in_namespace(other, vec![profiles(), status(), events()]));
                std::iter::once(own).chain(further).collect()
            }
            Self::OscController => {
                let mut grants = vec![
                    here(vec![
                        profiles(),
                        rule(
                            GROUP,
                            &["operatingsystemconfigs"],
                            &["get", "list", "watch", "create", "update", "delete"],
                        ),
                        rule(GROUP, &["operatingsystemconfigs/status"], &["patch"]),
                        settings(),
                    ]),
                    // MachineDeployments, and the events about them, are in any namespace.
                    cluster(vec![
                        rule("cluster.k8s.io", &["machinedeployments"], &["get", "list", "watch"]),
                        events(),
                        named("", &["namespaces"], &["kube-system"], &["get"]),
                    ]),
                    in_namespace(
                        "kube-public",
                        vec![named("", &["configmaps"], &["cluster-info"], &["get", "list", "watch"])],
                    ),
                    in_namespace(
                        "default",
                        vec![rule("discovery.k8s.io", &["endpointslices"], &["get", "list", "watch"])],
                    ),
                ];
                grants.extend(further.map(|other| in_namespace(other, vec![profiles()])));
                // A pool's settings may stand in a ConfigMap of any name.
                let maps = || rule("", &["configmaps"], &["get", "list", "watch"]);
                let of_pools = installation.pool_settings_namespaces.iter();
                grants.extend(of_pools.map(|other| in_namespace(other, vec![maps()])));
                grants
            }
            Self::SecretSyncer => vec![
                here(vec![
                    rule(GROUP, &["operatingsystemconfigs"], &["get", "list", "watch"]),
                    rule(GROUP, &["operatingsystemconfigs/status"], &["patch"]),
                    settings(),
                    events(),
                ]),
                cluster(vec![
                    named("", &["namespaces"], &[CLOUD_INIT_SETTINGS], &["get", "list", "watch"]),
                    // A subscription's password may stand in a MachineDeployment; it must not stand in a config.
                    rule("cluster.k8s.io", &["machinedeployments"], &["get", "list", "watch"]),
                ]),
                in_namespace(
                    CLOUD_INIT_SETTINGS,
                    vec![
                        rule(
                            "",
                            &["secrets"],
                            &["get", "list", "watch", "create", "update", "patch", "delete"],
                        ),
                        rule("", &["serviceaccounts"], &["get", "list", "watch", "create", "delete"]),
                        rule("", &["serviceaccounts/token"], &["create"]),
                        rule(
                            "rbac.authorization.k8s.io",
                            &["roles", "rolebindings"],
                            &["get", "list", "watch", "create", "update", "patch", "delete"],
                        ),
                    ],
                ),
            ],
        }
    }
}

/// Rules in one namespace, or in the whole cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// Namespace of a Role; `None`: a ClusterRole.
    pub namespace: Option<String>,
    /// The rules.
    pub rules: Vec<PolicyRule>,
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let owned = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    }
}

fn named(group: &str, resources: &[&str], names: &[&str], verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        resource_names: Some(names.iter().map(|name| (*name).to_owned()).collect()),
        ..rule(group, resources, verbs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(service: Service) -> Vec<String> {
        service
            .grants(&Installation::default())
            .into_iter()
            .flat_map(|grant| grant.rules)
            .flat_map(|rule| rule.resources.unwrap_or_default())
            .collect()
    }

    #[test]
    fn services_that_run_templates_have_no_right_on_secrets() {
        for service in [Service::OspController, Service::OscController] {
            assert!(
                !resources(service)
                    .iter()
                    .any(|r| r.starts_with("secrets") || r.starts_with("serviceaccounts"))
            );
        }
    }

    #[test]
    fn each_namespace_has_one_grant() {
        let installation = Installation {
            pool_settings_namespaces: vec!["kube-system".to_owned(), "machines".to_owned()],
            ..Installation::default()
        };
        let grants = Service::OscController.grants(&installation);
        let of = |namespace: &str| {
            grants.iter().filter(|grant| grant.namespace.as_deref() == Some(namespace)).count()
        };
        assert_eq!((of("kube-system"), of("machines"), of("default")), (1, 1, 1));
    }

    #[test]
    fn no_service_writes_machine_deployments_or_reads_secrets_outside_its_namespace() {
        for grant in Service::ALL.into_iter().flat_map(|service| service.grants(&Installation::default())) {
            for rule in &grant.rules {
                let on = |name: &str| rule.resources.iter().flatten().any(|resource| resource == name);
                if on("machinedeployments") {
                    assert_eq!(rule.verbs, ["get", "list", "watch"]);
                }
                if on("secrets") {
                    assert_eq!(grant.namespace.as_deref(), Some(CLOUD_INIT_SETTINGS));
                }
                assert!(!rule.verbs.iter().any(|verb| verb == "*" || verb == "escalate" || verb == "bind"));
            }
        }
    }
}
