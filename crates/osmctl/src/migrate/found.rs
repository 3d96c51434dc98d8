//! Finds the Deployments and webhook configurations of the upstream OSM, and those of OSM. `read` reads,
//! `sort` decides.

use anyhow::Result;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use osm_api::names;
use serde_json::{Value, json};

use super::pods;
use crate::cluster::{Object, Reader};

/// Name of the Deployment.
const CONTROLLER: &str = "operating-system-manager";

/// Name of the webhook's Deployment and Service.
pub const WEBHOOK: &str = "operating-system-manager-webhook";

/// What the chart of OSM writes on its objects.
const CHART_LABEL: &str = "/metadata/labels/helm.sh~1chart";
const CHART: &str = "operating-system-manager-";

/// What belongs to the upstream OSM.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub controller: Option<Object>,
    pub webhook: Option<Object>,
    /// Configurations all of whose webhooks call its Service.
    pub webhooks: Vec<Object>,
    /// Deployments of OSM itself.
    pub own_deployments: Vec<Object>,
    /// Names of those that another object manages, which would restore them.
    pub managed: Vec<String>,
    /// Why a person has to decide about an object.
    pub problems: Vec<String>,
}

/// What a Deployment of the upstream OSM is.
enum Part {
    Controller,
    Webhook,
}

/// Reads a cluster, and finds what belongs to the upstream OSM. `kept` are webhook configurations that a
/// person has decided to keep.
///
/// # Errors
/// A request that fails.
pub async fn read(reader: &Reader, namespace: &str, kept: &[String]) -> Result<Found> {
    let deployments = reader.objects::<Deployment>(Some(namespace)).await?;
    let mut webhooks = reader.objects::<ValidatingWebhookConfiguration>(None).await?;
    webhooks.extend(reader.objects::<MutatingWebhookConfiguration>(None).await?);
    Ok(sort(&deployments, &webhooks, namespace, kept))
}

/// Decides which objects belong to the upstream OSM.
pub fn sort(deployments: &[Object], webhooks: &[Object], namespace: &str, kept: &[String]) -> Found {
    let mut found = Found::default();
    for deployment in deployments {
        if deployment.text(CHART_LABEL).starts_with(CHART) {
            found.own_deployments.push(deployment.clone());
            continue;
        }
        let place = match part(deployment) {
            Some(Part::Controller) => &mut found.controller,
            Some(Part::Webhook) => &mut found.webhook,
            None => continue,
        };
        if let Some(other) = place {
            found.problems.push(format!(
                "{other} and {deployment} both look like the upstream OSM; delete the one that is not in use"
            ));
        } else {
            *place = Some(deployment.clone());
        }
    }
    for configuration in webhooks {
        match belongs(configuration, namespace, kept) {
            Ok(true) => found.webhooks.push(configuration.clone()),
            Ok(false) => {}
            Err(problem) => found.problems.push(problem),
        }
    }
    let objects = found
        .controller
        .iter()
        .chain(&found.webhook)
        .chain(&found.webhooks);
    let managed = objects.filter(|object| {
        let mut owners = object.items("/metadata/ownerReferences").iter();
        owners.any(|owner| owner.get("controller") == Some(&json!(true)))
    });
    found.managed = managed.map(ToString::to_string).collect();
    found
}

