//! Records the writes of the services for each change of one pool, from the audit log of kube-apiserver.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use osm_api::names;
use osm_bare_client::pool::{POOL_ID, POOL_NAME, POOL_UID, REVISION};
use osm_bare_client::writes::{Change, Step, Template, Writes, uid, version};
use osm_testkit::control_plane::AuditEvent;
use osm_testkit::cost::{kind, until_quiet};
use osm_testkit::{ControlPlane, Options, machine_controller, wait_for};
use serde_json::{Value, json};

use crate::bench::contender::Contender;
use crate::bench::pools::{NAMESPACE, Pools};
use crate::bench::secret_watch::SecretWatch;

const TIMEOUT: Duration = Duration::from_secs(120);

/// No other text contains it.
const POOL: &str = "bench-recorded";

/// Revisions that no other text contains.
const FIRST_REVISION: u64 = 700_001;

/// Runs the services in `binaries` with one pool, and returns what they write for each of these changes.
///
/// # Errors
/// Services that don't start or don't publish.
pub async fn record(binaries: &Path, changes: &[Change]) -> Result<Writes> {
    let plane = ControlPlane::start(Options {
        audit_bodies: true,
        ..Options::default()
    })
    .await?;
    let running = Contender::Services(binaries.to_owned()).start(&plane, 1).await?;
    let recorded = recorded(&plane, changes).await;
    recorded.map_err(|error| error.context(running.logs()))
}

async fn recorded(plane: &ControlPlane, changes: &[Change]) -> Result<Writes> {
    let client = plane.admin()?;
    let secrets =
        SecretWatch::start(kube::Api::namespaced(client.clone(), names::CLOUD_INIT_SETTINGS)).await?;
    let pool = Pools::single(client.clone(), POOL);
    let mut log = plane.audit_log()?;
    until_quiet(&mut log, TIMEOUT, || Ok(())).await?;
    let (mut revision, mut recorder, mut writes) = (FIRST_REVISION, None, Writes::default());
    for change in changes {
        secrets.begin();
        let started = match change {
            Change::Created => pool.create(revision).await?,
            Change::Rotated => pool.rotate(revision).await?,
            Change::Revision => pool.stamp(revision).await?,
            Change::Profile => pool.change_profile().await?,
            Change::Settings => pool.change_settings().await?,
            Change::Deleted => pool.delete().await?,
        };
        match change {
            Change::Created | Change::Rotated | Change::Revision => {
                secrets.revision(revision, &started, TIMEOUT).await?;
            }
            Change::Profile | Change::Settings => {
                secrets.written(&started, TIMEOUT).await?;
            }
            Change::Deleted => {
                wait_for("the Secrets to be deleted", TIMEOUT, async || {
                    Ok(secrets.none_left().then_some(()))
                })
                .await?;
            }
        }
        if recorder.is_none() {
            let machine_deployments = kube::Api::namespaced_with(
                client.clone(),
                NAMESPACE,
                &machine_controller::machine_deployment(),
            );
            let object: kube::core::DynamicObject = machine_deployments.get(POOL).await?;
            recorder = Some(Recorder::new(&object.metadata.uid.context("uid")?));
        }
        let recorder = recorder.as_mut().context("the first change creates the pool")?;
        let events = until_quiet(&mut log, TIMEOUT, || Ok(())).await?;
        writes.0.insert(*change, recorder.steps(&events, revision)?);
        revision += 1;
    }
    Ok(writes)
}

/// An object by resource, namespace and name.
type Object = (String, String, String);

/// Turns requests of one pool into requests of any pool.
struct Recorder {
    pool_uid: String,
    pool_id: String,
    objects: BTreeMap<Object, usize>,
    /// Texts that differ between pools, with the names of their values.
    recorded: Vec<(String, String)>,
}

impl Recorder {
    fn new(pool_uid: &str) -> Self {
        let pool_id = names::pool_id(NAMESPACE, POOL, pool_uid);
        let recorded = [(pool_uid, POOL_UID), (&pool_id, POOL_ID), (POOL, POOL_NAME)];
        Self {
            pool_uid: pool_uid.to_owned(),
            recorded: recorded
                .map(|(text, name)| (text.to_owned(), name.to_owned()))
                .into(),
            pool_id,
            objects: BTreeMap::new(),
        }
    }

