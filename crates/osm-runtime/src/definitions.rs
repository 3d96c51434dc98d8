//! Checks at the start that the CustomResourceDefinitions of the management cluster are not older than this program. The API server
//! drops fields that they do not have, without any error.
//!
//! While they are, nothing new is rendered or published, and what is published is renewed. Once they are upgraded, every watch lists its
//! objects again: one that was opened before shows objects as the old definitions pruned them.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::Resource;
use osm_api::rbac::Service;
use osm_api::{CustomOperatingSystemProfile, definitions, names};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::Cluster;
use crate::backoff::Backoff;
use crate::error::{brief, is_code};
use crate::readiness::{DEFINITIONS, ProblemGate};

/// Everything is listed once more after this time: another API server may serve new definitions a little later.
const OTHER_SERVERS: Duration = Duration::from_secs(5);

/// Pauses while they are too old, from first to last: at the very start they may just have been created.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

const ADVICE: &str = "apply the CustomResourceDefinitions of this version";

/// The Go implementation has no status, and KKP restores its definitions in each user cluster.
const ADVICE_WITHOUT_STATUS: &str = "apply the CustomResourceDefinitions of this version; for a user cluster of KKP, which restores its own, use the \
     topologies management and worker (docs/kkp.md)";

const MAX_NAMED_FIELDS: usize = 3;

/// Starts the check; readiness waits for a good result. The published OpenAPI document is readable to every authenticated client, so the
/// check needs no permission on CustomResourceDefinitions.
pub fn spawn(cluster: &Cluster) {
    let (end, checked) = (cluster.shutdown.clone(), cluster.clone());
    cluster
        .supervisor()
        .spawn("CustomResourceDefinitions", &cluster.shutdown, async move {
            end.run_until_cancelled(check(&checked)).await;
            end.cancelled().await;
        });
}

/// Returns once the definitions are good.
async fn check(cluster: &Cluster) {
    let (connection, service) = (&cluster.management, cluster.process.service);
    let custom_profiles = service == Service::OspController && cluster.installation.custom_profiles;
    let role = connection.role();
    let mut gate = ProblemGate::new(cluster.gates.gate(DEFINITIONS), role.label());
    let mut backoff = Backoff::new(&cluster.process.environment, FIRST_PAUSE, LONGEST_PAUSE);
    let mut were_bad = false;
    loop {
        let problem = match published(&connection.client).await {
            Ok(published) => problem(service, custom_profiles, &published),
            Err(error) if is_code(&error, 404) => Some(Problem::outdated(format!("missing; {ADVICE}"))),
            Err(error) => {
                gate.report(format!("can't be checked yet: {}", brief(&error)));
                tokio::time::sleep(backoff.failed()).await;
                continue;
            }
        };
        let Some(Problem { text, is_outdated }) = problem else {
            break;
        };
        were_bad = true;
        cluster
            .outdated_definitions
            .note(is_outdated.then(|| text.clone()));
        gate.report(text);
        tokio::time::sleep(backoff.failed()).await;
    }
    cluster.outdated_definitions.note(None);
    gate.resolve();
    if were_bad {
        tracing::info!(
            cluster = role.label(),
            "the CustomResourceDefinitions are up to date; every watch lists its objects again"
        );
        cluster.relist.now();
        tokio::time::sleep(OTHER_SERVERS).await;
        cluster.relist.now();
    }
}

/// What is missing and what to do.
#[derive(Debug, PartialEq)]
struct Problem {
    text: String,
    /// The API server drops fields of our kinds. Without the definition of KKP, it drops none.
    is_outdated: bool,
}

impl Problem {
    fn outdated(text: String) -> Self {
        Self {
            text,
            is_outdated: true,
        }
    }
}

/// The schemas of our API group as the server publishes them, by name. A schema takes several times as much memory once it is parsed, so
/// each is parsed only while it is compared.
type Schemas = BTreeMap<String, Box<RawValue>>;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Document {
    components: Components,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Components {
    schemas: Schemas,
}

async fn published(client: &kube::Client) -> Result<Schemas, kube::Error> {
    let url = format!("/openapi/v3/apis/{}/v1alpha1", names::GROUP);
    let request = http::Request::get(url)
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    let document: Document = client.request(request).await?;
    Ok(document.components.schemas)
}

/// The problem of the definitions that a service needs; `None` if nothing is missing. `custom_profiles`: whether it needs KKP's kind of profile. KKP
/// installs that definition, so that its version does not matter here.
fn problem(service: Service, custom_profiles: bool, published: &Schemas) -> Option<Problem> {
    outdated_for(service, published)
        .map(Problem::outdated)
        .or_else(|| {
            let custom = CustomOperatingSystemProfile::kind(&());
            let is_missing = custom_profiles && schema(published, &custom).is_none();
            is_missing.then(|| Problem {
                text: format!(
                    "{custom} is missing; install the definition of KKP, or remove --custom-profiles"
                ),
                is_outdated: false,
            })
        })
}

/// The published schema of a kind.
fn schema<'a>(published: &'a Schemas, kind: &str) -> Option<&'a RawValue> {
    let of_kind = |name: &str| name.rsplit('.').next() == Some(kind);
    let mut schemas = published.iter();
    schemas
        .find(|(name, _)| of_kind(name))
        .map(|(_, schema)| &**schema)
}

