//! Checks at start that the service may do what it will have to, rather than finding out at 3 a.m.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use osm_api::rbac::{Grant, Installation, Service};
use osm_api::settings::NodeBootstrapKind;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::readiness::Gate;
use crate::status::brief;
use crate::{Connection, Context, settings};

/// Pauses while rights are missing: at the very start they may just have been granted.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Questions to the API server at the same time.
const AT_A_TIME: usize = 8;
/// Of each question: one answer that is lost is not to cost all the others.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(200);

/// Checks the rights, in a task for each cluster, until they are all there, and again whenever a kubeconfig changes or the
/// settings ask for others; readiness waits for that.
pub fn spawn(context: &Context, settings: &settings::Receiver) {
    for connection in context.connections() {
        let check = Check {
            gate: context.readiness.gate(format!("rights{}", connection.part().place())),
            connection: connection.clone(),
            service: context.service,
            installation: context.installation.clone(),
            backoff: Backoff::new(&context.surroundings, FIRST_PAUSE, LONGEST_PAUSE),
        };
        tokio::spawn(check.run(settings.clone(), context.shutdown.clone()));
    }
}

/// The rights of the service in one cluster.
struct Check {
    gate: Gate,
    connection: Connection,
    service: Service,
    installation: Installation,
    backoff: Backoff,
}

impl Check {
    async fn run(mut self, mut settings: settings::Receiver, shutdown: CancellationToken) {
        let mut changes = self.connection.changes();
        let asked_for = self.installation.bootstrap_tokens;
        loop {
            changes.mark_unchanged();
            let wanted = settings.borrow_and_update().as_ref().is_some_and(|current| {
                current.settings.credentials.node_bootstrap.kind == NodeBootstrapKind::BootstrapToken
            });
            self.installation.bootstrap_tokens = asked_for || wanted;
            let again = if self.check().await {
                self.backoff.reset();
                Duration::MAX
            } else {
                self.backoff.failed()
            };
            let next = async {
                // Where nobody is left to tell of changes, time alone counts.
                tokio::select! {
                    Ok(()) = changes.changed() => {}
                    Ok(()) = settings.changed() => {}
                    () = tokio::time::sleep(again) => {}
                }
            };
            if shutdown.run_until_cancelled(next).await.is_none() {
                return;
            }
        }
    }

    /// The single rights that it is to have in this cluster, or in the other one.
    fn questions(&self, here: bool) -> Vec<ResourceAttributes> {
        let plays = self.connection.part().plays();
        let mut questions: Vec<ResourceAttributes> = Vec::new();
        let grants = self.service.grants(&self.installation);
        for grant in grants.iter().filter(|grant| plays.contains(&grant.cluster) == here) {
            let new: Vec<_> = attributes(grant).filter(|question| !questions.contains(question)).collect();
            questions.extend(new);
        }
        questions
    }

    async fn check(&self) -> bool {
        let cluster = self.connection.part().label();
        match missing(&self.connection.client, &self.questions(true)).await {
            Ok(missing) if missing.is_empty() => {
                self.gate.open();
                true
            }
            Ok(missing) => {
                let list = missing.join(", ");
                let swapped = if self.looks_swapped().await { SWAPPED } else { "" };
                tracing::error!(
                    cluster,
                    missing = list,
                    "rights are missing: apply the RBAC of this version{swapped}"
                );
                self.gate.close(format!("missing: {list}{swapped}"));
                false
            }
            Err(error) => {
                tracing::warn!(cluster, error = brief(&error), "rights can't be checked yet");
                self.gate.close(format!("can't be checked yet: {}", brief(&error)));
                false
            }
        }
    }

    /// Whether everything is granted here that belongs into the other cluster.
    async fn looks_swapped(&self) -> bool {
        let others = self.questions(false);
        let all = async || missing(&self.connection.client, &others).await.is_ok_and(|m| m.is_empty());
        !others.is_empty() && all().await
    }
}

const SWAPPED: &str = "; all that belongs into the other cluster is granted here: are --kubeconfig and --worker-cluster-kubeconfig swapped?";

async fn missing(client: &Client, questions: &[ResourceAttributes]) -> Result<Vec<String>, kube::Error> {
    // One after the other they would take as long as all the rest of a start.
    let asked: Vec<_> = questions
        .iter()
        .cloned()
        .map(|question| {
            let client = client.clone();
            async move { Ok::<_, kube::Error>((describe(&question), allowed(&client, question).await?)) }
        })
        .collect();
    let answers: Vec<(String, bool)> = stream::iter(asked).buffered(AT_A_TIME).try_collect().await?;
    Ok(answers.into_iter().filter_map(|(right, allowed)| (!allowed).then_some(right)).collect())
}

async fn allowed(client: &Client, attributes: ResourceAttributes) -> Result<bool, kube::Error> {
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..Default::default() };
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

/// Every single right of a grant, as a question.
fn attributes(grant: &Grant) -> impl Iterator<Item = ResourceAttributes> {
    grant.rights.iter().map(|right| &right.rule).flat_map(move |rule| {
        let group = rule.api_groups.iter().flatten().next();
        let names =
            rule.resource_names.as_ref().map_or_else(|| vec![None], |names| names.iter().map(Some).collect());
        rule.resources.iter().flatten().flat_map(move |resource| {
            let (resource, subresource) =
                resource.split_once('/').map_or((resource.as_str(), None), |(r, s)| (r, Some(s)));
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

/// `create secrets in cloud-init-settings`, as people and logs say it.
pub fn describe(attributes: &ResourceAttributes) -> String {
    let word = |text: &Option<String>| text.clone().unwrap_or_default();
    let subresource = attributes.subresource.as_deref().map(|s| format!("/{s}")).unwrap_or_default();
    let name = attributes.name.as_deref().map(|name| format!(" {name}")).unwrap_or_default();
    // A namespace is in itself.
    let inside =
        attributes.namespace.as_deref().filter(|_| attributes.resource.as_deref() != Some("namespaces"));
    let place = inside.map(|namespace| format!(" in {namespace}")).unwrap_or_default();
    format!("{} {}{subresource}{name}{place}", word(&attributes.verb), word(&attributes.resource))
}

#[cfg(test)]
mod tests {
    use super::*;
    use osm_api::rbac::{Installation, Service};

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
            assert!(asked.iter().any(|asked| asked == right), "{right} missing in {asked:#?}");
        }
    }
}
