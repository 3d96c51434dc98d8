//! Decides which objects of a cluster belong to the Go implementation. Pure.

use std::collections::BTreeSet;

use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use serde_json::json;

use super::marks::{
    CERTIFICATE_SECRET, CONTROLLER, GETTER, Part, WEBHOOK, is_named_so, is_of_chart, named, part,
};
use super::permissions::is_free;
use super::pods::{has_finished, mentions, selects, selects_only};
use super::seen::Seen;
use super::{configurations, permissions};
use crate::cluster::Object;

const TOKEN_OF: &str = "/metadata/annotations/kubernetes.io~1service-account.name";

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
    let others: Vec<&Object> = others
        .filter(|other| !deployments.contains(other) && !has_finished(other))
        .collect();
    found.services = configurations::services(seen, found.webhook.as_ref(), &others);
    let (webhooks, problems) = configurations::sort(seen, &found.services, kept);
    found.webhooks = webhooks;
    found.problems.extend(problems);
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
    let accounts = permissions::accounts(&deployments, &others);
    let bindings = permissions::bindings(seen, &accounts);
    let roles = permissions::roles(seen, &bindings);
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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::fixtures::{INSTALLERS, objects, seen};
    use super::*;
    use crate::cluster::Kind;
    use crate::migrate::kinds;
    use crate::migrate::restorable::as_token;

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

    /// A workload of another program that uses objects of the Go implementation.
    fn other(kind: Kind) -> Object {
        let template = json!({"template": {
            "metadata": {"labels": {"app": WEBHOOK, "of": "other"}},
            "spec": {"serviceAccountName": CONTROLLER, "containers": [{"name": "other", "envFrom": [
                {"secretRef": {"name": CERTIFICATE_SECRET}}]}]}}});
        let spec = match kind == kinds::CRON_JOB {
            true => json!({"schedule": "@daily", "jobTemplate": {"spec": template}}),
            false => template,
        };
        let metadata = json!({"name": "other", "namespace": "kube-system"});
        Object::new(kind, json!({"metadata": metadata, "spec": spec}))
    }

    #[test]
    fn a_job_that_has_finished_uses_nothing() {
        let (_, text) = INSTALLERS[0];
        let kept = |conditions: Value| -> Vec<String> {
            let mut job = other(kinds::JOB);
            job.value["status"] = json!({"conditions": conditions});
            let mut all = objects(text);
            all.push(job);
            sort(&seen(all), &[]).kept
        };
        for type_ in ["Complete", "Failed"] {
            assert!(kept(json!([{"type": type_, "status": "True"}])).is_empty());
            assert!(!kept(json!([{"type": type_, "status": "False"}])).is_empty());
        }
        let suspended = kept(json!([{"type": "Suspended", "status": "True"}]));
        let expected = "ServiceAccount kube-system/operating-system-manager and its permissions are kept, because Job kube-system/other uses";
        assert!(
            suspended.iter().any(|text| text.starts_with(expected)),
            "{suspended:?}"
        );
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
        for kind in [
            kinds::DEPLOYMENT,
            kinds::DAEMON_SET,
            kinds::STATEFUL_SET,
            kinds::CRON_JOB,
            kinds::JOB,
        ] {
            let other = other(kind);
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
}
