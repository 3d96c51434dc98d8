//! The objects that give the services their rights in one cluster, in the form in which an API server takes
//! them. `osmctl fleet add` applies them to a user cluster, and the chart renders the same.

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::{Value, json};

use super::grant::ClusterKind;
use super::installation::Installation;
use super::service::Service;
use crate::definitions;
use crate::names::CLOUD_INIT_SETTINGS;

const RBAC: &str = "rbac.authorization.k8s.io";

/// Name of the identity that renews the kubeconfigs of a user cluster.
pub const RENEWAL: &str = "renewal";

/// How objects are named.
#[derive(Clone, Debug)]
pub struct Names {
    /// What the names of roles, bindings and policies begin with, such as `osm:NAMESPACE:RELEASE`.
    pub prefix: String,
    /// Namespace of the ServiceAccounts.
    pub namespace: String,
    /// What the names of the ServiceAccounts begin with.
    pub accounts: String,
}

impl Names {
    /// Those of a release of the chart.
    pub fn of_release(namespace: &str, release: &str) -> Self {
        Self {
            prefix: format!("osm:{namespace}:{release}"),
            namespace: namespace.to_owned(),
            accounts: format!("{release}-"),
        }
    }

    fn role(&self, name: &str) -> String {
        format!("{}:{name}", self.prefix)
    }

    /// Unlike the name of a role, that of a policy must not contain a colon.
    pub fn policy(&self, name: &str) -> String {
        self.role(name).replace(':', ".")
    }

    fn account(&self, of: &str) -> String {
        format!("{}{of}", self.accounts)
    }

    /// A ServiceAccount, as the API server names it to an admission policy.
    fn user(&self, of: &str) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.account(of))
    }
}

/// The objects for these services in a cluster that plays these parts, but for namespaces.
pub fn objects(
    names: &Names,
    installation: &Installation,
    parts: &[ClusterKind],
    services: &[Service],
) -> Vec<Value> {
    let mut objects = Vec::new();
    if parts.contains(&ClusterKind::Worker) {
        objects.push(of_pools(names, "node-bootstrapper", "system:node-bootstrapper"));
        objects.extend(requests_policy(names));
        objects.extend(bindings_policy(names));
    }
    objects.extend(leases_policy(names, services));
    for service in services {
        let name = service.name();
        let rules = service.rules(installation, parts);
        if !rules.is_empty() {
            objects.push(account(names, name));
        }
        for (namespace, rules) in rules {
            objects.extend(role(names, &names.role(name), name, namespace.as_deref(), &rules));
        }
    }
    objects
}

/// With static joining, kube-controller-manager approves the requests of all pools.
pub fn node_client(names: &Names) -> Value {
    of_pools(
        names,
        "node-client",
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
    )
}

/// The identity that requests the tokens of these services and its own.
pub fn renewal(names: &Names, services: &[Service]) -> Vec<Value> {
    let of = services.iter().map(|service| service.name()).chain([RENEWAL]);
    let rule = PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["serviceaccounts/token".to_owned()]),
        resource_names: Some(of.map(|of| names.account(of)).collect()),
        verbs: vec!["create".to_owned()],
        ..PolicyRule::default()
    };
    let (name, namespace) = (names.account(RENEWAL), Some(&*names.namespace));
    let [role, binding] = role(names, &name, RENEWAL, namespace, &[rule]);
    vec![account(names, RENEWAL), role, binding]
}

/// The tokens of all pools have this ClusterRole.
fn of_pools(names: &Names, name: &str, role: &str) -> Value {
    let group = format!("system:serviceaccounts:{CLOUD_INIT_SETTINGS}");
    json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": names.role(name)},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "Group", "apiGroup": RBAC, "name": group}]})
}

/// What ServiceAccounts of `cloud-init-settings` may ask for.
fn requests_policy(names: &Names) -> [Value; 2] {
    const SPEC: &str = include_str!("../../../../charts/operating-system-manager/files/requests-policy.yaml");
    policy(&names.policy("requests"), SPEC)
}

/// What secret-syncer may bind.
fn bindings_policy(names: &Names) -> [Value; 2] {
    const SPEC: &str = include_str!("../../../../charts/operating-system-manager/files/bindings-policy.yaml");
    let users = json!([names.user(Service::SecretSyncer.name())]).to_string();
    let spec = SPEC.replace("{users}", &users).replace("{groups}", "[]");
    policy(&names.policy("bindings"), &spec)
}

/// Which Leases each service may write.
fn leases_policy(names: &Names, services: &[Service]) -> [Value; 2] {
    const SPEC: &str = include_str!("../../../../charts/operating-system-manager/files/leases-policy.yaml");
    let services: Vec<Value> = services
        .iter()
        .map(|service| {
            let name = service.name();
            let mut leases = vec![format!("{name}-")];
            leases.extend((*service == Service::CsrApprover).then(|| "osm-join-".to_owned()));
            json!({"groups": [], "names": leases, "users": [names.user(name)]})
        })
        .collect();
    let spec = SPEC.replace("{services}", &json!(services).to_string());
    policy(&names.policy("leases"), &spec)
}

/// A policy with this specification, and its binding.
fn policy(name: &str, spec: &str) -> [Value; 2] {
    let api = "admissionregistration.k8s.io/v1";
    [
        json!({"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
            "spec": definitions::parse(spec)}),
        json!({"apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]}}),
    ]
}

/// Only the pods of a service mount its token.
fn account(names: &Names, of: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "automountServiceAccountToken": false,
        "metadata": {"name": names.account(of), "namespace": names.namespace}})
}

fn role(names: &Names, name: &str, of: &str, namespace: Option<&str>, rules: &[PolicyRule]) -> [Value; 2] {
    let kind = if namespace.is_some() {
        "Role"
    } else {
        "ClusterRole"
    };
    let mut metadata = json!({"name": name});
    if let (Some(namespace), Some(metadata)) = (namespace, metadata.as_object_mut()) {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
    let api = format!("{RBAC}/v1");
    [
        json!({"apiVersion": api, "kind": kind, "metadata": metadata, "rules": rules}),
        json!({"apiVersion": api, "kind": format!("{kind}Binding"), "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": names.account(of), "namespace": names.namespace}]}),
    ]
}
