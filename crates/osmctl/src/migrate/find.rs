//! What the Go implementation has left in a cluster. `read` reads lists, and `sort` decides which of their objects belong to it: by the
//! Deployments, and by what refers to them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use kube::api::ListParams;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use serde_json::{Value, json};

use super::kinds;
use crate::cluster::{Editor, Kind, Object};

/// Name of the Deployment, and of much else.
const CONTROLLER: &str = "operating-system-manager";
/// Name of the webhook's Deployment and Service.
const WEBHOOK: &str = "operating-system-manager-webhook";

/// Secret with the certificate of the webhook in the manifests of the Go implementation. That of KubeOne contains the name of the Deployment.
const CERTIFICATE_SECRET: &str = "webhook-server-cert";

/// The account whose token does not expire, its Role and its RoleBinding.
const GETTER: &str = "cloud-init-getter";

/// What the chart of OSM writes on its objects.
const CHART_LABEL: &str = "/metadata/labels/helm.sh~1chart";
const CHART: &str = "operating-system-manager-";

pub const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
const TOKEN_OF: &str = "/metadata/annotations/kubernetes.io~1service-account.name";

/// Lists of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub namespace: String,
    pub deployments: Vec<Object>,
    /// DaemonSets and StatefulSets, which belong to others.
    pub workloads: Vec<Object>,
    /// Of both kinds.
    pub webhooks: Vec<Object>,
    pub services: Vec<Object>,
    pub budgets: Vec<Object>,
    pub accounts: Vec<Object>,
    /// Certificates and Issuers.
    pub certificates: Vec<Object>,
    /// Of all namespaces and of the cluster.
    pub bindings: Vec<Object>,
    pub roles: Vec<Object>,
    /// Metadata of Secrets in the namespace of the installation.
    pub secrets: Vec<Object>,
    /// `cloud-init-getter`: ServiceAccount, Role and RoleBinding.
    pub getter: Vec<Object>,
    /// Metadata of Secrets with non-expiring tokens, in `cloud-init-settings` and in the namespace of the installation.
    pub tokens: Vec<Object>,
    /// Metadata of Secrets in `cloud-init-settings` that OSM does not own.
    pub user_data: Vec<Object>,
    /// MachineDeployments of all namespaces.
    pub pools: Vec<Object>,
    /// OperatingSystemConfigs in the namespace of the installation.
    pub configs: Vec<Object>,
}

/// What belongs to the Go implementation.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub controller: Option<Object>,
    pub webhook: Option<Object>,
    /// Configurations all of whose webhooks call its Service.
    pub webhooks: Vec<Object>,
    /// The Services behind them.
    pub services: Vec<String>,
    /// What can go once OSM runs, in the order of deletion. The Deployments are among it.
    pub leftovers: Vec<Object>,
    /// The token of `cloud-init-getter`, and what gives it its permissions, in the order of deletion.
    pub tokens: Vec<Object>,
    /// Generated user data.
    pub user_data: Vec<Object>,
    /// Deployments of OSM itself.
    pub own_deployments: Vec<Object>,
    /// Why a person has to decide about an object.
    pub problems: Vec<String>,
    /// What looks like the Go implementation's, and stays because another program uses it.
    pub kept: Vec<String>,
}

/// Reads everything that [`sort`] needs.
///
/// # Errors
/// A request that fails.
pub async fn read(editor: &Editor<'_>, namespace: &str, has_cert_manager: bool) -> Result<Seen> {
    let here = Some(namespace);
    let list = async |kind: Kind, namespace: Option<&str>| editor.list(kind, namespace).await;
    let mut seen = Seen {
        namespace: namespace.to_owned(),
        deployments: list(kinds::DEPLOYMENT, here).await?,
        workloads: list(kinds::DAEMON_SET, here).await?,
        webhooks: webhooks(editor).await?,
        services: list(kinds::SERVICE, here).await?,
        budgets: list(kinds::BUDGET, here).await?,
        accounts: list(kinds::ACCOUNT, here).await?,
        bindings: list(kinds::ROLE_BINDING, None).await?,
        roles: list(kinds::ROLE, None).await?,
        pools: list(kinds::POOL, None).await?,
        configs: list(kinds::CONFIG, here).await?,
        ..Seen::default()
    };
    if has_cert_manager {
        seen.certificates = list(kinds::CERTIFICATE, here).await?;
        seen.certificates.extend(list(kinds::ISSUER, here).await?);
    }
    seen.workloads.extend(list(kinds::STATEFUL_SET, here).await?);
    seen.bindings
        .extend(list(kinds::CLUSTER_ROLE_BINDING, None).await?);
    seen.roles.extend(list(kinds::CLUSTER_ROLE, None).await?);
    seen.secrets = editor
        .list_metadata(kinds::SECRET, namespace, ListParams::default())
        .await?;
    for kind in [kinds::ROLE_BINDING, kinds::ROLE, kinds::ACCOUNT] {
        seen.getter
            .extend(editor.get(kind, Some(CLOUD_INIT_SETTINGS), GETTER).await?);
    }
    let of_type = ListParams::default().fields(&format!("type={TOKEN_TYPE}"));
    for namespace in BTreeSet::from([namespace, CLOUD_INIT_SETTINGS]) {
        let tokens = editor
            .list_metadata(kinds::SECRET, namespace, of_type.clone())
            .await?;
        seen.tokens.extend(tokens.into_iter().map(as_token));
    }
    let not_ours = ListParams::default().labels(&format!("!{}", names::INSTALLATION));
    seen.user_data = editor
        .list_metadata(kinds::SECRET, CLOUD_INIT_SETTINGS, not_ours)
        .await?;
    Ok(seen)
}