/// What a Deployment is by its programs, or else by its name; `None`: another one.
fn part(deployment: &Object) -> Option<Part> {
    let is_image = |one: &Value| {
        let image = one.get("image").and_then(Value::as_str).unwrap_or_default();
        let name = image.rsplit('/').next().unwrap_or_default();
        name.starts_with(CONTROLLER)
    };
    for container in pods::containers(deployment) {
        match pods::program(container).as_str() {
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

/// The container of the controller.
pub fn controller_container(deployment: &Object) -> Option<&Value> {
    let containers = pods::containers(deployment);
    let by_program = containers
        .iter()
        .find(|one| pods::program(one) == "osm-controller");
    let by_name = || {
        let is_it = |one: &&Value| one.get("name") == Some(&json!(CONTROLLER));
        containers.iter().find(is_it)
    };
    by_program.or_else(by_name)
}

/// Whether all webhooks of a configuration call the Service of the upstream OSM, or why a person has to
/// decide about it.
fn belongs(configuration: &Object, namespace: &str, kept: &[String]) -> Result<bool, String> {
    let webhooks = configuration.items("/webhooks");
    let calls = |webhook: &&Value| {
        let service = |field: &str| webhook.pointer(&format!("/clientConfig/service/{field}"));
        service("namespace") == Some(&json!(namespace)) && service("name") == Some(&json!(WEBHOOK))
    };
    let covers = |webhook: &Value| {
        let rules = webhook.get("rules").and_then(Value::as_array);
        let mut groups = rules
            .into_iter()
            .flatten()
            .filter_map(|rule| rule.get("apiGroups")?.as_array())
            .flatten();
        groups.any(|group| group == names::GROUP)
    };
    let calling = webhooks.iter().filter(calls).count();
    let mut clients = webhooks.iter().filter_map(|webhook| webhook.get("clientConfig"));
    let is_far = clients.clone().any(|client| {
        let url = client.get("url").and_then(Value::as_str);
        url.is_some_and(|url| url.contains(WEBHOOK))
    });
    let is_of_another = clients.any(|client| client.pointer("/service/name") == Some(&json!(WEBHOOK)));
    let name = configuration.name();
    match calling {
        0 if is_far => Err(format!(
            "{configuration} calls the upstream OSM in another cluster, as in a user cluster of KKP; select that cluster with \
             --context and --namespace, and this one with --worker-context"
        )),
        0 if is_of_another => Err(format!(
            "{configuration} belongs to an upstream OSM in another namespace, which covers all namespaces; migrate that one first"
        )),
        0 if webhooks.iter().any(covers) && !kept.iter().any(|kept| kept == name) => Err(format!(
            "{configuration} covers the group {}, but does not call the Service {WEBHOOK} in namespace {namespace}; \
             pass --keep-webhook {name} if it belongs to another program, and delete it otherwise",
            names::GROUP,
        )),
        0 => Ok(false),
        _ if calling == webhooks.len() => Ok(true),
        _ => Err(format!(
            "{configuration} contains webhooks of the upstream OSM and of another program; remove the former from it"
        )),
    }
}

#[cfg(test)]
pub mod fixtures {
    use super::*;

    pub const INSTALLERS: [(&str, &str); 3] = [
        (
            "deploy",
            include_str!("../../../../e2e/tests/fixtures/takeover/deploy.yaml"),
        ),
        (
            "kubeone",
            include_str!("../../../../e2e/tests/fixtures/takeover/kubeone.yaml"),
        ),
        (
            "machine-controller",
            include_str!("../../../../e2e/tests/fixtures/takeover/machine-controller.yaml"),
        ),
    ];

    /// The objects of a kind in a stream of manifests.
    fn of_kind<K: kube::Resource<DynamicType = ()>>(text: &str) -> Vec<Object> {
        let mut documents = osm_user_data::yaml::read(text).unwrap();
        documents.retain(|value| value["kind"] == K::kind(&()).as_ref());
        documents.into_iter().map(Object::new::<K>).collect()
    }

    /// What is found in a cluster with these manifests and further objects.
    pub fn found(text: &str, more: &[Object], kept: &[&str]) -> Found {
        let kept: Vec<String> = kept.iter().map(|name| (*name).to_owned()).collect();
        let mut webhooks = of_kind::<ValidatingWebhookConfiguration>(text);
        webhooks.extend(of_kind::<MutatingWebhookConfiguration>(text));
        webhooks.extend_from_slice(more);
        sort(&of_kind::<Deployment>(text), &webhooks, "kube-system", &kept)
    }
}

#[cfg(test)]
mod tests {
    use super::fixtures::{INSTALLERS, found};
    use super::*;

    #[test]
    fn the_deployments_and_configurations_of_each_installer_are_found() {
        for (installer, text) in INSTALLERS {
            let found = found(text, &[], &[]);
            assert_eq!(found.problems, Vec::<String>::new(), "{installer}");
            assert_eq!(
                found.webhooks.len(),
                text.matches("WebhookConfiguration").count(),
                "{installer}"
            );
            assert_eq!(found.controller.unwrap().name(), CONTROLLER);
            assert_eq!(found.webhook.unwrap().name(), WEBHOOK);
            // Under other names, by their programs.
            let renamed = text.replace("{name: operating-system-manager,", "{name: other,");
            assert_eq!(
                fixtures::found(&renamed, &[], &[]).controller.unwrap().name(),
                "other",
                "{installer}"
            );
        }
    }

    #[test]
    fn a_person_decides_about_configurations_that_may_belong_to_others() {
        let configuration = |services: &[&str]| {
            let webhook = |service: &&str| {
                json!({"name": "w.example", "rules": [{"apiGroups": [names::GROUP]}],
                    "clientConfig": {"service": {"namespace": "kube-system", "name": service}}})
            };
            let webhooks: Vec<Value> = services.iter().map(webhook).collect();
            let value = json!({"metadata": {"name": "theirs"}, "webhooks": webhooks});
            Object::new::<MutatingWebhookConfiguration>(value)
        };
        let cases: [(&[&str], &[&str], usize, &str); 4] = [
            (&[WEBHOOK, WEBHOOK], &[], 1, ""),
            (&[WEBHOOK, "policy"], &[], 0, "and of another program"),
            (&["policy"], &[], 0, "--keep-webhook theirs"),
            (&["policy"], &["theirs"], 0, ""),
        ];
        for (services, kept, number, problem) in cases {
            let found = found("", &[configuration(services)], kept);
            assert_eq!(found.webhooks.len(), number, "{services:?}");
            match problem {
                "" => assert!(found.problems.is_empty(), "{:?}", found.problems),
                _ => assert!(found.problems[0].contains(problem), "{:?}", found.problems),
            }
        }
    }

    #[test]
    fn webhooks_tell_of_an_upstream_osm_elsewhere() {
        let service = json!({"service": {"namespace": "elsewhere", "name": WEBHOOK}});
        let url =
            json!({"url": format!("https://{WEBHOOK}.cluster-a.svc.cluster.local./operatingsystemprofile")});
        for (client, expected) in [(service, "migrate that one first"), (url, "--worker-context")] {
            let webhooks = json!([{"rules": [{"apiGroups": [names::GROUP]}], "clientConfig": client}]);
            let value = json!({"metadata": {"name": "w"}, "webhooks": webhooks});
            let webhook = Object::new::<ValidatingWebhookConfiguration>(value);
            let problems = found("", &[webhook], &[]).problems;
            assert!(problems[0].contains(expected), "{problems:?}");
        }
    }

    #[test]
    fn deployments_of_the_chart_stay_and_managed_ones_are_named() {
        let deployment = |metadata: Value| Object::new::<Deployment>(json!({"metadata": metadata}));
        let of_chart =
            json!({"name": CONTROLLER, "labels": {"helm.sh/chart": "operating-system-manager-0.1.0"}});
        let managed = json!({"name": WEBHOOK, "ownerReferences": [{"controller": true}]});
        let found = sort(
            &[deployment(of_chart), deployment(managed)],
            &[],
            "kube-system",
            &[],
        );
        assert_eq!((found.own_deployments.len(), found.controller), (1, None));
        assert_eq!(found.managed, [format!("Deployment {WEBHOOK}")]);
    }
}
