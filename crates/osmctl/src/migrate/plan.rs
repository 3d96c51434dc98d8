//! The steps of a migration, in order. They follow from what was found.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::find::Found;
use super::kinds;
use super::restorable::restorable;
use crate::cluster::{Kind, Object};

/// A change of one object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Step {
    pub action: Action,
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    pub name: String,
    /// Which object of this name.
    pub uid: String,
    pub state: State,
    /// The object before the change, as it can be created again. It never contains a token.
    pub object: Value,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    Delete,
    /// Scales a Deployment to 0.
    Stop,
}

/// How far a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    Planned,
    /// The change may have happened.
    Started,
    Done,
    /// The object may have been restored.
    Restoring,
    Restored,
}

impl Step {
    fn new(action: Action, object: &Object) -> Self {
        Self {
            action,
            kind: object.kind.kind.to_owned(),
            namespace: object.namespace().map(str::to_owned),
            name: object.name().to_owned(),
            uid: object.uid().to_owned(),
            state: State::Planned,
            object: restorable(object),
        }
    }

    /// The kind of the object, if a migration changes it.
    pub fn kind(&self) -> Option<Kind> {
        kinds::find(&self.kind)
    }

    /// Replicas of a Deployment before it was stopped.
    pub fn replicas(&self) -> i64 {
        let replicas = self.object.pointer("/spec/replicas");
        replicas.and_then(Value::as_i64).unwrap_or(1)
    }

    /// `Kind name`, or `Kind namespace/name`.
    pub fn what(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} {namespace}/{}", self.kind, self.name),
            None => format!("{} {}", self.kind, self.name),
        }
    }

    /// The step as a sentence.
    pub fn sentence(&self) -> String {
        match self.action {
            Action::Delete => format!("delete {}", self.what()),
            Action::Stop => format!("scale {} to 0", self.what()),
        }
    }

    /// For programs. The object is left out.
    pub fn json(&self) -> Value {
        json!({"action": self.action, "kind": self.kind, "namespace": self.namespace, "name": self.name, "state": self.state})
    }
}

/// Stops the Go implementation: webhook configurations first, because the API server refuses writes while nothing responds to them.
pub fn stop(found: &Found) -> Vec<Step> {
    let webhooks = found
        .webhooks
        .iter()
        .map(|object| Step::new(Action::Delete, object));
    let deployments = found.controller.iter().chain(&found.webhook);
    webhooks
        .chain(deployments.map(|object| Step::new(Action::Stop, object)))
        .collect()
}

/// Deletes what is left, without what `known` steps have deleted already.
pub fn clean_up(found: &Found, with_tokens: bool, known: &[Step]) -> Vec<Step> {
    let mut steps: Vec<Step> = found
        .leftovers
        .iter()
        .map(|object| Step::new(Action::Delete, object))
        .collect();
    if with_tokens {
        steps.extend(
            found
                .tokens
                .iter()
                .map(|object| Step::new(Action::Delete, object)),
        );
    }
    let is_known = |step: &Step| {
        let is_it =
            |other: &Step| other.action == step.action && other.uid == step.uid && other.kind == step.kind;
        known.iter().any(is_it)
    };
    steps.retain(|step| !is_known(step));
    steps
}

#[cfg(test)]
mod tests {
    use super::super::find::fixtures::{INSTALLERS, objects, seen};
    use super::super::find::sort;
    use super::super::restorable::as_token;
    use super::*;

    #[test]
    fn webhooks_are_deleted_before_their_deployment_stops() {
        for (installer, text) in INSTALLERS {
            let steps = stop(&sort(&seen(objects(text)), &[]));
            let actions: Vec<(Action, &str)> = steps
                .iter()
                .map(|step| (step.action, step.kind.as_str()))
                .collect();
            let (deleted, stopped) = actions.split_at(actions.len() - 2);
            assert!(
                deleted
                    .iter()
                    .all(|(action, kind)| *action == Action::Delete && kind.ends_with("WebhookConfiguration")),
                "{installer}: {actions:?}"
            );
            assert!(!deleted.is_empty());
            assert_eq!(stopped, [(Action::Stop, "Deployment"); 2], "{installer}");
        }
    }

    #[test]
    fn what_would_be_created_again_is_deleted_first() {
        let (_, text) = INSTALLERS[0];
        let steps = clean_up(&sort(&seen(objects(text)), &[]), false, &[]);
        let at = |kind: &str| steps.iter().position(|step| step.kind == kind).unwrap();
        assert!(at("Certificate") < at("Secret"));
        assert!(at("Deployment") < at("ServiceAccount"));
        assert!(at("RoleBinding") < at("Role"));
        assert!(
            steps
                .iter()
                .all(|step| step.state == State::Planned && step.kind().is_some())
        );
    }

    #[test]
    fn tokens_are_deleted_before_their_account_and_so_restored_after_it() {
        let (_, text) = INSTALLERS[0];
        let secret = |namespace: &str, account: &str| {
            as_token(Object::new(
                kinds::SECRET,
                json!({"metadata": {"name": format!("token-of-{account}"), "namespace": namespace, "annotations": {
                    "kubernetes.io/service-account.name": account, "kubernetes.io/service-account.uid": "u"}},
                    "data": {"token": "dDBrZW4="}}),
            ))
        };
        let mut seen = seen(objects(text));
        seen.tokens = vec![
            secret("cloud-init-settings", "cloud-init-getter"),
            secret("kube-system", "operating-system-manager"),
        ];
        seen.getter = vec![Object::new(
            kinds::ACCOUNT,
            json!({"metadata": {"name": "cloud-init-getter", "namespace": "cloud-init-settings"}}),
        )];
        for with_getter in [true, false] {
            let steps = clean_up(&sort(&seen, &[]), with_getter, &[]);
            let at = |what: &str| steps.iter().position(|step| step.what() == what);
            for (namespace, account) in [
                ("cloud-init-settings", "cloud-init-getter"),
                ("kube-system", "operating-system-manager"),
            ] {
                let is_planned = with_getter || namespace == "kube-system";
                let token = at(&format!("Secret {namespace}/token-of-{account}"));
                let account = at(&format!("ServiceAccount {namespace}/{account}"));
                assert_eq!((token.is_some(), account.is_some()), (is_planned, is_planned));
                assert!(token < account || !is_planned, "{token:?} {account:?}");
                if let Some(step) = token.map(|at| &steps[at]) {
                    assert!(step.object.get("data").is_none());
                    assert!(
                        !step.object.to_string().contains("account.uid"),
                        "{}",
                        step.object
                    );
                }
            }
        }
    }

    #[test]
    fn steps_that_are_known_are_not_planned_again() {
        let (_, text) = INSTALLERS[1];
        let found = sort(&seen(objects(text)), &[]);
        let known = clean_up(&found, true, &[]);
        assert_eq!(clean_up(&found, true, &known), Vec::<Step>::new());
        assert_eq!(clean_up(&found, true, &known[1..]), known[..1]);
        // A Deployment that was stopped has to be deleted still.
        let stopped = stop(&found);
        assert_eq!(clean_up(&found, true, &stopped).len(), known.len());
    }

    #[test]
    fn a_step_survives_the_journal() {
        let (_, text) = INSTALLERS[2];
        for step in stop(&sort(&seen(objects(text)), &[])) {
            let text = serde_json::to_string(&step).unwrap();
            assert_eq!(serde_json::from_str::<Step>(&text).unwrap(), step);
            assert_eq!(step.replicas(), 1);
        }
    }
}