/// All webhook configurations.
///
/// # Errors
/// A request that fails.
pub async fn webhooks(editor: &Editor<'_>) -> Result<Vec<Object>> {
    let mut all = editor.list(kinds::VALIDATING, None).await?;
    all.extend(editor.list(kinds::MUTATING, None).await?);
    Ok(all)
}

/// Whether kube-controller-manager writes a token into a Secret.
pub fn is_token(secret: &Object) -> bool {
    secret.kind == kinds::SECRET && secret.text("/type") == TOKEN_TYPE
}

/// The Secret of a token without the token: kube-controller-manager writes a new one into it.
pub fn as_token(mut secret: Object) -> Object {
    if let Some(fields) = secret.value.as_object_mut() {
        fields.shift_remove("data");
        fields.insert("type".to_owned(), json!(TOKEN_TYPE));
    }
    secret
}

#[derive(PartialEq)]
enum Part {
    Controller,
    Webhook,
}

/// Decides which objects belong to the Go implementation. `kept` are webhook configurations that a person has decided to keep.
pub fn sort(seen: &Seen, kept: &[String]) -> Found {
    let mut found = Found::default();
    for deployment in &seen.deployments {
        if is_of_chart(deployment) {
            found.own_deployments.push(deployment.clone());
            continue;
        }
        let place = match part(deployment) {
            Some(Part::Controller) => &mut found.controller,
            Some(Part::Webhook) => &mut found.webhook,
            None => continue,
        };
        if let Some(other) = place {
            let (other, one) = (other.to_string(), deployment.to_string());
            found.problems.push(format!(
                "{other} and {one} both look like the Go implementation; delete the one that is not in use"
            ));
        } else {
            *place = Some(deployment.clone());
        }
    }
    let deployments: Vec<Object> = found.controller.iter().chain(&found.webhook).cloned().collect();
    // What another program uses as well belongs to that program.
    let others = seen.deployments.iter().chain(&seen.workloads);
    let others: Vec<&Object> = others.filter(|other| !deployments.contains(other)).collect();
    found.services = services(seen, found.webhook.as_ref(), &others);
    sort_webhooks(seen, &mut found, kept);
    for object in deployments.iter().chain(&found.webhooks) {
        let managed = object.items("/metadata/ownerReferences");
        if managed
            .iter()
            .any(|owner| owner.get("controller") == Some(&json!(true)))
        {
            found.problems.push(format!(
                "{object} is managed by another object, which would restore it; clusters of KKP are not supported"
            ));
        }
    }
    let accounts = accounts(&deployments, &others);
    let bindings = bindings(seen, &accounts);
    let roles = roles(seen, &bindings);
    let certificates = seen.certificates.iter().filter(|object| is_named_so(object));
    let certificates: Vec<Object> = certificates.cloned().collect();
    let secrets = secrets(&deployments, &certificates);
    // cert-manager would create the Secret of a Certificate again.
    found.leftovers = certificates.clone();
    let (budgets, shared) = budgets(seen, &deployments, &others);
    found.kept.extend(shared.iter().map(|budget| {
        format!("{budget} is kept, because it is not only for the pods of the Go implementation")
    }));
    found.leftovers.extend(budgets);
    for service in named(&seen.services, |name| {
        found.services.iter().any(|known| known == name)
    }) {
        let selector = service.value.pointer("/spec/selector");
        if selector.is_none() || selects_only(selector, found.webhook.as_slice(), &others) {
            found.leftovers.push(service);
        } else {
            found.kept.push(format!(
                "{service} is kept, because it is not only for the pods of the Go implementation"
            ));
        }
    }
    found.leftovers.extend(deployments);
    found.leftovers.extend(bindings);
    found.leftovers.extend(roles);
    for account in named(&seen.accounts, |name| accounts.contains_key(name)) {
        match accounts.get(account.name()).copied().flatten() {
            None => found.leftovers.push(account),
            Some(other) => found.kept.push(format!(
                "{account} and its permissions are kept, because {other} uses the account as well"
            )),
        }
    }
    for secret in named(&seen.secrets, |name| secrets.contains(name)) {
        let mut users = others.iter().filter(|other| mentions(other, secret.name()));
        match users.next() {
            None => found.leftovers.push(secret),
            Some(other) => found
                .kept
                .push(format!("{secret} is kept, because {other} uses it as well")),
        }
    }
    // kube-controller-manager deletes the tokens of an account with it, and creates none for an account that does not exist.
    let of_accounts = seen.tokens.iter().filter(|secret| {
        secret.namespace() == Some(seen.namespace.as_str()) && is_free(&accounts, secret.text(TOKEN_OF))
    });
    found.leftovers.splice(..0, of_accounts.cloned());
    let is_getter =
        |secret: &&Object| secret.namespace() == Some(CLOUD_INIT_SETTINGS) && secret.text(TOKEN_OF) == GETTER;
    found.tokens = seen.tokens.iter().filter(is_getter).cloned().collect();
    found.tokens.extend(seen.getter.iter().cloned());
    let user_data = user_data(seen);
    found.user_data = named(&seen.user_data, |name| user_data.contains(name));
    found
}

