//! Checks at start that the service has every permission that it will need, so that a missing one shows at once and not
//! with the first renewal at night.

use std::time::Duration;

use crate::Api;
use crate::Cluster;
use crate::backoff::Backoff;
use crate::connection_role::ConnectionRole;
use crate::error::brief;
use crate::readiness::{ProblemGate, RIGHTS};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::PostParams;
use osm_api::rbac::{Grant, Installation, Service};

/// Pauses while rights are missing. At the very start they may just have been granted.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Reviews that are sent at the same time: one after the other they would take as long as the rest of the start.
const PARALLEL_REVIEWS: usize = 8;

/// Checks the rights in each cluster until all are granted. Readiness waits for that.
pub fn spawn(cluster: &Cluster) {
    let process = &cluster.process;
    for connection in cluster.connections() {
        let role = connection.role();
        let name = format!("{RIGHTS}{}", role.place());
        let gate = ProblemGate::new(cluster.gates.gate(&name), role.label());
        let questions = questions(process.service, &cluster.installation, role);
        let backoff = Backoff::new(&process.environment, FIRST_PAUSE, LONGEST_PAUSE);
        let (client, end) = (connection.client.clone(), cluster.shutdown.clone());
        cluster.supervisor().spawn(name, &cluster.shutdown, async move {
            end.run_until_cancelled(check(&client, &questions, gate, backoff))
                .await;
            // A task that ends before the process does counts as failed.
            end.cancelled().await;
        });
    }
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

/// Returns once the service has every right.
async fn check(
    client: &Client,
    questions: &[ResourceAttributes],
    mut gate: ProblemGate,
    mut backoff: Backoff,
) {
    loop {
        let problem = match missing(client, questions).await {
            Ok(missing) if missing.is_empty() => break,
            Ok(missing) => format!("missing: {}; apply the RBAC of this version", missing.join(", ")),
            Err(error) => format!("can't be checked yet: {}", brief(&error)),
        };
        gate.report(problem);
        tokio::time::sleep(backoff.failed()).await;
    }
    gate.resolve();
}

/// The rights that the API server does not grant. Each is asked for by itself: what a SelfSubjectRulesReview lists need not be complete.
async fn missing(client: &Client, questions: &[ResourceAttributes]) -> Result<Vec<String>, kube::Error> {
    let asked = questions.iter().cloned().map(|question| async move {
        let right = describe(&question);
        Ok::<_, kube::Error>((right, allowed(client, question).await?))
    });
    let answers: Vec<(String, bool)> = stream::iter(asked)
        .buffered(PARALLEL_REVIEWS)
        .try_collect()
        .await?;
    Ok(answers
        .into_iter()
        .filter_map(|(right, allowed)| (!allowed).then_some(right))
        .collect())
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
    // A namespace is in itself.
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
    use std::sync::Arc;

    use http::{Request, Response};
    use k8s_openapi::api::authorization::v1::SubjectAccessReviewStatus;
    use kube::client::Body;
    use parking_lot::Mutex;
    use tower::BoxError;

    use super::*;
    use crate::{Environment, Readiness};

    /// An API server that does not show what it grants, which is everything but this right.
    fn server(lacks: &Arc<Mutex<&'static str>>) -> Client {
        let lacks = lacks.clone();
        let fake = tower::service_fn(move |request: Request<Body>| {
            let lacks = lacks.clone();
            async move {
                let body = request.into_body().collect_bytes().await?;
                let Ok(mut review) = serde_json::from_slice::<SelfSubjectAccessReview>(&body) else {
                    return Ok(Response::builder().status(404).body(Body::empty())?);
                };
                let right = review.spec.resource_attributes.as_ref().map(describe);
                review.status = right.map(|right| SubjectAccessReviewStatus {
                    allowed: right != *lacks.lock(),
                    ..Default::default()
                });
                let answer = serde_json::to_vec(&review)?;
                Ok::<_, BoxError>(Response::new(Body::from(answer)))
            }
        });
        Client::new(fake, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_right_is_reported_until_it_is_granted() {
        let lacks = Arc::new(Mutex::new("create secrets in cloud-init-settings"));
        let readiness = Readiness::default();
        let gate = ProblemGate::new(readiness.gate(RIGHTS), "only");
        let questions = questions(
            Service::SecretSyncer,
            &Installation::default(),
            ConnectionRole::Only,
        );
        let backoff = Backoff::new(&Environment::default(), FIRST_PAUSE, LONGEST_PAUSE);
        let client = server(&lacks);
        let running = tokio::spawn(async move { check(&client, &questions, gate, backoff).await });
        tokio::time::sleep(LONGEST_PAUSE).await;
        assert_eq!(
            readiness.waiting(),
            ["rights: missing: create secrets in cloud-init-settings; apply the RBAC of this version"]
        );
        *lacks.lock() = "";
        tokio::time::sleep(LONGEST_PAUSE * 2).await;
        assert_eq!(readiness.waiting(), [""; 0]);
        running.await.unwrap();
    }

    #[test]
    fn every_right_of_the_table_is_asked_for() {
        let questions = questions(
            Service::SecretSyncer,
            &Installation::default(),
            ConnectionRole::Only,
        );
        let asked: Vec<String> = questions.iter().map(describe).collect();
        for right in [
            "create secrets in cloud-init-settings",
            "create serviceaccounts/token in cloud-init-settings",
            "patch operatingsystemconfigs/status in kube-system",
            "watch namespaces cloud-init-settings",
            "watch configmaps osm-settings in kube-system",
        ] {
            assert!(
                asked.iter().any(|asked| asked == right),
                "{right} missing in {asked:#?}"
            );
        }
    }
}
