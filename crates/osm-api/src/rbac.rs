//! What each service may do, where, and what for: one table, from which the demo, the tests, the chart and
//! `docs/rights.md` get their roles.

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::names::{
    BOOTSTRAP_TOKENS_NAMESPACE, CLOUD_INIT_SETTINGS, GROUP, KUBE_SYSTEM, SETTINGS_CONFIG_MAP,
};

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
    /// Whether kubelets join with bootstrap tokens (`credentials.nodeBootstrap` of the settings), which secret-syncer
    /// has to create in `kube-system`.
    pub bootstrap_tokens: bool,
    /// Whether osc-controller removes the [finalizer](crate::names::GO_FINALIZER) of the Go implementation from
    /// MachineDeployments that are being deleted, where that no longer runs.
    pub go_finalizers: bool,
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
            namespace: KUBE_SYSTEM.to_owned(),
            settings: SETTINGS_CONFIG_MAP.to_owned(),
            profile_namespaces: Vec::new(),
            pool_settings_namespaces: vec![KUBE_SYSTEM.to_owned()],
            bootstrap_tokens: false,
            go_finalizers: false,
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

    /// The clusters that the service talks to. It needs no kubeconfig for any other.
    pub fn clusters(self) -> &'static [Cluster] {
        match self {
            Self::OspController => &[Cluster::Management],
            Self::OscController | Self::SecretSyncer => &Cluster::ALL,
        }
    }

    /// Everything the service may do, one grant for each namespace of each cluster.
    pub fn grants(self, installation: &Installation) -> Vec<Grant> {
        let mut merged: Vec<Grant> = Vec::new();
        for grant in self.all_grants(installation) {
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
        parts: &[Cluster],
    ) -> Vec<(Option<String>, Vec<PolicyRule>)> {
        let mut merged: Vec<(Option<String>, Vec<PolicyRule>)> = Vec::new();
        for grant in self.grants(installation).into_iter().filter(|grant| parts.contains(&grant.cluster)) {
            let place = match merged.iter().position(|(namespace, _)| *namespace == grant.namespace) {
                Some(place) => place,
                None => {
                    merged.push((grant.namespace, Vec::new()));
                    merged.len() - 1
                }
            };
            let Some((_, rules)) = merged.get_mut(place) else { continue };
            for right in grant.rights {
                if !rules.contains(&right.rule) {
                    rules.push(right.rule);
                }
            }
        }
        merged
    }

    fn all_grants(self, installation: &Installation) -> Vec<Grant> {
        let further = || installation.namespaces_of_profiles().into_iter().skip(1);
        match self {
            Self::OspController => osp_controller(installation, further()),
            Self::OscController => osc_controller(installation, further()),
            Self::SecretSyncer => secret_syncer(installation),
        }
    }
}

const READ_ALL: [&str; 2] = ["list", "watch"];

fn settings(name: &str) -> Right {
    named("", "configmaps", name, &READ_ALL, "the settings")
}

fn events(about: &'static str) -> Right {
    rule("events.k8s.io", &["events"], &["create", "patch"], about)
}

/// Among them may be Leases of other programs: no rule can tell them apart, as a pod's name is not known before.
fn leases() -> Right {
    let why = "each replica has a Lease by which the others know that it lives; those of replicas that have died are deleted";
    rule("coordination.k8s.io", &["leases"], &["list", "watch", "create", "update", "delete"], why)
}

/// The cluster is told from others by the uid of its oldest namespace.
fn identity_of(cluster: Cluster) -> Grant {
    let why =
        "which cluster this is: by the uid of this namespace, so that a kubeconfig of another one is noticed";
    cluster.within(KUBE_SYSTEM, vec![named("", "namespaces", KUBE_SYSTEM, &["get"], why)])
}