/// Names of the Secrets with user data that the Go implementation has generated for MachineDeployments, and for configs whose MachineDeployment
/// is gone.
fn user_data(seen: &Seen) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut namespaces = BTreeSet::from([seen.namespace.as_str()]);
    for pool in &seen.pools {
        let namespace = pool.namespace().unwrap_or_default();
        namespaces.insert(namespace);
        names.insert(names::go_provisioning_secret_name(pool.name(), namespace));
        names.insert(names::go_kubelet_bootstrap_secret_name(pool.name(), namespace));
    }
    for config in &seen.configs {
        for namespace in &namespaces {
            let pool = config.name().strip_suffix(&names::config_name("", namespace));
            if let Some(pool) = pool.filter(|pool| !pool.is_empty()) {
                names.insert(names::go_provisioning_secret_name(pool, namespace));
                names.insert(names::go_kubelet_bootstrap_secret_name(pool, namespace));
            }
        }
    }
    names
}

/// Whether the chart of OSM has created an object.
fn is_of_chart(object: &Object) -> bool {
    object.text(CHART_LABEL).starts_with(CHART)
}

fn is_named_so(object: &Object) -> bool {
    object.name().contains(CONTROLLER) && !is_of_chart(object)
}

fn named(objects: &[Object], is_name: impl Fn(&str) -> bool) -> Vec<Object> {
    let is_it = |object: &&Object| is_name(object.name()) && !is_of_chart(object);
    objects.iter().filter(is_it).cloned().collect()
}

/// The words of a container's command line, with the variables that the container sets itself.
pub fn command_line(container: &Value) -> Vec<String> {
    let list = |field: &str| {
        let list = container.get(field).and_then(Value::as_array);
        list.map(Vec::as_slice).unwrap_or_default()
    };
    let variable = |variable: &Value| {
        let name = variable.get("name")?.as_str()?;
        Some((format!("$({name})"), variable.get("value")?.as_str()?.to_owned()))
    };
    let variables: Vec<(String, String)> = list("env").iter().filter_map(variable).collect();
    let words = list("command").iter().chain(list("args"));
    let with_variables = |word: &str| {
        let mut word = word.to_owned();
        for (reference, value) in &variables {
            word = word.replace(reference, value);
        }
        word
    };
    words.filter_map(Value::as_str).map(with_variables).collect()
}

