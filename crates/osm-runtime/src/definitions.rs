//! Checks at the start that the CustomResourceDefinitions of the management cluster are not older than this
//! program. The API server drops fields that they do not have, without any error.
//!
//! While they are, nothing new is rendered or published, and what is published is renewed. Once they are
//! upgraded, every watch lists its objects again: one that was opened before shows objects as the old
//! definitions pruned them.

use kube::{Client, Resource};
use osm_api::rbac::{Installation, Service};
use osm_api::{CustomOperatingSystemProfile, definitions, names};
use serde_json::{Map, Value};

use crate::connection::Connection;
use crate::error::{brief, is_code};
use crate::process::Process;
use crate::readiness::DEFINITIONS;
use crate::scope::Scope;
use crate::startup_check::{self, UNCHECKED};

/// KKP restores its definitions in each user cluster.
const ADVICE: &str = "apply the CustomResourceDefinitions of this version; for a user cluster of KKP, which restores its own, use a \
     fleet in its seed (docs/kkp.md)";

/// Starts the check; readiness waits for a good result. The published OpenAPI document is readable to every
/// authenticated client, so the check needs no permission on CustomResourceDefinitions.
pub fn spawn(scope: &Scope, management: &Connection, installation: &Installation) {
    let process = scope.process.clone();
    let (client, copies) = (management.client.clone(), installation.custom_profiles);
    let check = move || {
        let (process, client) = (process.clone(), client.clone());
        async move { problem(&process, &client, copies).await }
    };
    startup_check::spawn(scope, DEFINITIONS.to_owned(), check);
}

/// What is wrong and what to do. `copies`: whether custom profiles are copied.
async fn problem(process: &Process, client: &Client, copies: bool) -> Option<String> {
    let service = process.service;
    let published = match published(client).await {
        Ok(published) => published,
        Err(error) if is_code(&error, 404) => Schemas::new(),
        Err(error) => return Some(format!("{UNCHECKED}: {}", brief(&error))),
    };
    let outdated = outdated_for(service, &published);
    process.outdated_definitions.note(outdated.clone());
    let copies = service == Service::OspController && copies;
    outdated.or_else(|| missing_custom_profiles(&published).filter(|_| copies))
}

/// The schemas of our API group as the server publishes them, by name.
type Schemas = Map<String, Value>;

async fn published(client: &Client) -> Result<Schemas, kube::Error> {
    let url = format!("/openapi/v3/apis/{}/v1alpha1", names::GROUP);
    let request = http::Request::get(url)
        .body(Vec::new())
        .map_err(kube::Error::HttpError)?;
    let mut document: Value = client.request(request).await?;
    let schemas = document.pointer_mut("/components/schemas").map(Value::take);
    Ok(match schemas {
        Some(Value::Object(schemas)) => schemas,
        _ => Schemas::new(),
    })
}

/// What the definitions lack that a service needs; `None`: nothing.
fn outdated_for(service: Service, published: &Schemas) -> Option<String> {
    let needed: &[Definition] = match service {
        Service::OspController => &[PROFILES],
        Service::OscController => &[PROFILES, CONFIGS],
        Service::SecretSyncer => &[CONFIGS],
        Service::CsrApprover => &[],
    };
    if published.is_empty() && !needed.is_empty() {
        return Some(format!("they are missing; {ADVICE}"));
    }
    let lack = needed.iter().find_map(|needed| missing(*needed, published))?;
    Some(format!("older than this version, they lack {lack}; {ADVICE}"))
}

/// KKP installs this definition, so that its version does not matter here. Without it, everything but copies
/// can be written.
fn missing_custom_profiles(published: &Schemas) -> Option<String> {
    let kind = CustomOperatingSystemProfile::kind(&());
    schema(published, &kind)
        .is_none()
        .then(|| format!("{kind} is missing; install the definition of KKP, or remove --custom-profiles"))
}

/// The published schema of a kind.
fn schema<'a>(published: &'a Schemas, kind: &str) -> Option<&'a Value> {
    let of_kind = |name: &str| name.rsplit('.').next() == Some(kind);
    let mut schemas = published.iter();
    schemas.find(|(name, _)| of_kind(name)).map(|(_, schema)| schema)
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

/// What of a definition is not published: the kind, or a field.
fn missing((kind, definition): Definition, published: &Schemas) -> Option<String> {
    let ours = schema_of(&mut definitions::parse(definition))?;
    match schema(published, kind) {
        Some(served) => lacks(kind, &ours, served),
        None => Some(kind.to_owned()),
    }
}

/// A field that `ours` has and `served` would drop.
fn lacks(path: &str, ours: &Value, served: &Value) -> Option<String> {
    let kept = served.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    let mut fields = ours
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let of_fields = fields.find_map(|(name, field)| {
        let path = format!("{path}.{name}");
        match served.get("properties").and_then(|fields| fields.get(name)) {
            Some(served) => lacks(&path, field, served),
            None if kept || PUBLISHED_OTHERWISE.contains(&name.as_str()) => None,
            None => Some(path),
        }
    });
    of_fields.or_else(|| {
        ["items", "additionalProperties"]
            .iter()
            .find_map(|inner| lacks(path, ours.get(inner)?, served.get(inner)?))
    })
}

/// Fields of every object, which the server publishes in its own way.
const PUBLISHED_OTHERWISE: [&str; 3] = ["apiVersion", "kind", "metadata"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn published_by(crds: &[Definition]) -> Schemas {
        let schema = |(kind, definition): &Definition| {
            let schema = schema_of(&mut definitions::parse(definition)).unwrap();
            (format!("io.k8c.x.v1alpha1.{kind}"), schema)
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
                problem.contains("lack OperatingSystemConfig; ") && problem.ends_with(ADVICE),
                "{problem}"
            );
            let problem = outdated_for(service, &Schemas::new()).unwrap();
            assert!(problem.starts_with("they are missing; "), "{problem}");
        }
    }

    #[test]
    fn the_definition_of_custom_profiles_is_missed() {
        let custom = ("CustomOperatingSystemProfile", definitions::PROFILES);
        assert_eq!(missing_custom_profiles(&published_by(&[PROFILES, custom])), None);
        let missing = missing_custom_profiles(&published_by(&[PROFILES])).unwrap();
        assert!(
            missing.contains("CustomOperatingSystemProfile is missing")
                && missing.contains("--custom-profiles"),
            "{missing}"
        );
    }

    #[test]
    fn a_field_that_would_be_dropped_is_named() {
        let ours = json!({"properties": {
            "metadata": {}, "spec": {"properties": {"list": {"items": {"properties": {"new": {}}}}}},
            "status": {"properties": {"accepted": {}}}}});
        let old = |status| json!({"properties": {"status": status, "spec": {"properties": {"list": {"items": {"properties": {}}}}}}});
        let first = lacks("Kind", &ours, &old(json!({"properties": {"accepted": {}}})));
        assert_eq!(first.as_deref(), Some("Kind.spec.list.new"));
        let open = |status| json!({"properties": {"status": status, "spec": {"x-kubernetes-preserve-unknown-fields": true}}});
        let of_status = lacks("Kind", &ours, &open(json!({})));
        assert_eq!(of_status.as_deref(), Some("Kind.status.accepted"));
        let all = json!({"properties": {"accepted": {}}});
        assert_eq!(lacks("Kind", &ours, &open(all)), None);
    }
}