    fn steps(&mut self, events: &[AuditEvent], revision: u64) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        for event in events {
            if event.is_write() && event.code < 300 && self.is_of_pool(event) {
                steps.push(self.step(event, revision)?);
            }
        }
        Ok(steps)
    }

    /// Other requests are about the installation, such as the status of the profile.
    fn is_of_pool(&self, event: &AuditEvent) -> bool {
        let texts = [event.uri.clone(), event.user.clone(), event.request.to_string()];
        let known = [POOL, &self.pool_uid, &self.pool_id];
        texts
            .iter()
            .any(|text| known.iter().any(|known| text.contains(known)))
    }

    fn step(&mut self, event: &AuditEvent, revision: u64) -> Result<Step> {
        let resource = event.resource.split('/').next().unwrap_or_default().to_owned();
        let name = match event.name.as_str() {
            "" => event
                .response
                .pointer("/metadata/name")
                .and_then(Value::as_str)
                .unwrap_or_default(),
            name => name,
        };
        let key = (resource, event.namespace.clone(), name.to_owned());
        let next = self.objects.len();
        let object = *self.objects.entry(key).or_insert(next);
        let mut body = event.request.clone();
        mark_versions(&mut body, &marker(object));
        let mut recorded = self.recorded.clone();
        recorded.push((marker(object), version(object)));
        recorded.push((revision.to_string(), REVISION.to_owned()));
        let text = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let (method, content_type) = match event.verb.as_str() {
            "create" => ("POST", "application/json"),
            "update" => ("PUT", "application/json"),
            "delete" => ("DELETE", "application/json"),
            "patch" => ("PATCH", patch_type(&body)),
            other => bail!("a write of an unknown kind: {other} {}", event.uri),
        };
        // The uid of a stored object is known from the answer on. Tokens and reviews are not stored.
        let stored = event.response.pointer("/metadata/resourceVersion").is_some();
        if let Some(own) = event.response.pointer("/metadata/uid").and_then(Value::as_str)
            && stored
        {
            let pair = (own.to_owned(), uid(object));
            if !self.recorded.contains(&pair) {
                self.recorded.push(pair);
            }
        }
        Ok(Step {
            kind: kind(event),
            method: method.to_owned(),
            uri: Template::of(&event.uri, &recorded),
            content_type: content_type.to_owned(),
            body: Template::of(&text, &recorded),
            object,
            as_node: event
                .user
                .starts_with("system:serviceaccount:cloud-init-settings:"),
        })
    }
}

/// Text that stands for the resourceVersion of an object.
fn marker(object: usize) -> String {
    format!("@version.{object}@")
}

/// Replaces the resourceVersion that a request requires.
fn mark_versions(body: &mut Value, marker: &str) {
    for path in ["/metadata/resourceVersion", "/preconditions/resourceVersion"] {
        if let Some(version) = body.pointer_mut(path) {
            *version = json!(marker);
        }
    }
    for operation in body.as_array_mut().into_iter().flatten() {
        if operation.get("path").and_then(Value::as_str) == Some("/metadata/resourceVersion")
            && let Some(value) = operation.get_mut("value")
        {
            *value = json!(marker);
        }
    }
}

/// The audit log does not have the media type. Only a server-side apply says what the object is.
fn patch_type(body: &Value) -> &'static str {
    if body.is_array() {
        "application/json-patch+json"
    } else if body.get("apiVersion").is_some() {
        "application/apply-patch+yaml"
    } else {
        "application/merge-patch+json"
    }
}

#[cfg(test)]
mod tests {
    use osm_bare_client::writes::Values;

    use super::*;

    #[test]
    fn a_request_of_one_pool_becomes_a_request_of_any_pool() {
        let mut recorder = Recorder::new("uid-of-pool");
        let id = recorder.pool_id.clone();
        let event = |verb: &str, request: Value| AuditEvent {
            verb: verb.to_owned(),
            resource: "secrets".to_owned(),
            namespace: "n".to_owned(),
            name: format!("osm-{id}"),
            uri: format!("/api/v1/namespaces/n/secrets/osm-{id}"),
            code: 200,
            request,
            response: json!({"metadata": {"uid": "uid-of-secret", "resourceVersion": "12"}}),
            ..AuditEvent::default()
        };
        let create = event(
            "create",
            json!({"metadata": {"annotations": {"revision": "700001", "pool": POOL}}}),
        );
        let update = event(
            "update",
            json!({"metadata": {"uid": "uid-of-secret", "resourceVersion": "12"}}),
        );
        let read = event("get", json!(null));
        let steps = recorder.steps(&[create, read, update], 700_001).unwrap();
        let [create, update] = steps.as_slice() else {
            panic!("{steps:?}");
        };
        let values: Values = [
            (POOL_ID, "ID"),
            (POOL_NAME, "p"),
            (REVISION, "3"),
            ("uid.0", "U"),
            ("version.0", "99"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        assert_eq!(
            create.uri.fill(&values).unwrap(),
            "/api/v1/namespaces/n/secrets/osm-ID"
        );
        let body = create.body.fill(&values).unwrap();
        assert_eq!(
            body,
            r#"{"metadata":{"annotations":{"revision":"3","pool":"p"}}}"#
        );
        let body = update.body.fill(&values).unwrap();
        assert_eq!(body, r#"{"metadata":{"uid":"U","resourceVersion":"99"}}"#);
        assert_eq!((update.method.as_str(), update.object), ("PUT", create.object));
    }

    #[test]
    fn patches_are_told_apart_by_their_bodies() {
        assert_eq!(patch_type(&json!([])), "application/json-patch+json");
        assert_eq!(
            patch_type(&json!({"apiVersion": "v1"})),
            "application/apply-patch+yaml"
        );
        assert_eq!(
            patch_type(&json!({"metadata": {}})),
            "application/merge-patch+json"
        );
    }
}