fn program(container: &Value) -> String {
    let words = command_line(container);
    let path = words.first().map(String::as_str).unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

fn containers(deployment: &Object) -> &[Value] {
    deployment.items("/spec/template/spec/containers")
}

/// The container of the controller.
pub fn controller_container(deployment: &Object) -> Option<&Value> {
    let containers = containers(deployment);
    let by_program = containers.iter().find(|one| program(one) == "osm-controller");
    let by_name = || {
        let is_it = |one: &&Value| one.get("name") == Some(&json!(CONTROLLER));
        containers.iter().find(is_it)
    };
    by_program.or_else(by_name)
}

/// The ConfigMap and the key behind a file of a container.
pub fn mounted(deployment: &Object, container: &Value, path: &str) -> Option<(String, String)> {
    let text = |value: &Value, field: &str| value.get(field)?.as_str().map(str::to_owned);
    let mounts = container.get("volumeMounts").and_then(Value::as_array);
    mounts.into_iter().flatten().find_map(|mount| {
        let folder = text(mount, "mountPath")?;
        let file = match text(mount, "subPath") {
            Some(file) => Some(file).filter(|_| folder == path)?,
            None => path
                .strip_prefix(folder.trim_end_matches('/'))?
                .strip_prefix('/')?
                .to_owned(),
        };
        let volume = text(mount, "name")?;
        let volumes = deployment.items("/spec/template/spec/volumes");
        let volume = volumes
            .iter()
            .find(|one| text(one, "name").as_ref() == Some(&volume))?;
        let map = volume.get("configMap")?;
        let items = map.get("items").and_then(Value::as_array);
        let key = match items {
            Some(items) => items
                .iter()
                .find(|item| text(item, "path").as_ref() == Some(&file))
                .and_then(|item| text(item, "key"))?,
            None => file,
        };
        Some((text(map, "name")?, key))
    })
}

fn part(deployment: &Object) -> Option<Part> {
    let is_image = |one: &Value| {
        let image = one.get("image").and_then(Value::as_str).unwrap_or_default();
        image
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .starts_with(CONTROLLER)
    };
    for container in containers(deployment) {
        match program(container).as_str() {
            "osm-controller" => return Some(Part::Controller),
            "webhook" if is_image(container) => return Some(Part::Webhook),
            _ => {}
        }
    }
    match deployment.name() {
        CONTROLLER => Some(Part::Controller),
        WEBHOOK => Some(Part::Webhook),
        _ => None,
    }
}

/// Whether a selector of labels selects the pods of a Deployment.
fn selects(selector: Option<&Value>, deployment: &Object) -> bool {
    let labels = deployment.value.pointer("/spec/template/metadata/labels");
    match selector.and_then(Value::as_object) {
        Some(selector) if !selector.is_empty() => selector
            .iter()
            .all(|(key, value)| labels.is_some_and(|labels| labels.get(key) == Some(value))),
        _ => false,
    }
}

/// Whether a selector of labels selects the pods of one of `ours`, and of none of `others`.
fn selects_only(selector: Option<&Value>, ours: &[Object], others: &[&Object]) -> bool {
    ours.iter().any(|one| selects(selector, one)) && !others.iter().any(|one| selects(selector, one))
}

/// Names of the Services of the webhook. The usual name is among them even if the Service is gone.
fn services(seen: &Seen, webhook: Option<&Object>, others: &[&Object]) -> Vec<String> {
    let mut names = vec![WEBHOOK.to_owned()];
    for service in seen.services.iter().filter(|service| !is_of_chart(service)) {
        let selector = service.value.pointer("/spec/selector");
        if selects_only(
            selector,
            webhook.map(std::slice::from_ref).unwrap_or_default(),
            others,
        ) && service.name() != WEBHOOK
        {
            names.push(service.name().to_owned());
        }
    }
    names
}

/// Whether a webhook calls one of these Services.
fn calls(webhook: &Value, namespace: &str, services: &[String]) -> bool {
    let service = |field: &str| webhook.pointer(&format!("/clientConfig/service/{field}"));
    service("namespace") == Some(&json!(namespace))
        && service("name").is_some_and(|name| services.iter().any(|known| name == known.as_str()))
}

/// Whether any webhook of a configuration calls one of these Services.
pub fn calls_any(configuration: &Object, namespace: &str, services: &[String]) -> bool {
    let webhooks = configuration.items("/webhooks");
    webhooks.iter().any(|webhook| calls(webhook, namespace, services))
}

fn sort_webhooks(seen: &Seen, found: &mut Found, kept: &[String]) {
    let covers = |webhook: &Value| {
        let rules = webhook.get("rules").and_then(Value::as_array);
        let groups = rules
            .into_iter()
            .flatten()
            .filter_map(|rule| rule.get("apiGroups")?.as_array());
        groups.flatten().any(|group| group == names::GROUP)
    };
    for configuration in &seen.webhooks {
        let webhooks = configuration.items("/webhooks");
        let calling = webhooks
            .iter()
            .filter(|webhook| calls(webhook, &seen.namespace, &found.services))
            .count();
        let name = configuration.name();
        if calling > 0 && calling == webhooks.len() {
            found.webhooks.push(configuration.clone());
        } else if calling > 0 {
            found.problems.push(format!(
                "{configuration} contains webhooks of the Go implementation and of another program; remove the former from it"
            ));
        } else if webhooks.iter().any(covers) && !kept.iter().any(|kept| kept == name) {
            found.problems.push(format!(
                "{configuration} covers the group {}, but does not call a Service of the Go implementation in namespace {}; \
                 pass --keep-webhook {name} if it belongs to another program, and delete it otherwise",
                names::GROUP,
                seen.namespace,
            ));
        }
    }
}

/// Accounts of the Go implementation, each with another program that uses it as well.
type Accounts<'o> = BTreeMap<String, Option<&'o Object>>;

fn accounts<'o>(deployments: &[Object], others: &[&'o Object]) -> Accounts<'o> {
    const ACCOUNT: &str = "/spec/template/spec/serviceAccountName";
    let named = deployments.iter().map(|deployment| deployment.text(ACCOUNT));
    let named = named.filter(|name| !name.is_empty() && *name != "default");
    let with_user = |name: &str| {
        let user = others.iter().find(|other| other.text(ACCOUNT) == name);
        (name.to_owned(), user.copied())
    };
    named.chain([CONTROLLER, WEBHOOK]).map(with_user).collect()
}

/// Whether only the Go implementation uses an account.
fn is_free(accounts: &Accounts<'_>, name: &str) -> bool {
    accounts.get(name).is_some_and(Option::is_none)
}

/// Names of Secrets with the certificate of the webhook: those of Certificates, and those that a Deployment mounts whose names are the
/// installers'. Other Secrets that it mounts may contain credentials of a cloud.
fn secrets(deployments: &[Object], certificates: &[Object]) -> BTreeSet<String> {
    let volumes = deployments
        .iter()
        .flat_map(|deployment| deployment.items("/spec/template/spec/volumes"));
    let mounted = volumes.filter_map(|volume| volume.pointer("/secret/secretName")?.as_str());
    let mounted = mounted.filter(|name| *name == CERTIFICATE_SECRET || name.contains(CONTROLLER));
    let of_certificates = certificates.iter().map(|object| object.text("/spec/secretName"));
    mounted.chain(of_certificates).map(str::to_owned).collect()
}

