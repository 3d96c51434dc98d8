//! Checks at start that the service has every permission that it will need, so that a missing one shows at
//! once and not with the first renewal at night.

use std::sync::Arc;

use futures::{StreamExt, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use osm_api::rbac::{Grant, Installation, Service};
use parking_lot::Mutex;

use crate::connection::Connection;
use crate::connection_role::ConnectionRole;
use crate::error::brief;
use crate::readiness::RIGHTS;
use crate::scope::Scope;
use crate::startup_check::{self, UNCHECKED};

/// Reviews that are sent at the same time: one after the other they would take as long as the rest of the
/// start.
const PARALLEL_REVIEWS: usize = 8;

/// Checks the rights in a cluster until all are granted. The readiness of `scope` waits for that.
pub fn spawn(scope: &Scope, connection: &Connection, installation: &Installation) {
    let role = connection.role();
    let client = connection.client.clone();
    let questions = questions(scope.process.service, installation, role);
    let questions = Arc::new(Mutex::new(questions));
    let check = move || {
        let (client, questions) = (client.clone(), questions.clone());
        async move { problem(&client, &questions).await }
    };
    startup_check::spawn(scope, format!("{RIGHTS}{}", role.place()), check);
}

/// Every single right that the service needs in this cluster.
fn questions(service: Service, installation: &Installation, role: ConnectionRole) -> Vec<ResourceAttributes> {
    let mut questions: Vec<ResourceAttributes> = Vec::new();
    let grants = service.grants(installation);
    let here = grants
        .iter()
        .filter(|grant| role.kinds().contains(&grant.cluster));
    for question in here.flat_map(attributes) {
        if !questions.contains(&question) {
            questions.push(question);
        }
    }
    questions
}

/// What is missing and what to do.
async fn problem(client: &Client, questions: &Mutex<Vec<ResourceAttributes>>) -> Option<String> {
    match missing(client, questions).await {
        Ok(missing) if missing.is_empty() => None,
        Ok(missing) => Some(format!(
            "missing: {}; apply the RBAC of this version",
            missing.join(", ")
        )),
        Err(error) => Some(format!("{UNCHECKED}: {}", brief(&error))),
    }
}

/// The rights that the API server does not grant. Each is asked for by itself: what a SelfSubjectRulesReview
/// lists need not be complete.
///
/// What is granted is not asked for again. Where one request in ten fails, dozens hardly ever succeed in a
/// row.
async fn missing(
    client: &Client,
    questions: &Mutex<Vec<ResourceAttributes>>,
) -> Result<Vec<String>, kube::Error> {
    let asked = questions.lock().clone().into_iter();
    let asked = asked.map(|question| async move { (allowed(client, question.clone()).await, question) });
    let mut answers = stream::iter(asked).buffered(PARALLEL_REVIEWS);
    let mut missing = Vec::new();
    while let Some((allowed, question)) = answers.next().await {
        if allowed? {
            questions.lock().retain(|other| *other != question);
        } else {
            missing.push(describe(&question));
        }
    }
    Ok(missing)
}

async fn allowed(client: &Client, attributes: ResourceAttributes) -> Result<bool, kube::Error> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..Default::default()
        },
        ..Default::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// One review for every verb, resource and name of a grant.
fn attributes(grant: &Grant) -> Vec<ResourceAttributes> {
    let mut all = Vec::new();
    for rule in grant.rights.iter().map(|right| &right.rule) {
        let names = rule.resource_names.as_ref();
        let names = names.map_or_else(|| vec![None], |names| names.iter().cloned().map(Some).collect());
        let resources = rule.resources.iter().flatten();
        for (resource, verb) in
            resources.flat_map(|resource| rule.verbs.iter().map(move |verb| (resource, verb)))
        {
            let (resource, subresource) = match resource.split_once('/') {
                Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
                None => (resource.as_str(), None),
            };
            all.extend(names.iter().map(|name| ResourceAttributes {
                group: rule.api_groups.iter().flatten().next().cloned(),
                resource: Some(resource.to_owned()),
                subresource: subresource.clone(),
                verb: Some(verb.clone()),
                namespace: grant.namespace.clone(),
                name: name.clone(),
                ..ResourceAttributes::default()
            }));
        }
    }
    all
}

/// Such as `create secrets in cloud-init-settings`.
pub fn describe(attributes: &ResourceAttributes) -> String {
    let word = |before: &str, text: &Option<String>| match text {
        Some(text) => format!("{before}{text}"),
        None => String::new(),
    };
    // For a Namespace, `namespace` is its own name, which would only repeat it.
    let place = match attributes.resource.as_deref() {
        Some("namespaces") => String::new(),
        _ => word(" in ", &attributes.namespace),
    };
    [
        word("", &attributes.verb),
        word(" ", &attributes.resource),
        word("/", &attributes.subresource),
        word(" ", &attributes.name),
        place,
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use k8s_openapi::api::authorization::v1::SubjectAccessReviewStatus;
    use kube::client::Body;
    use tower::BoxError;

    use super::*;

    /// An API server that does not show what it grants, which is everything but this right.
    fn server(lacks: &'static str) -> Client {
        let fake = tower::service_fn(move |request: Request<Body>| async move {
            let body = request.into_body().collect_bytes().await?;
            let Ok(mut review) = serde_json::from_slice::<SelfSubjectAccessReview>(&body) else {
                return Ok(Response::builder().status(404).body(Body::empty())?);
            };
            let right = review.spec.resource_attributes.as_ref().map(describe);
            review.status = right.map(|right| SubjectAccessReviewStatus {
                allowed: right != lacks,
                ..Default::default()
            });
            let answer = serde_json::to_vec(&review)?;
            Ok::<_, BoxError>(Response::new(Body::from(answer)))
        });
        Client::new(fake, "default")
    }

    #[tokio::test]
    async fn every_right_is_asked_for_and_one_that_is_not_granted_is_named() {
        let questions = questions(
            Service::SecretSyncer,
            &Installation::default(),
            ConnectionRole::Only,
        );
        let asked: Vec<String> = questions.iter().map(describe).collect();
        for right in [
            "create serviceaccounts/token in cloud-init-settings",
            "patch operatingsystemconfigs/status in kube-system",
            "watch namespaces cloud-init-settings",
            "watch configmaps osm-settings in kube-system",
        ] {
            assert!(asked.iter().any(|asked| asked == right), "{right}: {asked:#?}");
        }
        let (questions, right) = (Mutex::new(questions), "create secrets in cloud-init-settings");
        assert_eq!(
            problem(&server(right), &questions).await.unwrap(),
            format!("missing: {right}; apply the RBAC of this version")
        );
        let left: Vec<String> = questions.lock().iter().map(describe).collect();
        assert_eq!(left, [right]);
        assert_eq!(problem(&server(""), &questions).await, None);
    }
}