fn osp_controller<'a>(installation: &Installation, further: impl Iterator<Item = &'a str>) -> Vec<Grant> {
    let read = || rule(GROUP, &["operatingsystemprofiles"], &READ_ALL, "the profiles to judge");
    let status = || rule(GROUP, &["operatingsystemprofiles/status"], &["patch"], "the verdict");
    let events = || events("a profile is refused, or accepted again; a default profile was put back");
    let own = vec![
        read(),
        rule(
            GROUP,
            &["operatingsystemprofiles"],
            &["get", "create", "update"],
            "default profiles are installed, and put back when somebody has changed them",
        ),
        status(),
        settings(&installation.settings),
        leases(),
        events(),
    ];
    let own = [Cluster::Management.within(&installation.namespace, own), identity_of(Cluster::Management)];
    let further = further.map(|other| Cluster::Management.within(other, vec![read(), status(), events()]));
    own.into_iter().chain(further).collect()
}

fn osc_controller<'a>(installation: &Installation, further: impl Iterator<Item = &'a str>) -> Vec<Grant> {
    let profiles = || {
        let why = "the profiles to render; read anew when a pool gets a new revision";
        rule(GROUP, &["operatingsystemprofiles"], &["get", "list", "watch"], why)
    };
    let own = vec![
        profiles(),
        rule(
            GROUP,
            &["operatingsystemconfigs"],
            &["get", "list", "watch", "create", "update", "delete"],
            "one for each MachineDeployment, deleted when everything made for its pool is undone",
        ),
        rule(
            GROUP,
            &["operatingsystemconfigs/status"],
            &["patch"],
            "the condition Rendered, and what is vouched for",
        ),
        settings(&installation.settings),
        leases(),
    ];
    let mut everywhere = vec![
        rule(
            "cluster.k8s.io",
            &["machinedeployments"],
            &["get", "list", "watch"],
            "the pools, which may be in any namespace; read anew before one is taken for gone",
        ),
        events("a pool, in whatever namespace, can't be rendered, or can again"),
    ];
    if installation.go_finalizers {
        let why =
            "only with `--remove-go-finalizers`: a finalizer left behind is taken off what is being deleted";
        everywhere.push(rule("cluster.k8s.io", &["machinedeployments"], &["patch"], why));
    }
    let mut grants = vec![
        Cluster::Management.within(&installation.namespace, own),
        Cluster::Worker.everywhere(everywhere),
        identity_of(Cluster::Management),
        identity_of(Cluster::Worker),
        Cluster::Worker.within(
            "kube-public",
            vec![named(
                "",
                "configmaps",
                "cluster-info",
                &READ_ALL,
                "where nodes find the API server, and its CA",
            )],
        ),
        Cluster::Worker.within(
            "default",
            vec![rule(
                "discovery.k8s.io",
                &["endpointslices"],
                &READ_ALL,
                "where nodes find the API server, if there is no cluster-info",
            )],
        ),
    ];
    grants.extend(further.map(|other| Cluster::Management.within(other, vec![profiles()])));
    let maps = || {
        let why = "a pool's own settings, in a ConfigMap of whatever name";
        rule("", &["configmaps"], &["get", "list", "watch"], why)
    };
    let of_pools = installation.pool_settings_namespaces.iter();
    grants.extend(of_pools.map(|other| Cluster::Worker.within(other, vec![maps()])));
    grants
}