/// Whether any text of the pods of a workload is this name.
fn mentions(workload: &Object, name: &str) -> bool {
    fn is_in(value: &Value, name: &str) -> bool {
        match value {
            Value::String(text) => text == name,
            Value::Array(items) => items.iter().any(|item| is_in(item, name)),
            Value::Object(fields) => fields.values().any(|field| is_in(field, name)),
            _ => false,
        }
    }
    workload
        .value
        .pointer("/spec/template/spec")
        .is_some_and(|spec| is_in(spec, name))
}

/// PodDisruptionBudgets for the pods of these Deployments alone, and those that look like them.
fn budgets(seen: &Seen, deployments: &[Object], others: &[&Object]) -> (Vec<Object>, Vec<Object>) {
    const LABELS: &str = "/spec/selector/matchLabels";
    let is_near = |budget: &&Object| {
        let selector = budget.value.pointer(LABELS);
        let selects = deployments.iter().any(|deployment| selects(selector, deployment));
        (selects || [CONTROLLER, WEBHOOK].contains(&budget.name())) && !is_of_chart(budget)
    };
    let is_ours = |budget: &Object| {
        let has_expressions = !budget.items("/spec/selector/matchExpressions").is_empty();
        !has_expressions && selects_only(budget.value.pointer(LABELS), deployments, others)
    };
    let near = seen.budgets.iter().filter(is_near).cloned();
    near.partition(is_ours)
}

/// Bindings that give permissions to these accounts alone.
fn bindings(seen: &Seen, accounts: &Accounts<'_>) -> Vec<Object> {
    let is_account = |subject: &Value, namespace: &str| {
        let text = |field: &str| subject.get(field).and_then(Value::as_str).unwrap_or_default();
        let place = Some(text("namespace")).filter(|place| !place.is_empty());
        text("kind") == "ServiceAccount"
            && place.unwrap_or(namespace) == seen.namespace
            && is_free(accounts, text("name"))
    };
    let is_it = |binding: &&Object| {
        let subjects = binding.items("/subjects");
        let namespace = binding.namespace().unwrap_or_default();
        !subjects.is_empty()
            && subjects.iter().all(|subject| is_account(subject, namespace))
            && !is_of_chart(binding)
    };
    seen.bindings.iter().filter(is_it).cloned().collect()
}

/// Roles with the name of the Go implementation that only these bindings refer to.
fn roles(seen: &Seen, bindings: &[Object]) -> Vec<Object> {
    let refers = |binding: &Object, role: &Object| {
        let is_near = role.namespace().is_none() || role.namespace() == binding.namespace();
        binding.text("/roleRef/kind") == role.kind.kind
            && binding.text("/roleRef/name") == role.name()
            && is_near
    };
    let is_it = |role: &&Object| {
        let mut others = seen.bindings.iter().filter(|binding| !bindings.contains(binding));
        is_named_so(role)
            && bindings.iter().any(|binding| refers(binding, role))
            && !others.any(|other| refers(other, role))
    };
    seen.roles.iter().filter(is_it).cloned().collect()
}

/// What the migration restores an object from: without what the API server or a controller adds.
pub fn restorable(object: &Object) -> Value {
    let mut value = object.value.clone();
    if let Some(fields) = value.as_object_mut() {
        fields.shift_remove("status");
    }
    if let Some(metadata) = value.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        // An owner that is created again has another uid, and the garbage collector would delete what refers to the old one.
        for field in [
            "creationTimestamp",
            "generation",
            "managedFields",
            "ownerReferences",
            "resourceVersion",
            "selfLink",
            "uid",
        ] {
            metadata.shift_remove(field);
        }
        // For the same reason, kube-controller-manager would delete a token.
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.shift_remove("kubernetes.io/service-account.uid");
        }
    }
    if object.kind == kinds::SERVICE
        && let Some(spec) = value.pointer_mut("/spec").and_then(Value::as_object_mut)
    {
        for field in ["clusterIP", "clusterIPs"] {
            spec.shift_remove(field);
        }
    }
    value
}

#[cfg(test)]
pub mod fixtures {
    use super::*;

    /// The kind of a manifest in the fixtures.
    fn kind(name: &str) -> Kind {
        let mut read = [kinds::DAEMON_SET, kinds::STATEFUL_SET].into_iter();
        let found = kinds::find(name).or_else(|| read.find(|kind| kind.kind == name));
        found.unwrap_or_else(|| panic!("{name}"))
    }

    /// Objects of a stream of manifests.
    pub fn objects(text: &str) -> Vec<Object> {
        let documents = osm_render::yaml::read(text).unwrap();
        let objects = documents.into_iter().enumerate().map(|(i, mut value)| {
            value["metadata"]["uid"] = json!(format!("uid-{i}"));
            let kind = kind(value["kind"].as_str().unwrap());
            Object::new(kind, value)
        });
        objects.collect()
    }

