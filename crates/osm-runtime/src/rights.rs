//! Checks at start that the service has every permission that it will need, so that a missing one shows at once and not
//! with the first renewal at night.

use std::time::Duration;

use crate::Api;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::PostParams;
use osm_api::rbac::{Grant, Installation, Service};
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::error::brief;
use crate::readiness::{ProblemGate, RIGHTS};
use crate::{Cluster, Connection};

/// Pauses while rights are missing. At the very start they may just have been granted.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Reviews that are sent at the same time: one after the other they would take as long as the rest of the start.
const PARALLEL_REVIEWS: usize = 8;

/// Checks the rights in each cluster until all are granted. Readiness waits for that.
pub fn spawn(cluster: &Cluster) {
    let process = &cluster.process;
    for connection in cluster.connections() {
        let check = Check {
            gate: {
                let role = connection.role();
                ProblemGate::new(
                    cluster.gates.gate(format!("{RIGHTS}{}", role.place())),
                    role.label(),
                )
            },
            connection: connection.clone(),
            service: process.service,
            installation: cluster.installation.clone(),
            backoff: Backoff::new(&process.environment, FIRST_PAUSE, LONGEST_PAUSE),
        };
        let what = format!("rights{}", connection.role().place());
        let run = check.run(cluster.shutdown.clone());
        cluster.supervisor().spawn(what, &cluster.shutdown, run);
    }
}

/// The rights of the service in one cluster.
struct Check {
    gate: ProblemGate,
    connection: Connection,
    service: Service,
    installation: Installation,
    backoff: Backoff,
}

impl Check {
    async fn run(mut self, shutdown: CancellationToken) {
        while !self.check().await {
            let pause = tokio::time::sleep(self.backoff.failed());
            if shutdown.run_until_cancelled(pause).await.is_none() {
                return;
            }
        }
        // A task that ends before the process does counts as failed.
        shutdown.cancelled().await;
    }

    /// Every single right that the service needs in this cluster.
    fn questions(&self) -> Vec<ResourceAttributes> {
        let kinds = self.connection.role().kinds();
        let mut questions: Vec<ResourceAttributes> = Vec::new();
        let grants = self.service.grants(&self.installation);
        for question in grants
            .iter()
            .filter(|grant| kinds.contains(&grant.cluster))
            .flat_map(attributes)
        {
            if !questions.contains(&question) {
                questions.push(question);
            }
        }
        questions
    }

    /// Returns whether the service has every right.
    async fn check(&mut self) -> bool {
        let problem = match missing(&self.connection.client, &self.questions()).await {
            Ok(missing) if missing.is_empty() => {
                self.gate.resolve();
                return true;
            }
            Ok(missing) => format!("missing: {}; apply the RBAC of this version", missing.join(", ")),
            Err(error) => format!("can't be checked yet: {}", brief(&error)),
        };
        self.gate.report(problem);
        false
    }
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
fn attributes(grant: &Grant) -> impl Iterator<Item = ResourceAttributes> {
    grant
        .rights
        .iter()
        .map(|right| &right.rule)
        .flat_map(move |rule| {
            let group = rule.api_groups.iter().flatten().next();
            let names = rule
                .resource_names
                .as_ref()
                .map_or_else(|| vec![None], |names| names.iter().map(Some).collect());
            rule.resources.iter().flatten().flat_map(move |resource| {
                let (resource, subresource) = resource
                    .split_once('/')
                    .map_or((resource.as_str(), None), |(r, s)| (r, Some(s)));
                let names = names.clone();
                rule.verbs.iter().flat_map(move |verb| {
                    names.clone().into_iter().map(move |name| ResourceAttributes {
                        group: group.cloned(),
                        resource: Some(resource.to_owned()),
                        subresource: subresource.map(str::to_owned),
                        verb: Some(verb.clone()),
                        namespace: grant.namespace.clone(),
                        name: name.cloned(),
                        ..Default::default()
                    })
                })
            })
        })
}

/// Such as `create secrets in cloud-init-settings`.
pub fn describe(attributes: &ResourceAttributes) -> String {
    let word = |text: &Option<String>| text.clone().unwrap_or_default();
    let subresource = attributes
        .subresource
        .as_deref()
        .map(|s| format!("/{s}"))
        .unwrap_or_default();
    let name = attributes
        .name
        .as_deref()
        .map(|name| format!(" {name}"))
        .unwrap_or_default();
    // A namespace is in itself.
    let inside = attributes
        .namespace
        .as_deref()
        .filter(|_| attributes.resource.as_deref() != Some("namespaces"));
    let place = inside
        .map(|namespace| format!(" in {namespace}"))
        .unwrap_or_default();
    format!(
        "{} {}{subresource}{name}{place}",
        word(&attributes.verb),
        word(&attributes.resource)
    )
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
    use crate::{Environment, Metrics, Readiness};

    /// An API server that does not show what it grants, which is everything but this right.
    fn server(lacks: &Arc<Mutex<&'static str>>) -> Connection {
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
        let client = Client::new(fake, "default");
        let (metrics, environment) = (Metrics::new().unwrap(), Environment::default());
        let clients = [client.clone(), client];
        let timeout = Duration::from_secs(10);
        Connection::by(Service::SecretSyncer, clients, &metrics, timeout, &environment)
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_right_is_reported_until_it_is_granted() {
        let lacks = Arc::new(Mutex::new("create secrets in cloud-init-settings"));
        let (readiness, shutdown) = (Readiness::default(), CancellationToken::new());
        let check = Check {
            gate: ProblemGate::new(readiness.gate(RIGHTS), "only"),
            connection: server(&lacks),
            service: Service::SecretSyncer,
            installation: Installation::default(),
            backoff: Backoff::new(&Environment::default(), FIRST_PAUSE, LONGEST_PAUSE),
        };
        let running = tokio::spawn(check.run(shutdown.clone()));
        tokio::time::sleep(LONGEST_PAUSE).await;
        assert_eq!(
            readiness.waiting(),
            ["rights: missing: create secrets in cloud-init-settings; apply the RBAC of this version"]
        );
        *lacks.lock() = "";
        tokio::time::sleep(LONGEST_PAUSE * 2).await;
        assert_eq!(readiness.waiting(), [""; 0]);
        assert!(!running.is_finished());
        shutdown.cancel();
        running.await.unwrap();
    }

    #[test]
    fn every_right_of_the_table_is_asked_for() {
        let asked: Vec<String> = Service::SecretSyncer
            .grants(&Installation::default())
            .iter()
            .flat_map(|grant| attributes(grant).map(|a| describe(&a)).collect::<Vec<_>>())
            .collect();
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
