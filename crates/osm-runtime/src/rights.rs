//! Checks at start that the service has every permission that it will need, so that a missing one shows at once and not
//! with the first renewal at night.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::Api;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, ResourceRule, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
    SelfSubjectRulesReview, SelfSubjectRulesReviewSpec,
};
use kube::Client;
use kube::api::PostParams;
use osm_api::rbac::{ClusterKind, Grant, Installation, Service};
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::connection_role::ConnectionRole;
use crate::error::brief;
use crate::readiness::{ProblemGate, RIGHTS};
use crate::{Cluster, Connection};

/// Pauses while rights are missing. At the very start they may just have been granted.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Reviews that are sent at the same time: one after the other they would take as long as the rest of the start.
const PARALLEL_REVIEWS: usize = 8;
/// Attempts for each review, so that one lost answer does not cost all the others.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(200);

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

    /// Every single right that the service needs in this cluster (`here`), or in the other one.
    fn questions(&self, here: bool) -> Vec<ResourceAttributes> {
        let kinds = self.connection.role().kinds();
        let mut questions: Vec<ResourceAttributes> = Vec::new();
        let grants = self.service.grants(&self.installation);
        for grant in grants
            .iter()
            .filter(|grant| kinds.contains(&grant.cluster) == here)
        {
            let new: Vec<_> = attributes(grant)
                .filter(|question| !questions.contains(question))
                .collect();
            questions.extend(new);
        }
        questions
    }

    /// Returns whether the service has every right.
    async fn check(&mut self) -> bool {
        let problem = match missing(&self.connection.client, &self.questions(true)).await {
            Ok(missing) if missing.is_empty() => {
                self.gate.resolve();
                return true;
            }
            Ok(missing) => {
                let swapped = match self.connection.role() {
                    ConnectionRole::Of(ClusterKind::Management | ClusterKind::Worker)
                        if self.looks_swapped().await =>
                    {
                        SWAPPED
                    }
                    _ => "",
                };
                format!(
                    "missing: {}; apply the RBAC of this version{swapped}",
                    missing.join(", ")
                )
            }
            Err(error) => format!("can't be checked yet: {}", brief(&error)),
        };
        self.gate.report(problem);
        false
    }

    /// Whether this cluster grants everything that belongs to the other one.
    async fn looks_swapped(&self) -> bool {
        let others = self.questions(false);
        let all = async || {
            missing(&self.connection.client, &others)
                .await
                .is_ok_and(|m| m.is_empty())
        };
        !others.is_empty() && all().await
    }
}

const SWAPPED: &str = ". This cluster grants all rights that belong to the other one: are --kubeconfig and --worker-cluster-kubeconfig swapped?";

/// The rights that the API server does not grant. One review for each namespace shows nearly all that are granted; the others are asked
/// for one by one.
async fn missing(client: &Client, questions: &[ResourceAttributes]) -> Result<Vec<String>, kube::Error> {
    let namespaces: BTreeSet<_> = questions
        .iter()
        .filter_map(|question| question.namespace.clone())
        .collect();
    let reviewed = stream::iter(namespaces).map(|namespace| async move {
        let rules = rules(client, &namespace).await;
        (namespace, rules)
    });
    let rules: BTreeMap<_, _> = reviewed.buffered(PARALLEL_REVIEWS).collect().await;
    let is_shown = |question: &&ResourceAttributes| {
        let rules = question
            .namespace
            .as_ref()
            .and_then(|namespace| rules.get(namespace));
        rules.into_iter().flatten().any(|rule| grants(rule, question))
    };
    let asked: Vec<_> = questions
        .iter()
        .filter(|question| !is_shown(question))
        .cloned()
        .map(|question| {
            let client = client.clone();
            async move { Ok::<_, kube::Error>((describe(&question), allowed(&client, question).await?)) }
        })
        .collect();
    let answers: Vec<(String, bool)> = stream::iter(asked)
        .buffered(PARALLEL_REVIEWS)
        .try_collect()
        .await?;
    Ok(answers
        .into_iter()
        .filter_map(|(right, allowed)| (!allowed).then_some(right))
        .collect())
}

