//! Checks that the CustomResourceDefinitions of the management cluster are not older than this program: the API server would drop what
//! they don't know, without a word.
//!
//! Once they have been mended, everything is listed anew: a watch that was opened before goes on for a while, and shows objects as the old
//! definitions cut them; taken up again afterwards, it would not show them once more.

use std::time::Duration;

use kube::CustomResourceExt;
use osm_api::rbac::Service;
use osm_api::{OperatingSystemConfig, OperatingSystemProfile, names};
use serde_json::Value;

use crate::Context;
use crate::status::{brief, is_code};

/// While they are too old, and once more after that: other API servers may learn of new definitions a little later.
const CHECK_AGAIN: Duration = Duration::from_secs(5);

/// While all is well: somebody may bring older ones back.
const CHECK_NOW_AND_THEN: Duration = Duration::from_secs(600);

const ADVICE: &str = "apply the CustomResourceDefinitions of this version";

/// How many fields a message names.
const NAMED: usize = 3;

/// Checks, in a task, whether they are all that this service needs; readiness waits for that. What the server publishes
/// about its kinds is for everybody who has an identity to read: no right on definitions is needed.
pub fn spawn(context: &Context) {
    let gate = context.readiness.gate("CustomResourceDefinitions");
    let (connection, service, shutdown) =
        (context.management.clone(), context.service, context.shutdown.clone());
    let relist = context.relist.clone();
    tokio::spawn(async move {
        let mut changes = connection.changes();
        let cluster = connection.part().label();
        let mut said = String::new();
        // Whether there was an answer by this kubeconfig; whether they were bad, or had just been mended, when last looked at.
        let (mut answered, mut bad, mut mended) = (false, false, false);
        loop {
            changes.mark_unchanged();
            let problem = match published(&connection.client).await {
                Ok(published) => Ok(problem(service, &published)),
                Err(error) if is_code(&error, 404) => Ok(Some(format!("missing: {ADVICE}"))),
                Err(error) => Err(format!("can't be checked yet: {}", brief(&error))),
            };
            answered |= problem.is_ok();
            let again = match problem {
                Ok(None) => {
                    gate.open();
                    said.clear();
                    if bad || mended {
                        tracing::info!(
                            cluster,
                            "CustomResourceDefinitions have been mended: everything is listed anew"
                        );
                        relist.now();
                    }
                    mended = std::mem::take(&mut bad);
                    if mended { CHECK_AGAIN } else { CHECK_NOW_AND_THEN }
                }
                // An API server that is away says nothing about them; the watches tell of that.
                Err(_) if answered => CHECK_AGAIN,
                Ok(Some(problem)) | Err(problem) => {
                    if said != problem {
                        tracing::error!(cluster, "CustomResourceDefinitions: {problem}");
                    }
                    gate.close(&problem);
                    said = problem;
                    bad |= answered;
                    CHECK_AGAIN
                }
            };
            let next = async {
                // Where nobody is left to tell of changes, time alone counts.
                tokio::select! {
                    Ok(()) = changes.changed() => answered = false,
                    () = tokio::time::sleep(again) => {}
                }
            };
            if shutdown.run_until_cancelled(next).await.is_none() {
                return;
            }
        }
    });
}

/// What the server says about the kinds of our group, by their names.
async fn published(client: &kube::Client) -> Result<Value, kube::Error> {
    let url = format!("/openapi/v3/apis/{}/v1alpha1", names::GROUP);
    let request = http::Request::get(url).body(Vec::new()).map_err(kube::Error::HttpError)?;
    let mut document: Value = client.request(request).await?;
    Ok(document.pointer_mut("/components/schemas").map(Value::take).unwrap_or_default())
}

