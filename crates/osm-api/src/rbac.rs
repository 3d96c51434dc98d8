//! The services, and what each may do, where and why. The chart, the tests, the demo and `docs/rights.md` take their roles from this
//! table.

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::Joining;
use crate::names::{
    BOOTSTRAP_TOKENS_NAMESPACE, CLOUD_INIT_SETTINGS, GROUP, KUBE_SYSTEM, SETTINGS_CONFIG_MAP,
};

/// What the rights of one installation depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// Namespace of profiles and configs, and of the settings and Leases unless `home` is set.
    pub namespace: String,
    /// Namespace of the settings and Leases in the [home cluster](ClusterKind::Home); `None`: they are in `namespace`.
    pub home: Option<String>,
    /// Name of the settings ConfigMap.
    pub settings: String,
    /// Further namespaces of profiles, for MachineDeployments with the annotation
    /// [`PROFILE_NAMESPACE`](crate::names::PROFILE_NAMESPACE).
    pub profile_namespaces: Vec<String>,
    /// Namespaces of MachineDeployments whose ConfigMaps may hold a pool's settings, for the annotation
    /// [`SETTINGS`](crate::names::SETTINGS).
    pub pool_settings_namespaces: Vec<String>,
    /// Namespaces whose MachineDeployments are served. If the list is empty, all are. The rights do not depend on it: a pool that was published
    /// before is renewed in any namespace.
    pub machine_deployment_namespaces: Vec<String>,
    /// Whether kubelets join with bootstrap tokens (`credentials.nodeBootstrap` of the settings), which secret-syncer
    /// has to create in `kube-system`.
    pub bootstrap_tokens: bool,
    /// Whether osc-controller removes the [finalizer](crate::names::GO_FINALIZER) of the Go implementation from
    /// MachineDeployments that are being deleted, where that no longer runs.
    pub go_finalizers: bool,
    /// Whether osp-controller copies the CustomOperatingSystemProfiles of its namespaces into OperatingSystemProfiles.
    pub custom_profiles: bool,
    /// Whether csr-approver also approves serving certificates of kubelets.
    pub serving_certificates: bool,
    /// How machines join, which decides what the tokens of nodes may do.
    pub joining: Joining,
    /// What secret-syncer keeps for the admission webhooks; `None`: they have another certificate, or do not exist.
    pub admission: Option<AdmissionObjects>,
}

/// Names of the objects by which an API server reaches the admission webhooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionObjects {
    /// Secret with the key pair, in the namespace of the pods. It exists, perhaps without content: a right to create Secrets can't be limited
    /// to one name.
    pub secret: String,
    /// ValidatingWebhookConfiguration for profiles, in the management cluster.
    pub profiles: Option<String>,
    /// ValidatingWebhookConfiguration for MachineDeployments, in the worker cluster.
    pub machine_deployments: Option<String>,
}

impl Installation {
    /// Namespace of the settings and Leases.
    pub fn home_namespace(&self) -> &str {
        self.home.as_deref().unwrap_or(&self.namespace)
    }

    /// A grant where the settings and Leases are; `usual`: the cluster that has them if there is no home cluster.
    fn at_home(&self, usual: ClusterKind, rights: Vec<Right>) -> Grant {
        let cluster = match self.home {
            Some(_) => ClusterKind::Home,
            None => usual,
        };
        cluster.within(self.home_namespace(), rights)
    }

    /// Namespaces of profiles besides the installation's own.
    fn further_namespaces(&self) -> impl Iterator<Item = &str> {
        self.namespaces_of_profiles().into_iter().skip(1)
    }

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

    /// Whether MachineDeployments in this namespace are served.
    pub fn serves(&self, namespace: &str) -> bool {
        let served = &self.machine_deployment_namespaces;
        served.is_empty() || served.iter().any(|name| name == namespace)
    }
}