fn secret_syncer(installation: &Installation) -> Vec<Grant> {
    let own = vec![
        rule(
            GROUP,
            &["operatingsystemconfigs"],
            &["get", "list", "watch"],
            "what is to be published; read anew before it is, and before anything without one is deleted",
        ),
        rule(
            GROUP,
            &["operatingsystemconfigs/status"],
            &["patch"],
            "the condition Published, and what is published",
        ),
        settings(&installation.settings),
        leases(),
        events("a pool can't be published, or can again"),
    ];
    let everywhere = vec![
        named("", "namespaces", CLOUD_INIT_SETTINGS, &READ_ALL, "everything is put back once it is"),
        rule(
            "cluster.k8s.io",
            &["machinedeployments"],
            &["get", "list", "watch"],
            "a subscription's password may stand in one, and must not stand in a config",
        ),
    ];
    let made = vec![
        rule(
            "events.k8s.io",
            &["events"],
            &["create"],
            "somebody left a ServiceAccount's token without end here",
        ),
        rule(
            "",
            &["secrets"],
            &["get", "list", "watch", "create", "update", "patch", "delete"],
            "what machine-controller and nodes read, and registry credentials; nodes' Roles give `get` on them",
        ),
        rule(
            "",
            &["serviceaccounts"],
            &["get", "list", "watch", "create", "patch", "delete"],
            "an identity for each pool, and the one with which kubelets join; one that lost its label gets it again",
        ),
        rule("", &["serviceaccounts/token"], &["create"], "the tokens that nodes boot with"),
        rule(
            "rbac.authorization.k8s.io",
            &["roles"],
            &["get", "list", "watch", "create", "update", "patch", "delete"],
            "a node may get exactly its pool's own Secrets; one that lost its label gets it again",
        ),
        rule(
            "rbac.authorization.k8s.io",
            &["rolebindings"],
            &["get", "list", "watch", "create", "patch", "delete"],
            "a node may get exactly its pool's own Secrets; one that lost its label gets it again",
        ),
    ];
    let mut grants = vec![
        Cluster::Management.within(&installation.namespace, own),
        identity_of(Cluster::Management),
        identity_of(Cluster::Worker),
        Cluster::Worker.everywhere(everywhere),
        Cluster::Worker.within(CLOUD_INIT_SETTINGS, made),
    ];
    if installation.bootstrap_tokens {
        let why = "bootstrap tokens, and only where the settings want them: made, never read";
        let create = rule("", &["secrets"], &["create"], why);
        grants.push(Cluster::Worker.within(BOOTSTRAP_TOKENS_NAMESPACE, vec![create]));
    }
    grants
}

/// One of the two clusters of an installation. One cluster may be both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cluster {
    /// Profiles, configs and settings are here.
    Management,
    /// The machines' own: MachineDeployments and `cloud-init-settings` are here.
    Worker,
}

impl Cluster {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Management, Self::Worker];

    /// `management` or `worker`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Management => "management",
            Self::Worker => "worker",
        }
    }

    fn within(self, namespace: &str, rights: Vec<Right>) -> Grant {
        Grant { cluster: self, namespace: Some(namespace.to_owned()), rights }
    }

    fn everywhere(self, rights: Vec<Right>) -> Grant {
        Grant { cluster: self, namespace: None, rights }
    }
}

/// Rights in one namespace, or in a whole cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// Where the Role is.
    pub cluster: Cluster,
    /// Namespace of a Role; `None`: a ClusterRole.
    pub namespace: Option<String>,
    /// The rights.
    pub rights: Vec<Right>,
}

/// A rule, and what it is for.
#[derive(Clone, Debug, PartialEq)]
pub struct Right {
    /// The rule.
    pub rule: PolicyRule,
    /// What the service needs it for.
    pub why: &'static str,
}

fn rule(group: &str, resources: &[&str], verbs: &[&str], why: &'static str) -> Right {
    let owned = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
    let rule = PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(owned(resources)),
        verbs: owned(verbs),
        ..PolicyRule::default()
    };
    Right { rule, why }
}