/// What is missing, and what to do; `None` if nothing is.
fn problem(service: Service, published: &Value) -> Option<String> {
    let profiles = ("OperatingSystemProfile", OperatingSystemProfile::crd());
    let configs = ("OperatingSystemConfig", OperatingSystemConfig::crd());
    let needed = match service {
        Service::OspController => vec![profiles],
        Service::OscController => vec![profiles, configs],
        Service::SecretSyncer => vec![configs],
    };
    let mut missing = Vec::new();
    for (kind, crd) in needed {
        let served = published.as_object().and_then(|schemas| {
            let of_kind = |name: &&String| name.rsplit('.').next() == Some(kind);
            schemas.iter().find(|(name, _)| of_kind(name)).map(|(_, schema)| schema)
        });
        let ours = crd.spec.versions.first().and_then(|version| version.schema.as_ref());
        let ours = ours.and_then(|schema| serde_json::to_value(&schema.open_api_v3_schema).ok());
        match (served, ours) {
            (Some(served), Some(ours)) => lacks(kind, &ours, served, &mut missing),
            _ => missing.push(kind.to_owned()),
        }
    }
    if missing.is_empty() {
        return None;
    }
    let more = missing.len().saturating_sub(NAMED);
    missing.truncate(NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Some(format!("older than this version, they lack {}{more}: {ADVICE}", missing.join(", ")))
}

/// Collects the fields that `ours` has, and `served` has not and would drop.
fn lacks(path: &str, ours: &Value, served: &Value, missing: &mut Vec<String>) {
    let kept = served.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    for (name, field) in ours.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let path = format!("{path}.{name}");
        match served.get("properties").and_then(|fields| fields.get(name)) {
            Some(served) => lacks(&path, field, served, missing),
            None if kept || PUBLISHED_OTHERWISE.contains(&name.as_str()) => {}
            None => missing.push(path),
        }
    }
    for inner in ["items", "additionalProperties"] {
        if let (Some(ours), Some(served)) = (ours.get(inner), served.get(inner)) {
            lacks(path, ours, served, missing);
        }
    }
}

/// Fields of every object, which the server knows better.
const PUBLISHED_OTHERWISE: [&str; 3] = ["apiVersion", "kind", "metadata"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn published_by(
        crds: &[k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition],
    ) -> Value {
        let schema = |crd: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition| {
            let schema = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.clone();
            (format!("io.k8c.x.v1alpha1.{}", crd.spec.names.kind), serde_json::to_value(schema).unwrap())
        };
        crds.iter().map(schema).collect::<serde_json::Map<_, _>>().into()
    }

    #[test]
    fn those_of_this_version_lack_nothing_and_each_service_looks_at_its_own() {
        let (profiles, configs) = (OperatingSystemProfile::crd(), OperatingSystemConfig::crd());
        let all = published_by(&[profiles.clone(), configs]);
        for service in Service::ALL {
            assert_eq!(problem(service, &all), None);
        }
        let half = published_by(&[profiles]);
        assert_eq!(problem(Service::OspController, &half), None);
        for service in [Service::OscController, Service::SecretSyncer] {
            let problem = problem(service, &half).unwrap();
            assert!(problem.contains("OperatingSystemConfig") && problem.ends_with(ADVICE), "{problem}");
        }
    }

    #[test]
    fn a_field_that_would_be_dropped_is_named() {
        let ours = json!({"properties": {
            "metadata": {}, "spec": {"properties": {"list": {"items": {"properties": {"new": {}}}}}},
            "status": {"properties": {"accepted": {}}}}});
        let mut missing = Vec::new();
        let old = json!({"properties": {"spec": {"properties": {"list": {"items": {"properties": {}}}}}}});
        lacks("Kind", &ours, &old, &mut missing);
        assert_eq!(missing, ["Kind.spec.list.new", "Kind.status"]);
        missing.clear();
        let open = json!({"properties": {"spec": {"x-kubernetes-preserve-unknown-fields": true}, "status": {"properties": {"accepted": {}}}}});
        lacks("Kind", &ours, &open, &mut missing);
        assert!(missing.is_empty(), "{missing:?}");
    }
}