    /// What a cluster with these objects in `kube-system` and others holds.
    pub fn seen(objects: Vec<Object>) -> Seen {
        let mut seen = Seen {
            namespace: "kube-system".to_owned(),
            ..Seen::default()
        };
        for object in objects {
            let list = match object.kind {
                kinds::DEPLOYMENT => &mut seen.deployments,
                kinds::DAEMON_SET | kinds::STATEFUL_SET => &mut seen.workloads,
                kinds::VALIDATING | kinds::MUTATING => &mut seen.webhooks,
                kinds::SERVICE => &mut seen.services,
                kinds::BUDGET => &mut seen.budgets,
                kinds::ACCOUNT => &mut seen.accounts,
                kinds::CERTIFICATE | kinds::ISSUER => &mut seen.certificates,
                kinds::ROLE | kinds::CLUSTER_ROLE => &mut seen.roles,
                kinds::ROLE_BINDING | kinds::CLUSTER_ROLE_BINDING => &mut seen.bindings,
                _ => &mut seen.secrets,
            };
            list.push(object);
        }
        seen
    }

    pub const INSTALLERS: [(&str, &str); 3] = [
        (
            "deploy",
            include_str!("../../../../tests/fixtures/takeover/deploy.yaml"),
        ),
        (
            "kubeone",
            include_str!("../../../../tests/fixtures/takeover/kubeone.yaml"),
        ),
        (
            "machine-controller",
            include_str!("../../../../tests/fixtures/takeover/machine-controller.yaml"),
        ),
    ];
}

#[cfg(test)]
mod tests {
    use super::fixtures::{INSTALLERS, objects, seen};
    use super::*;

    fn others() -> Vec<Object> {
        objects(
            r#"
apiVersion: v1
kind: Service
metadata: {name: dns, namespace: kube-system}
spec: {selector: {app: dns}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: dns, namespace: kube-system}
spec: {template: {metadata: {labels: {app: dns}}, spec: {containers: [{name: dns, image: registry.example/dns:1, command: [/webhook]}]}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: dns, namespace: kube-system}
spec: {selector: {matchLabels: {app: dns}}}
---
apiVersion: v1
kind: Secret
metadata: {name: cloud, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: shared}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: operating-system-manager, namespace: kube-system}, {kind: User, name: operator}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: view}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: policy}
webhooks:
  - name: policy.example
    rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]}]
    clientConfig: {service: {namespace: policy, name: policy}}
