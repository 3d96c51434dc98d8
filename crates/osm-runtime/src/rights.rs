//! Checks at start that the service may do what it will have to, rather than finding out at 3 a.m.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use osm_api::rbac::Grant;

use crate::Context;
use crate::status::brief;

const CHECK_AGAIN: Duration = Duration::from_secs(15);

/// Checks the rights in a task of its own, until they are all there; readiness waits for that.
pub fn spawn(context: &Context) {
    let gate = context.readiness.gate("rights");
    let (client, shutdown) = (context.client.clone(), context.shutdown.clone());
    let grants = context.service.grants(&context.installation);
    tokio::spawn(async move {
        loop {
            match missing(&client, &grants).await {
                Ok(missing) if missing.is_empty() => return gate.open(),
                Ok(missing) => {
                    let list = missing.join(", ");
                    tracing::error!(missing = list, "rights are missing: apply the RBAC of this version");
                    gate.close(format!("missing: {list}"));
                }
                Err(error) => {
                    tracing::warn!(error = brief(&error), "rights can't be checked yet");
                    gate.close("the API server has not answered yet");
                }
            }
            if shutdown.run_until_cancelled(tokio::time::sleep(CHECK_AGAIN)).await.is_none() {
                return;
            }
        }
    });
}

async fn missing(client: &Client, grants: &[Grant]) -> Result<Vec<String>, kube::Error> {
    let mut missing = Vec::new();
    for grant in grants {
        for attributes in attributes(grant) {
            if !allowed(client, attributes.clone()).await? {
                missing.push(describe(&attributes));
            }
        }
    }
    Ok(missing)
}

async fn allowed(client: &Client, attributes: ResourceAttributes) -> Result<bool, kube::Error> {
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..Default::default() };
    let answer = Api::all(client.clone()).create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Every single right of a grant, as a question.
fn attributes(grant: &Grant) -> impl Iterator<Item = ResourceAttributes> {
    grant.rules.iter().flat_map(move |rule| {
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
    let place =
        attributes.namespace.as_deref().map(|namespace| format!(" in {namespace}")).unwrap_or_default();
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