fn named(group: &str, resource: &str, name: &str, verbs: &[&str], why: &'static str) -> Right {
    let mut right = rule(group, &[resource], verbs, why);
    right.rule.resource_names = Some(vec![name.to_owned()]);
    right
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(service: Service) -> Vec<String> {
        service
            .grants(&Installation::default())
            .into_iter()
            .flat_map(|grant| grant.rights)
            .flat_map(|right| right.rule.resources.unwrap_or_default())
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
    fn each_namespace_has_one_grant_in_each_cluster_and_one_role_where_both_are_one() {
        let installation = Installation {
            pool_settings_namespaces: vec!["kube-system".to_owned(), "machines".to_owned()],
            ..Installation::default()
        };
        let grants = Service::OscController.grants(&installation);
        let of = |cluster: Cluster, namespace: &str| {
            let here =
                |grant: &&Grant| (grant.cluster, grant.namespace.as_deref()) == (cluster, Some(namespace));
            grants.iter().filter(here).count()
        };
        assert_eq!(Cluster::ALL.map(|cluster| of(cluster, "kube-system")), [1, 1]);
        assert_eq!(Cluster::ALL.map(|cluster| of(cluster, "machines")), [0, 1]);
        let one = Service::OscController.rules(&installation, &Cluster::ALL);
        let in_one = |namespace: Option<&str>| one.iter().filter(|(n, _)| n.as_deref() == namespace).count();
        assert_eq!((in_one(Some("kube-system")), in_one(Some("machines")), in_one(None)), (1, 1, 1));
        for (_, rules) in &one {
            assert!(rules.iter().enumerate().all(|(at, rule)| !rules[..at].contains(rule)), "{rules:#?}");
        }
    }

    #[test]
    fn a_service_has_rights_where_it_has_a_kubeconfig_and_nowhere_else() {
        for service in Service::ALL {
            let grants = service.grants(&Installation::default());
            for cluster in Cluster::ALL {
                let granted = grants.iter().any(|grant| grant.cluster == cluster);
                assert_eq!(service.clusters().contains(&cluster), granted, "{service:?} {cluster:?}");
            }
        }
    }

    #[test]
    fn bootstrap_tokens_may_be_created_where_they_are_wanted_and_never_read() {
        let wanted = Installation { bootstrap_tokens: true, ..Installation::default() };
        let verbs = |service: Service, installation: &Installation| -> Vec<String> {
            let grants = service.grants(installation).into_iter();
            let rules = grants
                .filter(|grant| grant.namespace.as_deref() == Some("kube-system"))
                .flat_map(|grant| grant.rights)
                .map(|right| right.rule);
            rules
                .filter(|rule| rule.resources.iter().flatten().any(|resource| resource == "secrets"))
                .flat_map(|rule| rule.verbs)
                .collect()
        };
        for service in Service::ALL {
            let expected: &[&str] = if service == Service::SecretSyncer { &["create"] } else { &[] };
            assert_eq!(verbs(service, &wanted), expected);
            assert!(verbs(service, &Installation::default()).is_empty());
        }
    }

    #[test]
    fn machine_deployments_are_patched_by_one_service_and_only_where_that_is_wanted() {
        let wanted = Installation { go_finalizers: true, ..Installation::default() };
        for service in Service::ALL {
            let rights = service.grants(&wanted).into_iter().flat_map(|grant| grant.rights);
            let on_pools = rights.map(|right| right.rule).filter(|rule| {
                rule.resources.iter().flatten().any(|resource| resource == "machinedeployments")
            });
            let writes: Vec<String> = on_pools
                .flat_map(|rule| rule.verbs)
                .filter(|verb| !["get", "list", "watch"].contains(&verb.as_str()))
                .collect();
            let expected: &[&str] = if service == Service::OscController { &["patch"] } else { &[] };
            assert_eq!(writes, expected);
        }
    }

    #[test]
    fn no_service_writes_machine_deployments_or_reads_secrets_outside_its_namespace() {
        for grant in Service::ALL.into_iter().flat_map(|service| service.grants(&Installation::default())) {
            for Right { rule, .. } in &grant.rights {
                let on = |name: &str| rule.resources.iter().flatten().any(|resource| resource == name);
                if on("machinedeployments") {
                    assert_eq!(rule.verbs, ["get", "list", "watch"]);
                }
                if on("secrets") {
                    let place = (grant.cluster, grant.namespace.as_deref());
                    assert_eq!(place, (Cluster::Worker, Some(CLOUD_INIT_SETTINGS)));
                }
                assert!(!rule.verbs.iter().any(|verb| verb == "*" || verb == "escalate" || verb == "bind"));
            }
        }
    }
}