"#,
        )
    }

    #[test]
    fn everything_of_each_installer_is_found_and_nothing_else() {
        for (installer, text) in INSTALLERS {
            let theirs = objects(text);
            let mut all = theirs.clone();
            all.extend(others());
            let found = sort(&seen(all), &[]);
            assert_eq!(found.problems, Vec::<String>::new(), "{installer}");
            let mut names: Vec<String> = found
                .webhooks
                .iter()
                .chain(&found.leftovers)
                .map(ToString::to_string)
                .collect();
            names.sort();
            let mut expected: Vec<String> = theirs.iter().map(ToString::to_string).collect();
            expected.sort();
            assert_eq!(names, expected, "{installer}");
            assert_eq!(found.controller.unwrap().name(), CONTROLLER);
            assert_eq!(found.webhook.unwrap().name(), WEBHOOK);
        }
    }

    #[test]
    fn a_configuration_is_found_by_the_service_that_it_calls() {
        let (_, text) = INSTALLERS[0];
        // Another name everywhere: the Service selects the pods of the webhook.
        let text = text
            .replace("name: operating-system-manager-webhook", "name: osm-hooks")
            .replace("/usr/local/bin/webhook", "/webhook");
        let found = sort(&seen(objects(&text)), &[]);
        assert_eq!(found.webhook.as_ref().unwrap().name(), "osm-hooks");
        assert_eq!(found.services, [WEBHOOK, "osm-hooks"]);
        assert_eq!(found.webhooks.len(), 1);
        assert!(found.problems.is_empty(), "{:?}", found.problems);
    }

    #[test]
    fn a_person_decides_about_configurations_that_may_belong_to_others() {
        let configuration = |services: &[&str]| {
            let webhooks: Vec<Value> = services
                .iter()
                .map(|service| {
                    json!({"name": "w.example", "rules": [{"apiGroups": [names::GROUP]}],
                        "clientConfig": {"service": {"namespace": "kube-system", "name": service}}})
                })
                .collect();
            Object::new(
                kinds::MUTATING,
                json!({"metadata": {"name": "theirs"}, "webhooks": webhooks}),
            )
        };
        let cases: [(&[&str], &[&str], usize, &str); 4] = [
            (&[WEBHOOK, WEBHOOK], &[], 1, ""),
            (&[WEBHOOK, "policy"], &[], 0, "and of another program"),
            (&["policy"], &[], 0, "--keep-webhook theirs"),
            (&["policy"], &["theirs"], 0, ""),
        ];
        for (services, kept, number, problem) in cases {
            let kept: Vec<String> = kept.iter().map(|name| (*name).to_owned()).collect();
            let found = sort(&seen(vec![configuration(services)]), &kept);
            assert_eq!(found.webhooks.len(), number, "{services:?}");
            match problem {
                "" => assert!(found.problems.is_empty(), "{:?}", found.problems),
                _ => assert!(found.problems[0].contains(problem), "{:?}", found.problems),
            }
        }
    }

    #[test]
    fn objects_of_the_chart_and_shared_roles_stay() {
        let (_, text) = INSTALLERS[1];
        let mut all = objects(text);
        let mut chart = all[0].clone();
        chart.value["metadata"]["labels"] = json!({"helm.sh/chart": "operating-system-manager-0.1.0"});
        chart.value["spec"]["template"] = json!({"spec": {"serviceAccountName": "osm-osc-controller"}});
        all.push(chart);
        let binding = all
            .iter()
            .find(|object| object.kind == kinds::CLUSTER_ROLE_BINDING)
            .unwrap();
        let mut other = binding.clone();
        other.value["metadata"]["name"] = json!("other");
        other.value["subjects"] = json!([{"kind": "User", "name": "operator"}]);
        all.push(other);
        let found = sort(&seen(all), &[]);
        assert_eq!(found.own_deployments.len(), 1);
        let kinds_left: Vec<&str> = found.leftovers.iter().map(|object| object.kind.kind).collect();
        assert!(kinds_left.contains(&"ClusterRoleBinding") && !kinds_left.contains(&"ClusterRole"));
        assert!(!found.leftovers.iter().any(|object| object.name() == "other"));
    }

    #[test]
    fn what_another_program_uses_as_well_stays_and_is_reported() {
        let (_, text) = INSTALLERS[0];
        let budget = |name: &str, selector: Value| {
            Object::new(
                kinds::BUDGET,
                json!({"metadata": {"name": name, "namespace": "kube-system"}, "spec": {"selector": selector}}),
            )
        };
        for kind in [kinds::DEPLOYMENT, kinds::DAEMON_SET, kinds::STATEFUL_SET] {
            let other = Object::new(
                kind,
                json!({"metadata": {"name": "other", "namespace": "kube-system"}, "spec": {"template": {
                    "metadata": {"labels": {"app": WEBHOOK, "of": "other"}},
                    "spec": {"serviceAccountName": CONTROLLER, "containers": [{"name": "other", "envFrom": [
                        {"secretRef": {"name": CERTIFICATE_SECRET}}]}]}}}}),
            );
            let mut all = objects(text);
            all.push(other);
            all.extend([
                budget("shared", json!({"matchLabels": {"app": WEBHOOK}})),
                budget(CONTROLLER, json!({"matchLabels": {"app": "dns"}})),
                budget(
                    "more",
                    json!({"matchLabels": {"app": CONTROLLER}, "matchExpressions": [{"key": "of", "operator": "Exists"}]}),
                ),
                budget("own", json!({"matchLabels": {"app": CONTROLLER}})),
            ]);
            let found = sort(&seen(all), &[]);
            let left: Vec<String> = found.leftovers.iter().map(ToString::to_string).collect();
            let kept = [
                "Service kube-system/operating-system-manager-webhook".to_owned(),
                "ServiceAccount kube-system/operating-system-manager".to_owned(),
                "Secret kube-system/webhook-server-cert".to_owned(),
                "PodDisruptionBudget kube-system/shared".to_owned(),
                "PodDisruptionBudget kube-system/operating-system-manager".to_owned(),
                "PodDisruptionBudget kube-system/more".to_owned(),
            ];
            for one in kept {
                assert!(!left.contains(&one), "{one}: {left:?}");
                assert!(
                    found.kept.iter().any(|text| text.starts_with(&format!("{one} "))),
                    "{one}: {:?}",
                    found.kept
                );
            }
            assert!(
                !left
                    .iter()
                    .any(|one| one.contains("Role") || one.ends_with("/other")),
                "{left:?}"
            );
            assert!(
                left.contains(&"PodDisruptionBudget kube-system/own".to_owned()),
                "{left:?}"
            );
            assert!(
                left.contains(&"ServiceAccount kube-system/operating-system-manager-webhook".to_owned()),
                "{left:?}"
            );
        }
    }

    #[test]
    fn a_secret_is_deleted_for_its_use_and_not_for_its_name() {
        let (_, text) = INSTALLERS[0];
        let secrets = |all: Vec<Object>| -> Vec<String> {
            let found = sort(&seen(all), &[]);
            let secrets = found.leftovers.iter().filter(|one| one.kind == kinds::SECRET);
            secrets.map(|one| one.name().to_owned()).collect()
        };
        let mut all = objects(text);
        all.retain(|object| object.kind != kinds::CERTIFICATE);
        assert_eq!(secrets(all.clone()), [CERTIFICATE_SECRET]);
        for object in &mut all {
            if object.kind == kinds::DEPLOYMENT {
                object.value["spec"]["template"]["spec"]["volumes"] =
                    json!([{"name": "cloud", "secret": {"secretName": "cloud"}}]);
            }
        }
        all.extend(others());
        assert_eq!(secrets(all), Vec::<String>::new());
    }

    #[test]
    fn what_another_object_manages_is_not_migrated() {
        let (_, text) = INSTALLERS[0];
        let mut all = objects(text);
        all[0].value["metadata"]["ownerReferences"] =
            json!([{"kind": "Cluster", "name": "c", "controller": true}]);
        let found = sort(&seen(all), &[]);
        assert!(found.problems[0].contains("KKP"), "{:?}", found.problems);
    }

    #[test]
    fn tokens_are_found_by_their_account_and_user_data_by_its_name() {
        let secret = |namespace: &str, name: &str, account: &str| {
            as_token(Object::new(
                kinds::SECRET,
                json!({"metadata": {"name": name, "namespace": namespace,
                    "annotations": {"kubernetes.io/service-account.name": account}}}),
            ))
        };
        let named = |name: &str| {
            let metadata = json!({"name": name, "namespace": CLOUD_INIT_SETTINGS});
            Object::new(kinds::SECRET, json!({"metadata": metadata}))
        };
        let seen = Seen {
            namespace: "kube-system".to_owned(),
            tokens: vec![
                secret(CLOUD_INIT_SETTINGS, "a", GETTER),
                secret(CLOUD_INIT_SETTINGS, "b", "other"),
                secret("kube-system", "c", CONTROLLER),
                secret("kube-system", "d", "other"),
            ],
            user_data: vec![
                named("p-kube-system-provisioning-config"),
                named("kube-system-p-kubelet-bootstrap-config"),
                named("gone-kube-system-provisioning-config"),
                named("kube-system-gone-kubelet-bootstrap-config"),
                named("p-kube-system-bootstrap-config"),
                // Of someone else.
                named("billing-provisioning-config"),
                named("p-other-provisioning-config"),
                named("p-kube-system-kubelet-bootstrap-config"),
                named("-kube-system-provisioning-config"),
            ],
            pools: vec![Object::new(
                kinds::POOL,
                json!({"metadata": {"name": "p", "namespace": "kube-system"}}),
            )],
            configs: ["gone-kube-system-config", "-kube-system-config", "billing-config"]
                .map(|name| Object::new(kinds::CONFIG, json!({"metadata": {"name": name}})))
                .into(),
            ..Seen::default()
        };
        let found = sort(&seen, &[]);
        let names = |objects: &[Object]| {
            objects
                .iter()
                .map(|object| object.name().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&found.tokens), ["a"]);
        assert_eq!(names(&found.leftovers), ["c"]);
        assert_eq!(
            names(&found.user_data),
            [
                "p-kube-system-provisioning-config",
                "kube-system-p-kubelet-bootstrap-config",
                "gone-kube-system-provisioning-config",
                "kube-system-gone-kubelet-bootstrap-config",
            ]
        );
        assert!(found.tokens[0].value.get("data").is_none());
    }

    #[test]
    fn variables_of_the_container_are_filled_in() {
        let container = json!({"command": ["/osm-controller"], "args": ["-cluster-dns=$(DNS)", "-node-http-proxy=$(PROXY)"],
            "env": [{"name": "DNS", "value": "10.0.0.10"}, {"name": "PROXY", "valueFrom": {}}]});
        let words = [
            "/osm-controller",
            "-cluster-dns=10.0.0.10",
            "-node-http-proxy=$(PROXY)",
        ];
        assert_eq!(command_line(&container), words);
    }

    #[test]
    fn a_file_is_found_in_its_config_map() {
        let deployment = Object::new(
            kinds::DEPLOYMENT,
            json!({"spec": {"template": {"spec": {"volumes": [
                {"name": "ca", "configMap": {"name": "bundle"}},
                {"name": "items", "configMap": {"name": "other", "items": [{"key": "k", "path": "p"}]}},
                {"name": "secret", "secret": {"secretName": "s"}},
            ]}}}}),
        );
        let container = json!({"volumeMounts": [
            {"name": "ca", "mountPath": "/etc/ca/"},
            {"name": "items", "mountPath": "/items"},
            {"name": "ca", "mountPath": "/one.pem", "subPath": "x.pem"},
            {"name": "secret", "mountPath": "/secret"},
        ]});
        for (path, expected) in [
            ("/etc/ca/ca.pem", Some(("bundle", "ca.pem"))),
            ("/items/p", Some(("other", "k"))),
            ("/items/q", None),
            ("/one.pem", Some(("bundle", "x.pem"))),
            ("/secret/x", None),
            ("/etc/cacert", None),
        ] {
            let found = mounted(&deployment, &container, path);
            let expected = expected.map(|(map, key)| (map.to_owned(), key.to_owned()));
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn a_restored_object_lacks_what_the_api_server_adds() {
        let service = Object::new(
            kinds::SERVICE,
            json!({"metadata": {"name": "s", "uid": "u", "resourceVersion": "1", "managedFields": [], "labels": {"a": "b"},
                "ownerReferences": [{"uid": "v"}],
                "annotations": {"kubernetes.io/service-account.name": "a", "kubernetes.io/service-account.uid": "w"}},
                "spec": {"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"], "ports": []}, "status": {}}),
        );
        assert_eq!(
            restorable(&service),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "labels": {"a": "b"},
                "annotations": {"kubernetes.io/service-account.name": "a"}}, "spec": {"ports": []}})
        );
    }
}