impl Default for Installation {
    fn default() -> Self {
        Self {
            namespace: KUBE_SYSTEM.to_owned(),
            home: None,
            settings: SETTINGS_CONFIG_MAP.to_owned(),
            profile_namespaces: Vec::new(),
            pool_settings_namespaces: vec![KUBE_SYSTEM.to_owned()],
            machine_deployment_namespaces: Vec::new(),
            bootstrap_tokens: false,
            go_finalizers: false,
            custom_profiles: false,
            serving_certificates: false,
            joining: Joining::default(),
            admission: None,
        }
    }
}

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
                grants: osp_controller,
            },
            Self::OscController => Row {
                name: "osc-controller",
                values_key: "oscController",
                clusters: &ClusterKind::BUT_HOME,
                grants: osc_controller,
            },
            Self::SecretSyncer => Row {
                name: "secret-syncer",
                values_key: "secretSyncer",
                clusters: &ClusterKind::BUT_HOME,
                grants: secret_syncer,
            },
            Self::CsrApprover => Row {
                name: "csr-approver",
                values_key: "csrApprover",
                clusters: &[ClusterKind::Worker],
                grants: csr_approver,
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

    /// The clusters that the service connects to, besides a home cluster. It needs no kubeconfig for any other.
    pub fn clusters(self) -> &'static [ClusterKind] {
        self.row().clusters
    }

    /// Whether it reads profiles, configs or settings, and with them the settings document.
    pub fn reads_settings(self) -> bool {
        self.clusters().contains(&ClusterKind::Management)
    }

    /// Everything the service may do, one grant for each namespace of each cluster.
    pub fn grants(self, installation: &Installation) -> Vec<Grant> {
        let mut merged: Vec<Grant> = Vec::new();
        for grant in (self.row().grants)(installation) {
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

const READ_ALL: [&str; 2] = ["list", "watch"];

fn settings(name: &str) -> Right {
    named("", "configmaps", name, &READ_ALL, "the settings")
}

fn events(about: &'static str) -> Right {
    rule("events.k8s.io", &["events"], &["create", "patch"], about)
}

/// The rule covers every Lease of the namespace, including those of other programs: RBAC cannot name pods that do not exist yet.
fn leases() -> Right {
    let why = "each replica renews its own Lease; Leases of dead replicas are deleted";
    rule(
        "coordination.k8s.io",
        &["leases"],
        &["list", "watch", "create", "update", "delete"],
        why,
    )
}

/// The uid of its oldest namespace identifies a cluster.
fn identity_of(cluster: ClusterKind) -> Grant {
    let why = "its uid identifies the cluster, so that a kubeconfig of another cluster is detected";
    cluster.within(
        KUBE_SYSTEM,
        vec![named("", "namespaces", KUBE_SYSTEM, &["get"], why)],
    )
}

fn osp_controller(installation: &Installation) -> Vec<Grant> {
    let read = || {
        rule(
            GROUP,
            &["operatingsystemprofiles"],
            &["get", "list", "watch"],
            "the profiles to validate, one by one if there are many",
        )
    };
    let status = || {
        rule(
            GROUP,
            &["operatingsystemprofiles/status"],
            &["patch"],
            "the result of the validation",
        )
    };
    let events = || events("Events: a profile is refused or accepted again, a default profile was restored");
    let custom = || {
        let why = "only with `--custom-profiles`: the custom profiles to copy, one by one if there are many";
        rule(
            GROUP,
            &["customoperatingsystemprofiles"],
            &["get", "list", "watch"],
            why,
        )
    };
    let mut own = vec![
        read(),
        rule(
            GROUP,
            &["operatingsystemprofiles"],
            &["create", "update"],
            "default profiles are installed, and restored when they are changed",
        ),
        status(),
        events(),
    ];
    own.extend(installation.custom_profiles.then(custom));
    let own = [
        ClusterKind::Management.within(&installation.namespace, own),
        installation.at_home(
            ClusterKind::Management,
            vec![settings(&installation.settings), leases()],
        ),
        identity_of(ClusterKind::Management),
    ];
    let further = installation.further_namespaces().map(|other| {
        let mut rights = vec![read(), status(), events()];
        if installation.custom_profiles {
            let why = "only with `--custom-profiles`: copies of custom profiles are written";
            let verbs = ["create", "update"];
            rights.extend([custom(), rule(GROUP, &["operatingsystemprofiles"], &verbs, why)]);
        }
        ClusterKind::Management.within(other, rights)
    });
    own.into_iter().chain(further).collect()
}

fn osc_controller(installation: &Installation) -> Vec<Grant> {
    let profiles = || {
        let why = "the profiles to render; a live read when a pool gets a new revision";
        rule(
            GROUP,
            &["operatingsystemprofiles"],
            &["get", "list", "watch"],
            why,
        )
    };
    let own = vec![
        profiles(),
        rule(
            GROUP,
            &["operatingsystemconfigs"],
            &["get", "list", "watch", "create", "update", "patch", "delete"],
            "one per MachineDeployment, deleted after everything published for its pool",
        ),
        rule(
            GROUP,
            &["operatingsystemconfigs/status"],
            &["patch"],
            "the condition Rendered, and the rendered documents",
        ),
    ];
    let mut everywhere = vec![
        rule(
            "cluster.k8s.io",
            &["machinedeployments"],
            &["get", "list", "watch"],
            "the pools, in any namespace; a live read before a pool is retired",
        ),
        events("Events: a pool in any namespace cannot be rendered, or can be rendered again"),
    ];
    if installation.go_finalizers {
        let why = "only with `--remove-go-finalizers`: removes a leftover finalizer from MachineDeployments that are being deleted";
        everywhere.push(rule("cluster.k8s.io", &["machinedeployments"], &["patch"], why));
    }
    let mut grants = vec![
        ClusterKind::Management.within(&installation.namespace, own),
        installation.at_home(
            ClusterKind::Management,
            vec![settings(&installation.settings), leases()],
        ),
        ClusterKind::Worker.everywhere(everywhere),
        identity_of(ClusterKind::Management),
        identity_of(ClusterKind::Worker),
        ClusterKind::Worker.within(
            "kube-public",
            vec![named(
                "",
                "configmaps",
                "cluster-info",
                &READ_ALL,
                "address and CA of the API server, for nodes",
            )],
        ),
        ClusterKind::Worker.within(
            "default",
            vec![rule(
                "discovery.k8s.io",
                &["endpointslices"],
                &READ_ALL,
                "address of the API server, if there is no cluster-info",
            )],
        ),
    ];
    grants.extend(
        installation
            .further_namespaces()
            .map(|other| ClusterKind::Management.within(other, vec![profiles()])),
    );
    let maps = || {
        let why = "the settings of a pool, in a ConfigMap with any name";
        rule("", &["configmaps"], &["get", "list", "watch"], why)
    };
    let of_pools = installation.pool_settings_namespaces.iter();
    grants.extend(of_pools.map(|other| ClusterKind::Worker.within(other, vec![maps()])));
    grants
}

fn secret_syncer(installation: &Installation) -> Vec<Grant> {
    let own = vec![
        rule(
            GROUP,
            &["operatingsystemconfigs"],
            &["get", "list", "watch"],
            "the content to publish; a live read before publishing and before deleting orphans",
        ),
        rule(
            GROUP,
            &["operatingsystemconfigs/status"],
            &["patch"],
            "the condition Published, and what is published",
        ),
        events("Events: a pool cannot be published, or can be published again"),
    ];
    let mut everywhere = vec![
        named(
            "",
            "namespaces",
            CLOUD_INIT_SETTINGS,
            &READ_ALL,
            "everything is restored once the namespace exists again",
        ),
        rule(
            "cluster.k8s.io",
            &["machinedeployments"],
            &["get", "list", "watch"],
            "it may contain the password of a subscription, which a config must not contain",
        ),
    ];
    if installation.joining == Joining::Approved {
        everywhere.push(rule(
            "rbac.authorization.k8s.io",
            &["clusterroles", "clusterrolebindings"],
            &READ_ALL,
            "only with `--joining=approved`: a change may let kube-controller-manager approve any node; only metadata is read",
        ));
    }
    let made = vec![
        rule(
            "events.k8s.io",
            &["events"],
            &["create"],
            "Events: a Secret contains a non-expiring token of a ServiceAccount",
        ),
        rule(
            "",
            &["secrets"],
            &["get", "list", "watch", "create", "update", "patch", "delete"],
            "what machine-controller and nodes read, and registry credentials; Roles grant nodes `get` on them",
        ),
        rule(
            "",
            &["serviceaccounts"],
            &["get", "list", "watch", "create", "patch", "delete"],
            "the identity of each pool and of joining kubelets; lost labels are restored",
        ),
        rule(
            "",
            &["serviceaccounts/token"],
            &["create"],
            "the tokens that nodes boot with, and one that verifies what they may do",
        ),
        rule(
            "rbac.authorization.k8s.io",
            &["roles"],
            &["get", "list", "watch", "create", "update", "patch", "delete"],
            "a node may get exactly its pool's Secrets; lost labels are restored",
        ),
        rule(
            "rbac.authorization.k8s.io",
            &["roles"],
            &["bind"],
            "the API server creates a RoleBinding without first comparing it with all other bindings",
        ),
        rule(
            "rbac.authorization.k8s.io",
            &["rolebindings"],
            &["get", "list", "watch", "create", "patch", "delete"],
            "a node may get exactly its pool's Secrets; lost labels are restored",
        ),
    ];
    let mut grants = vec![
        ClusterKind::Management.within(&installation.namespace, own),
        installation.at_home(
            ClusterKind::Management,
            vec![settings(&installation.settings), leases()],
        ),
        identity_of(ClusterKind::Management),
        identity_of(ClusterKind::Worker),
        ClusterKind::Worker.everywhere(everywhere),
        ClusterKind::Worker.within(CLOUD_INIT_SETTINGS, made),
    ];
    if installation.bootstrap_tokens {
        let why = "bootstrap tokens, only if the settings require them; they are never read";
        let create = rule("", &["secrets"], &["create"], why);
        grants.push(ClusterKind::Worker.within(BOOTSTRAP_TOKENS_NAMESPACE, vec![create]));
    }
    if let Some(objects) = &installation.admission {
        grants.extend(admission(installation, objects));
    }
    grants
}

/// What keeping the key pair of the admission webhooks takes, by name.
fn admission(installation: &Installation, objects: &AdmissionObjects) -> impl Iterator<Item = Grant> {
    let why = "only with `--admission-secret`: the key pair of the admission webhooks, in this Secret only";
    let pair = named("", "secrets", &objects.secret, &["get", "update"], why);
    let webhooks = [
        (ClusterKind::Management, &objects.profiles),
        (ClusterKind::Worker, &objects.machine_deployments),
    ];
    let trust = webhooks.into_iter().filter_map(|(cluster, name)| {
        let why = "only with `--admission-secret`: the API server trusts the key pair by `caBundle` of this webhook";
        let (group, resource) = ("admissionregistration.k8s.io", "validatingwebhookconfigurations");
        let right = named(group, resource, name.as_ref()?, &["get", "patch"], why);
        Some(cluster.everywhere(vec![right]))
    });
    let pair = installation.at_home(ClusterKind::Management, vec![pair]);
    [pair].into_iter().chain(trust.collect::<Vec<_>>())
}

/// Signer of the client certificates of kubelets.
pub const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Signer of the serving certificates of kubelets.
pub const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";

/// It has no right on Secrets. The right to approve is worth any node of the cluster.
fn csr_approver(installation: &Installation) -> Vec<Grant> {
    const CERTIFICATES: &str = "certificates.k8s.io";
    let claims = rule(
        "coordination.k8s.io",
        &["leases"],
        &["get", "list", "watch", "create", "update", "delete"],
        "each approval is recorded in a Lease, so that a Machine gets one certificate",
    );
    let mut everywhere = vec![
        rule(
            CERTIFICATES,
            &["certificatesigningrequests"],
            &READ_ALL,
            "the requests of joining nodes",
        ),
        rule(
            CERTIFICATES,
            &["certificatesigningrequests/approval"],
            &["patch"],
            "the decision; with the next permission, this is worth any node of the cluster",
        ),
        named(
            CERTIFICATES,
            "signers",
            CLIENT_SIGNER,
            &["approve"],
            "client certificates of nodes, of this signer only",
        ),
        rule(
            "cluster.k8s.io",
            &["machines", "machinesets", "machinedeployments"],
            &["get", "list", "watch"],
            "a node may join only as a Machine of its pool, read before approvals",
        ),
        rule(
            "",
            &["nodes"],
            &["get", "list", "watch"],
            "a node that exists is never replaced; a live read before each approval",
        ),
        rule(
            "events.k8s.io",
            &["events"],
            &["create"],
            "Events: a machine of a pool in any namespace may not join",
        ),
    ];
    if installation.serving_certificates {
        let why = "only with `--approve-serving`: serving certificates of nodes";
        everywhere.push(named(CERTIFICATES, "signers", SERVING_SIGNER, &["approve"], why));
    }
    vec![
        ClusterKind::Worker.within(&installation.namespace, vec![claims]),
        installation.at_home(ClusterKind::Worker, vec![leases()]),
        identity_of(ClusterKind::Worker),
        ClusterKind::Worker.everywhere(everywhere),
    ]
}

/// What a cluster is to an installation. One cluster may be all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClusterKind {
    /// Profiles and configs are here, and the settings and Leases unless there is a home cluster.
    Management,
    /// The machines' own: MachineDeployments and `cloud-init-settings` are here.
    Worker,
    /// Only the settings, the Secrets that they name, and the Leases are here. It exists where one cluster, the user cluster, is both of the
    /// others, and the services run elsewhere.
    Home,
}

impl ClusterKind {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::Management, Self::Worker, Self::Home];

    /// What a user cluster is.
    pub const BUT_HOME: [Self; 2] = [Self::Management, Self::Worker];

    /// `management`, `worker` or `home`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Management => "management",
            Self::Worker => "worker",
            Self::Home => "home",
        }
    }

    fn within(self, namespace: &str, rights: Vec<Right>) -> Grant {
        Grant {
            cluster: self,
            namespace: Some(namespace.to_owned()),
            rights,
        }
    }

    fn everywhere(self, rights: Vec<Right>) -> Grant {
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
    /// Where the Role is.
    pub cluster: ClusterKind,
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
    fn only_secret_syncer_has_a_right_on_secrets() {
        for service in Service::ALL
            .into_iter()
            .filter(|service| *service != Service::SecretSyncer)
        {
            assert!(
                !resources(service)
                    .iter()
                    .any(|r| r.starts_with("secrets") || r.starts_with("serviceaccounts"))
            );
        }
    }

    /// The right to approve or to sign is worth any node, and what is bound to `nodeclient` is approved without a question.
    #[test]
    fn one_service_may_approve_certificates_of_these_signers_and_none_may_sign() {
        let everything = Installation {
            profile_namespaces: vec!["profiles".to_owned()],
            pool_settings_namespaces: vec!["machines".to_owned()],
            machine_deployment_namespaces: vec!["machines".to_owned()],
            bootstrap_tokens: true,
            go_finalizers: true,
            custom_profiles: true,
            serving_certificates: true,
            joining: Joining::Approved,
            ..Installation::default()
        };
        let decides = |rule: &PolicyRule| {
            let resources = rule.resources.iter().flatten();
            let mut resources = resources.map(|resource| resource.rsplit('/').next().unwrap_or_default());
            rule.verbs
                .iter()
                .any(|verb| ["approve", "sign", "*"].contains(&verb.as_str()))
                || resources
                    .any(|resource| ["signers", "approval", "status", "nodeclient", "*"].contains(&resource))
                    && rule
                        .api_groups
                        .iter()
                        .flatten()
                        .any(|group| ["certificates.k8s.io", "*"].contains(&group.as_str()))
        };
        let found = |installation: &Installation| -> Vec<String> {
            let mut found = Vec::new();
            for service in Service::ALL {
                for Grant {
                    cluster,
                    namespace,
                    rights,
                } in service.grants(installation)
                {
                    let place = namespace.unwrap_or_else(|| "everywhere".to_owned());
                    for Right { rule, .. } in rights.into_iter().filter(|right| decides(&right.rule)) {
                        let list = |items: Option<Vec<String>>| items.unwrap_or_default().join(",");
                        found.push(format!(
                            "{}, {} cluster, {place}: {} {} {}",
                            service.name(),
                            cluster.name(),
                            rule.verbs.join(","),
                            list(rule.resources),
                            list(rule.resource_names)
                        ));
                    }
                }
            }
            found
        };
        let [decision, client, serving] = [
            "patch certificatesigningrequests/approval ",
            "approve signers kubernetes.io/kube-apiserver-client-kubelet",
            "approve signers kubernetes.io/kubelet-serving",
        ]
        .map(|right| format!("csr-approver, worker cluster, everywhere: {right}"));
        assert_eq!(found(&everything), [decision.clone(), client.clone(), serving]);
        assert_eq!(found(&Installation::default()), [decision, client]);
    }

    /// Those that its watches have no room for are read one by one.
    #[test]
    fn osp_controller_may_read_each_profile_that_it_watches() {
        let installation = Installation {
            profile_namespaces: vec!["profiles".to_owned()],
            custom_profiles: true,
            ..Installation::default()
        };
        let grants = Service::OspController.grants(&installation);
        let rules = grants
            .iter()
            .flat_map(|grant| &grant.rights)
            .map(|right| &right.rule);
        let watched = rules.filter(|rule| {
            let mut kinds = rule.resources.iter().flatten();
            kinds.any(|kind| kind.ends_with("operatingsystemprofiles"))
                && rule.verbs.contains(&"watch".to_owned())
        });
        let watched: Vec<_> = watched.collect();
        // Both kinds, in both namespaces.
        assert_eq!(watched.len(), 4, "{watched:#?}");
        assert!(
            watched.iter().all(|rule| rule.verbs.contains(&"get".to_owned())),
            "{watched:#?}"
        );
    }

    #[test]
    fn every_namespace_is_served_unless_some_are_listed() {
        let mut installation = Installation::default();
        assert!(installation.serves("anywhere"));
        installation.machine_deployment_namespaces = vec!["kube-system".to_owned(), "machines".to_owned()];
        assert!(installation.serves("machines") && !installation.serves("b-machines"));
        // What is published in the others must be renewed.
        let all = Installation::default();
        for service in Service::ALL {
            assert_eq!(service.grants(&installation), service.grants(&all));
        }
    }

    #[test]
    fn each_namespace_has_one_grant_in_each_cluster_and_one_role_where_both_are_one() {
        let installation = Installation {
            pool_settings_namespaces: vec!["kube-system".to_owned(), "machines".to_owned()],
            ..Installation::default()
        };
        let grants = Service::OscController.grants(&installation);
        let of = |cluster: ClusterKind, namespace: &str| {
            let here =
                |grant: &&Grant| (grant.cluster, grant.namespace.as_deref()) == (cluster, Some(namespace));
            grants.iter().filter(here).count()
        };
        assert_eq!(
            ClusterKind::ALL.map(|cluster| of(cluster, "kube-system")),
            [1, 1, 0]
        );
        assert_eq!(ClusterKind::ALL.map(|cluster| of(cluster, "machines")), [0, 1, 0]);
        let one = Service::OscController.rules(&installation, &ClusterKind::ALL);
        let in_one = |namespace: Option<&str>| one.iter().filter(|(n, _)| n.as_deref() == namespace).count();
        assert_eq!(
            (
                in_one(Some("kube-system")),
                in_one(Some("machines")),
                in_one(None)
            ),
            (1, 1, 1)
        );
        for (_, rules) in &one {
            assert!(
                rules
                    .iter()
                    .enumerate()
                    .all(|(at, rule)| !rules[..at].contains(rule)),
                "{rules:#?}"
            );
        }
    }

    #[test]
    fn a_service_has_rights_where_it_has_a_kubeconfig_and_nowhere_else() {
        for service in Service::ALL {
            let grants = service.grants(&Installation::default());
            for cluster in ClusterKind::ALL {
                let granted = grants.iter().any(|grant| grant.cluster == cluster);
                assert_eq!(
                    service.clusters().contains(&cluster),
                    granted,
                    "{service:?} {cluster:?}"
                );
            }
        }
    }

    #[test]
    fn at_home_each_service_may_only_read_its_settings_and_renew_leases() {
        let installation = Installation {
            home: Some("cluster-a".to_owned()),
            profile_namespaces: vec!["profiles".to_owned()],
            custom_profiles: true,
            joining: Joining::Approved,
            ..Installation::default()
        };
        for service in Service::ALL {
            let rules = service.rules(&installation, &[ClusterKind::Home]);
            let [(Some(namespace), rules)] = rules.as_slice() else {
                panic!("{service:?}: {rules:#?}");
            };
            assert_eq!(namespace, "cluster-a");
            let mut expected = vec![leases().rule];
            if service.reads_settings() {
                expected.insert(0, settings(&installation.settings).rule);
            }
            assert_eq!(*rules, expected, "{service:?}");
            // What is at home is nowhere else.
            let elsewhere = service.rules(&installation, &ClusterKind::BUT_HOME);
            let of_settings = |rule: &PolicyRule| {
                let named = rule.resource_names.iter().flatten();
                named.into_iter().any(|name| *name == installation.settings)
            };
            assert!(!elsewhere.iter().any(|(_, rules)| rules.iter().any(of_settings)));
        }
    }

    #[test]
    fn bootstrap_tokens_may_be_created_where_they_are_wanted_and_never_read() {
        let wanted = Installation {
            bootstrap_tokens: true,
            ..Installation::default()
        };
        let verbs = |service: Service, installation: &Installation| -> Vec<String> {
            let grants = service.grants(installation).into_iter();
            let rules = grants
                .filter(|grant| grant.namespace.as_deref() == Some("kube-system"))
                .flat_map(|grant| grant.rights)
                .map(|right| right.rule);
            rules
                .filter(|rule| {
                    rule.resources
                        .iter()
                        .flatten()
                        .any(|resource| resource == "secrets")
                })
                .flat_map(|rule| rule.verbs)
                .collect()
        };
        for service in Service::ALL {
            let expected: &[&str] = if service == Service::SecretSyncer {
                &["create"]
            } else {
                &[]
            };
            assert_eq!(verbs(service, &wanted), expected);
            assert!(verbs(service, &Installation::default()).is_empty());
        }
    }

    #[test]
    fn the_key_pair_of_webhooks_is_one_secret_by_name_and_of_one_service() {
        let installation = Installation {
            admission: Some(AdmissionObjects {
                secret: "pair".to_owned(),
                profiles: Some("profiles".to_owned()),
                machine_deployments: Some("pools".to_owned()),
            }),
            ..Installation::default()
        };
        for service in Service::ALL {
            let (with, without) = (
                service.grants(&installation),
                service.grants(&Installation::default()),
            );
            let rights = |grants: &[Grant]| -> Vec<Right> {
                grants.iter().flat_map(|grant| grant.rights.clone()).collect()
            };
            let mut more = rights(&with);
            more.retain(|right| !rights(&without).contains(right));
            let names: Vec<String> = more
                .iter()
                .flat_map(|right| right.rule.resource_names.clone().unwrap_or_default())
                .collect();
            let expected: &[&str] = match service {
                Service::SecretSyncer => &["pair", "profiles", "pools"],
                _ => &[],
            };
            assert_eq!(
                (names.len(), more.len()),
                (expected.len(), expected.len()),
                "{more:#?}"
            );
            for right in &more {
                let verbs: Vec<&str> = right.rule.verbs.iter().map(String::as_str).collect();
                assert!(
                    verbs == ["get", "update"] || verbs == ["get", "patch"],
                    "{verbs:?}"
                );
            }
        }
    }

    #[test]
    fn machine_deployments_are_patched_by_one_service_and_only_where_that_is_wanted() {
        let wanted = Installation {
            go_finalizers: true,
            ..Installation::default()
        };
        for service in Service::ALL {
            let rights = service.grants(&wanted).into_iter().flat_map(|grant| grant.rights);
            let on_pools = rights.map(|right| right.rule).filter(|rule| {
                rule.resources
                    .iter()
                    .flatten()
                    .any(|resource| resource == "machinedeployments")
            });
            let writes: Vec<String> = on_pools
                .flat_map(|rule| rule.verbs)
                .filter(|verb| !["get", "list", "watch"].contains(&verb.as_str()))
                .collect();
            let expected: &[&str] = if service == Service::OscController {
                &["patch"]
            } else {
                &[]
            };
            assert_eq!(writes, expected);
        }
    }

    #[test]
    fn no_service_writes_machine_deployments_or_reads_secrets_or_binds_roles_outside_its_namespace() {
        for grant in Service::ALL
            .into_iter()
            .flat_map(|service| service.grants(&Installation::default()))
        {
            for Right { rule, .. } in &grant.rights {
                let on = |name: &str| rule.resources.iter().flatten().any(|resource| resource == name);
                if on("machinedeployments") {
                    assert!(
                        rule.verbs
                            .iter()
                            .all(|verb| ["get", "list", "watch"].contains(&verb.as_str()))
                    );
                }
                if on("secrets") {
                    let place = (grant.cluster, grant.namespace.as_deref());
                    assert_eq!(place, (ClusterKind::Worker, Some(CLOUD_INIT_SETTINGS)));
                }
                let allows = |verb: &str| rule.verbs.iter().any(|other| other == verb);
                assert!(!allows("*") && !allows("escalate"));
                if allows("bind") {
                    // A Role grants nothing outside its namespace.
                    let place = (grant.cluster, grant.namespace.as_deref());
                    assert_eq!(place, (ClusterKind::Worker, Some(CLOUD_INIT_SETTINGS)));
                    assert_eq!(rule.resources.as_deref(), Some(&["roles".to_owned()][..]));
                }
            }
        }
    }
}