/// A kind and its definition.
type Definition = (&'static str, &'static str);

const PROFILES: Definition = ("OperatingSystemProfile", definitions::PROFILES);
const CONFIGS: Definition = ("OperatingSystemConfig", definitions::CONFIGS);

/// The schema of a definition.
fn schema_of(definition: &mut Value) -> Option<Value> {
    let schema = definition.pointer_mut("/spec/versions/0/schema/openAPIV3Schema")?;
    Some(schema.take())
}

fn outdated_for(service: Service, published: &Schemas) -> Option<String> {
    let needed: &[Definition] = match service {
        Service::OspController => &[PROFILES],
        Service::OscController => &[PROFILES, CONFIGS],
        Service::SecretSyncer => &[CONFIGS],
        Service::CsrApprover => &[],
    };
    let mut missing = Vec::new();
    for (kind, definition) in needed {
        let ours = schema_of(&mut definitions::parse(definition));
        let served = schema(published, kind).and_then(|schema| serde_json::from_str(schema.get()).ok());
        match (served, ours) {
            (Some(served), Some(ours)) => lacks(kind, &ours, &served, &mut missing),
            _ => missing.push((*kind).to_owned()),
        }
    }
    if missing.is_empty() {
        return None;
    }
    let is_of_go = missing.iter().any(|field| field.ends_with(".status"));
    let advice = if is_of_go { ADVICE_WITHOUT_STATUS } else { ADVICE };
    let more = missing.len().saturating_sub(MAX_NAMED_FIELDS);
    missing.truncate(MAX_NAMED_FIELDS);
    let more = if more == 0 {
        String::new()
    } else {
        format!(" and {more} more")
    };
    Some(format!(
        "older than this version, they lack {}{more}; {advice}",
        missing.join(", ")
    ))
}

/// Collects the fields that `ours` has and `served` would drop.
fn lacks(path: &str, ours: &Value, served: &Value, missing: &mut Vec<String>) {
    let kept = served.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    for (name, field) in ours
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
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

/// Fields of every object, which the server publishes in its own way.
const PUBLISHED_OTHERWISE: [&str; 3] = ["apiVersion", "kind", "metadata"];

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::*;

    fn published_by(crds: &[Definition]) -> Schemas {
        let schema = |(kind, definition): &Definition| {
            let schema = schema_of(&mut definitions::parse(definition)).unwrap();
            (
                format!("io.k8c.x.v1alpha1.{kind}"),
                to_raw_value(&schema).unwrap(),
            )
        };
        crds.iter().map(schema).collect()
    }

    #[test]
    fn those_of_this_version_lack_nothing_and_each_service_looks_at_its_own() {
        let all = published_by(&[PROFILES, CONFIGS]);
        for service in Service::ALL {
            assert_eq!(outdated_for(service, &all), None);
        }
        let half = published_by(&[PROFILES]);
        assert_eq!(outdated_for(Service::OspController, &half), None);
        for service in [Service::OscController, Service::SecretSyncer] {
            let problem = outdated_for(service, &half).unwrap();
            assert!(
                problem.contains("OperatingSystemConfig") && problem.ends_with(ADVICE),
                "{problem}"
            );
        }
    }

    #[test]
    fn the_definition_of_custom_profiles_is_missed_by_those_who_copy_them() {
        let custom = ("CustomOperatingSystemProfile", definitions::PROFILES);
        let (without, with) = (published_by(&[PROFILES]), published_by(&[PROFILES, custom]));
        let problem =
            |custom_profiles, published| problem(Service::OspController, custom_profiles, published);
        assert_eq!(problem(false, &without), None);
        assert_eq!(problem(true, &with), None);
        let Problem { text, is_outdated } = problem(true, &without).unwrap();
        assert!(
            text.contains("CustomOperatingSystemProfile is missing") && text.contains("--custom-profiles"),
            "{text}"
        );
        assert!(!is_outdated, "no field of ours is dropped");
        assert!(problem(true, &Schemas::new()).unwrap().is_outdated);
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