/// What the service may do in a namespace, as far as the API server shows that. An authorizer need not be able to, so that an error or an
/// incomplete answer means nothing.
async fn rules(client: &Client, namespace: &str) -> Vec<ResourceRule> {
    let review = SelfSubjectRulesReview {
        spec: SelfSubjectRulesReviewSpec {
            namespace: Some(namespace.to_owned()),
        },
        ..Default::default()
    };
    let reviews: Api<SelfSubjectRulesReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await;
    let status = answer.ok().and_then(|answer| answer.status);
    status.map(|status| status.resource_rules).unwrap_or_default()
}

/// Whether a rule grants a right, as the RBAC authorizer decides.
fn grants(rule: &ResourceRule, right: &ResourceAttributes) -> bool {
    let has = |values: &[String], value: &str| values.iter().any(|found| found == "*" || found == value);
    let (resource, group) = (right.resource.as_deref(), right.group.as_deref());
    let resource = resource.unwrap_or_default();
    let is_of_resource = |resources: &[String]| match &right.subresource {
        None => has(resources, resource),
        Some(sub) => has(resources, &format!("{resource}/{sub}")) || has(resources, &format!("*/{sub}")),
    };
    let names = rule.resource_names.as_deref().unwrap_or_default();
    let is_of_name = names.is_empty() || right.name.as_ref().is_some_and(|name| names.contains(name));
    has(&rule.verbs, right.verb.as_deref().unwrap_or_default())
        && has(
            rule.api_groups.as_deref().unwrap_or_default(),
            group.unwrap_or_default(),
        )
        && is_of_resource(rule.resources.as_deref().unwrap_or_default())
        && is_of_name
}

async fn allowed(client: &Client, attributes: ResourceAttributes) -> Result<bool, kube::Error> {
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        ..Default::default()
    };
    let review = SelfSubjectAccessReview {
        spec,
        ..Default::default()
    };
    let (reviews, params) = (Api::all(client.clone()), PostParams::default());
    let mut attempts = 1..ATTEMPTS;
    loop {
        match reviews.create(&params, &review).await {
            Ok(answer) => return Ok(answer.status.is_some_and(|status| status.allowed)),
            Err(error) => match attempts.next() {
                Some(attempt) => tokio::time::sleep(PAUSE * attempt).await,
                None => return Err(error),
            },
        }
    }
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
            gate: ProblemGate::new(readiness.gates("").gate(RIGHTS), "only"),
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

    #[test]
    fn a_rule_grants_what_the_rbac_authorizer_would() {
        let list = |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
        let grants = |[verbs, groups, resources, names]: [&str; 4], right: &ResourceAttributes| {
            let rule = ResourceRule {
                verbs: list(verbs),
                api_groups: Some(if groups == "core" {
                    vec![String::new()]
                } else {
                    list(groups)
                }),
                resources: Some(list(resources)),
                resource_names: (!names.is_empty()).then(|| list(names)),
            };
            super::grants(&rule, right)
        };
        let secret = ResourceAttributes {
            verb: Some("get".into()),
            resource: Some("secrets".into()),
            name: Some("s".into()),
            ..Default::default()
        };
        let any = ResourceAttributes {
            name: None,
            ..secret.clone()
        };
        let token = ResourceAttributes {
            resource: Some("serviceaccounts".into()),
            subresource: Some("token".into()),
            name: None,
            ..secret.clone()
        };
        let config = ResourceAttributes {
            group: Some("g".into()),
            ..any.clone()
        };
        for (rule, right, expected) in [
            (["get list", "core", "secrets", ""], &secret, true),
            (["*", "*", "*", ""], &token, true),
            (["get", "core", "secrets", "s t"], &secret, true),
            (["get", "core", "secrets", "t"], &secret, false),
            (["get", "core", "secrets", "s"], &any, false),
            (["list", "core", "secrets", ""], &secret, false),
            (["get", "core", "secrets", ""], &config, false),
            (["get", "g", "secrets", ""], &config, true),
            (["get", "core", "serviceaccounts", ""], &token, false),
            (["get", "core", "serviceaccounts/token", ""], &token, true),
            (["get", "core", "*/token", ""], &token, true),
        ] {
            assert_eq!(grants(rule, right), expected, "{rule:?} {}", describe(right));
        }
    }
}
