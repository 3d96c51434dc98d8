//! How objects of the Go implementation, and of the chart of OSM, are named: by the installers, not by Kubernetes.

use serde_json::{Value, json};

use super::pods;
use crate::cluster::Object;

/// Name of the Deployment, and of much else.
pub(super) const CONTROLLER: &str = "operating-system-manager";
/// Name of the webhook's Deployment and Service.
pub(super) const WEBHOOK: &str = "operating-system-manager-webhook";

/// Secret with the certificate of the webhook in the manifests of the Go implementation. That of KubeOne contains the name of the Deployment.
pub(super) const CERTIFICATE_SECRET: &str = "webhook-server-cert";

/// The account whose token does not expire, its Role and its RoleBinding.
pub(super) const GETTER: &str = "cloud-init-getter";

/// What the chart of OSM writes on its objects.
const CHART_LABEL: &str = "/metadata/labels/helm.sh~1chart";
const CHART: &str = "operating-system-manager-";

/// What a Deployment of the Go implementation is.
pub(super) enum Part {
    Controller,
    Webhook,
}

/// What a Deployment is by its programs, or else by its name; `None`: another one.
pub(super) fn part(deployment: &Object) -> Option<Part> {
    let is_image = |one: &Value| {
        let image = one.get("image").and_then(Value::as_str).unwrap_or_default();
        image
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .starts_with(CONTROLLER)
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

/// Whether the chart of OSM has created an object.
pub(super) fn is_of_chart(object: &Object) -> bool {
    object.text(CHART_LABEL).starts_with(CHART)
}

/// Whether an object has the name of the Go implementation, and the chart of OSM has not created it.
pub(super) fn is_named_so(object: &Object) -> bool {
    object.name().contains(CONTROLLER) && !is_of_chart(object)
}

/// The objects with such names that the chart of OSM has not created.
pub(super) fn named(objects: &[Object], is_name: impl Fn(&str) -> bool) -> Vec<Object> {
    let is_it = |object: &&Object| is_name(object.name()) && !is_of_chart(object);
    objects.iter().filter(is_it).cloned().collect()
}
