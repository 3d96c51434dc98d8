//! Does and undoes steps. Each is written into the journal before it begins, and checked after it. Whatever differs from the plan is a surprise,
//! which ends the command.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::find;
use super::journal::Kept;
use super::kinds;
use super::plan::{Action, State, Step};
use super::restorable::{is_token, restorable};
use crate::cluster::{Editor, Object};

/// How often something is looked at that takes a while.
const INTERVAL: Duration = Duration::from_millis(200);

/// How long writes may be refused before a restored configuration is deleted again.
const BLOCKED_AT_MOST: Duration = Duration::from_secs(5);

/// Name of objects that are never created.
pub const WRITE_CHECK: &str = "osmctl-write-check";

/// Does steps in one cluster.
pub struct Steps<'a> {
    pub editor: &'a Editor<'a>,
    pub namespace: &'a str,
    /// How long something may take.
    pub timeout: Duration,
    /// How long API servers may take to notice that a webhook configuration is gone.
    pub settle: SignedDuration,
}

impl Steps<'_> {
    /// Does every step that is not done, and verifies those that are.
    ///
    /// # Errors
    /// A surprise, or a request that fails. Running the command again continues.
    pub async fn run(&self, kept: &mut Kept) -> Result<()> {
        for at in 0..kept.journal.steps.len() {
            let Some(step) = kept.journal.steps.get(at).cloned() else {
                break;
            };
            if step.state == State::Done {
                self.verify(&step).await?;
                continue;
            }
            if step.action == Action::Stop {
                self.webhooks_are_gone(kept).await?;
                self.settle(kept).await;
            }
            if step.state == State::Planned {
                self.is_as_planned(&step).await?;
                kept.set(self.editor, at, State::Started).await?;
            }
            match step.action {
                Action::Delete => self.delete(&step).await?,
                Action::Stop => self.stop(&step).await?,
            }
            if is_webhook_configuration(&step) {
                kept.journal.deleted_webhooks_at = Some(Timestamp::now());
            }
            kept.set(self.editor, at, State::Done).await?;
            self.editor.print(&format!("done: {}\n", step.sentence()))?;
        }
        Ok(())
    }

    /// The object of a step; of a Secret, the metadata.
    async fn current(&self, step: &Step) -> Result<Option<Object>> {
        let kind = step.kind().with_context(|| unknown(step))?;
        let namespace = step.namespace.as_deref();
        Ok(match kind {
            kinds::SECRET => self.editor.get_metadata(kind, namespace, &step.name).await?,
            _ => self.editor.get(kind, namespace, &step.name).await?,
        })
    }

    /// The object of a step, if it is the one that was planned for.
    async fn same(&self, step: &Step) -> Result<Option<Object>> {
        let current = self.current(step).await?;
        if current.as_ref().is_some_and(|object| object.uid() != step.uid) {
            let next = match step.action {
                Action::Delete => "delete the object, and run the command again",
                // A rollback needs the Deployment.
                Action::Stop => "run `osmctl migrate rollback`, and begin again",
            };
            bail!(
                "{} has been created again; find the installer that creates it, and stop that installer. Then {next}",
                step.what()
            );
        }
        Ok(current)
    }

    async fn is_as_planned(&self, step: &Step) -> Result<()> {
        let current = self.same(step).await?;
        let differs = |object: &Object| object.kind != kinds::SECRET && restorable(object) != step.object;
        if current.as_ref().is_some_and(differs) {
            bail!(
                "{} has changed since the plan was made; find out which program changes it, and stop that program. \
                 Then run `osmctl migrate rollback`, and begin again",
                step.what()
            );
        }
        Ok(())
    }

    /// Whether a step that is done still is.
    async fn verify(&self, step: &Step) -> Result<()> {
        let Some(object) = self.current(step).await? else {
            return Ok(());
        };
        match step.action {
            Action::Stop if object.number("/spec/replicas") == Some(0) => Ok(()),
            Action::Stop => bail!(
                "{} has been scaled up again; find the installer that does this, and stop that installer. \
                 Then scale the Deployment to 0, and run the command again",
                step.what()
            ),
            Action::Delete => bail!(
                "{} has been created again; find the installer that creates it, and stop that installer. \
                 Then delete the object, and run the command again",
                step.what()
            ),
        }
    }

    async fn delete(&self, step: &Step) -> Result<()> {
        let is_gone = format!("{} to be deleted", step.what());
        self.wait(&is_gone, async || {
            let Some(object) = self.same(step).await? else {
                return Ok(true);
            };
            if object.text("/metadata/deletionTimestamp").is_empty() {
                match self.editor.delete(&object).await {
                    // A controller writes its status at the same time. What a person writes was noticed before.
                    Err(failure) if failure.is_conflict() => {}
                    result => result?,
                }
            }
            Ok(self.same(step).await?.is_none())
        })
        .await
    }

    async fn stop(&self, step: &Step) -> Result<()> {
        let what = format!("the pods of {} to end", step.what());
        self.wait(&what, async || {
            let Some(object) = self.same(step).await? else {
                return Ok(true);
            };
            if object.number("/spec/replicas") != Some(0) {
                match self.editor.scale(&object, 0).await {
                    Err(failure) if failure.is_conflict() => {}
                    result => _ = result?,
                }
                return Ok(false);
            }
            Ok(is_observed(&object) && object.number("/status/replicas").unwrap_or(0) == 0)
        })
        .await
    }

    /// Fails if a configuration calls the webhook that will stop.
    ///
    /// # Errors
    /// A surprise, or a request that fails.
    pub async fn webhooks_are_gone(&self, kept: &Kept) -> Result<()> {
        for configuration in find::webhooks(self.editor).await? {
            if find::calls_any(&configuration, self.namespace, &kept.journal.services) {
                bail!(
                    "{configuration} calls the webhook of the Go implementation, and did not exist when the plan was made; \
                     find the installer that creates it, and stop that installer. Then delete it, and run the command again"
                );
            }
        }
        Ok(())
    }

    /// Waits until API servers have noticed that the configurations are gone. Each of them watches the configurations.
    async fn settle(&self, kept: &Kept) {
        let Some(deleted) = kept.journal.deleted_webhooks_at else {
            return;
        };
        let passed = Timestamp::now().duration_since(deleted);
        let left = self.settle.saturating_sub(passed.max(SignedDuration::ZERO));
        if let Ok(left) = Duration::try_from(left) {
            self.editor
                .show("waiting until API servers have noticed that webhooks are gone");
            tokio::time::sleep(left).await;
        }
    }

    /// Verifies by copies of an existing profile and MachineDeployment that the API server calls none of the webhooks. It creates nothing.
    ///
    /// # Errors
    /// Refused writes, or a request that fails.
    pub async fn writes_are_accepted(&self, webhooks: &[String]) -> Result<()> {
        let mut copies = Vec::new();
        for (kind, namespace) in [(kinds::PROFILE, Some(self.namespace)), (kinds::POOL, None)] {
            let found = self.editor.list(kind, namespace).await?;
            copies.extend(found.first().map(copy));
        }
        self.wait(
            "the API server to accept writes without the webhook",
            async || {
                for copy in &copies {
                    let refusal = self.editor.would_create(copy).await?.err();
                    if refusal.is_some_and(|refusal| is_of_webhook(&refusal, webhooks)) {
                        return Ok(false);
                    }
                }
                Ok(true)
            },
        )
        .await
    }

    /// Restores what the steps have changed, the last first. So webhooks are last, when their Deployment is ready.
    ///
    /// # Errors
    /// A surprise, or a request that fails. Running the command again continues.
    pub async fn undo(&self, kept: &mut Kept) -> Result<()> {
        for at in (0..kept.journal.steps.len()).rev() {
            let Some(step) = kept.journal.steps.get(at).cloned() else {
                break;
            };
            if matches!(step.state, State::Planned | State::Restored) {
                continue;
            }
            if step.state != State::Restoring {
                kept.set(self.editor, at, State::Restoring).await?;
            }
            let is_new = match step.action {
                Action::Delete => self.restore(&step).await?,
                Action::Stop => self.start(&step).await.map(|()| true)?,
            };
            if is_webhook_configuration(&step) {
                self.keep_if_served(kept, &step, is_new).await?;
            }
            kept.set(self.editor, at, State::Restored).await?;
            let verb = match step.action {
                Action::Delete => "restored",
                Action::Stop => "started",
            };
            self.editor.print(&format!("{verb}: {}\n", step.what()))?;
        }
        Ok(())
    }

    /// Creates an object again, unless it exists. Whether it did not.
    async fn restore(&self, step: &Step) -> Result<bool> {
        let kind = step.kind().with_context(|| unknown(step))?;
        let object = Object::new(kind, step.object.clone());
        if is_token(&object) {
            return self.restore_token(step, &object).await.map(|()| true);
        }
        if self.current(step).await?.is_some() {
            return Ok(false);
        }
        self.create(&object).await
    }

    /// kube-controller-manager fills the Secret of a token. It deletes one if it has not noticed the account yet.
    async fn restore_token(&self, step: &Step, secret: &Object) -> Result<()> {
        let what = format!("kube-controller-manager to write a token into {}", step.what());
        self.wait(&what, async || {
            let (namespace, name) = (step.namespace.as_deref(), step.name.as_str());
            match self.editor.get(secret.kind, namespace, name).await? {
                Some(found) => Ok(!found.text("/data/token").is_empty()),
                None => self.create(secret).await.map(|_| false),
            }
        })
        .await
    }

    /// Creates an object. Whether it did not exist.
    async fn create(&self, object: &Object) -> Result<bool> {
        match self.editor.create(object).await {
            // An installer was faster.
            Err(failure) if failure.is_conflict() => Ok(false),
            result => result.map(|_| true).map_err(Into::into),
        }
    }

    /// Scales a Deployment up again, and waits until it is available.
    async fn start(&self, step: &Step) -> Result<()> {
        let wanted = step.replicas();
        let what = format!(
            "{} to be available; `kubectl describe` shows what it waits for",
            step.what()
        );
        self.wait(&what, async || {
            let Some(object) = self.current(step).await? else {
                bail!(
                    "{} does not exist, so it cannot be started; install the Go implementation again with its installer",
                    step.what()
                );
            };
            if object.number("/spec/replicas").unwrap_or(1) < wanted {
                match self.editor.scale(&object, wanted).await {
                    Err(failure) if failure.is_conflict() => {}
                    result => _ = result?,
                }
                return Ok(false);
            }
            Ok(is_observed(&object) && object.number("/status/availableReplicas").unwrap_or(0) >= wanted.min(1))
        })
        .await
    }

    /// A webhook configuration whose webhook does not respond would block writes. Then it is deleted again.
    async fn keep_if_served(&self, kept: &Kept, step: &Step, is_new: bool) -> Result<()> {
        self.editor
            .show("waiting until API servers have noticed the webhooks");
        if let Ok(settle) = Duration::try_from(self.settle) {
            tokio::time::sleep(settle).await;
        }
        let brief = Self {
            timeout: self.timeout.min(BLOCKED_AT_MOST),
            ..*self
        };
        let Err(error) = brief.writes_are_accepted(&kept.journal.webhooks).await else {
            return Ok(());
        };
        let object = self.current(step).await?;
        // An interrupted command has begun to restore it, and may have created it.
        let is_ours = |object: &Object| is_new || step.state == State::Restoring && is_restored(step, object);
        let message = match object {
            Some(object) if !is_ours(&object) => format!(
                "{} exists, which osmctl has not created, and the API server refuses writes; correct the webhook, or run \
                 `kubectl delete {} {}`. Then run the command again",
                step.what(),
                object.kind.plural,
                step.name
            ),
            object => {
                if let Some(object) = object {
                    self.editor.delete(&object).await?;
                }
                format!(
                    "{} is not restored, because the API server would refuse writes; correct the webhook, and run the command again",
                    step.what()
                )
            }
        };
        Err(error.context(message))
    }

    /// Asks again and again until the answer is yes.
    async fn wait(&self, what: &str, mut holds: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
        let started = Instant::now();
        while !holds().await? {
            if started.elapsed() >= self.timeout {
                bail!(
                    "timed out after {} s while waiting for {what}; correct the cause, and run the command again",
                    self.timeout.as_secs()
                );
            }
            self.editor.show(&format!("waiting for {what}"));
            tokio::time::sleep(INTERVAL).await;
        }
        Ok(())
    }
}

fn unknown(step: &Step) -> String {
    format!(
        "the journal names {}, which this version of osmctl does not migrate",
        step.what()
    )
}

/// Whether an object is the one that a step restores. Another program may have written the CA of its webhooks since.
fn is_restored(step: &Step, object: &Object) -> bool {
    let without_ca = |mut value: Value| {
        let webhooks = value.get_mut("webhooks").and_then(Value::as_array_mut);
        for webhook in webhooks.into_iter().flatten() {
            let config = webhook.get_mut("clientConfig").and_then(Value::as_object_mut);
            config.map(|config| config.shift_remove("caBundle"));
        }
        value
    };
    without_ca(restorable(object)) == without_ca(step.object.clone())
}

fn is_webhook_configuration(step: &Step) -> bool {
    [kinds::VALIDATING, kinds::MUTATING]
        .iter()
        .any(|kind| kind.kind == step.kind)
}

/// Whether a write is refused because one of these webhooks does not respond.
fn is_of_webhook(refusal: &str, webhooks: &[String]) -> bool {
    refusal.contains("failed calling webhook") && webhooks.iter().any(|webhook| refusal.contains(webhook))
}

/// Whether the status of a Deployment is about its newest spec.
fn is_observed(deployment: &Object) -> bool {
    deployment.number("/status/observedGeneration") >= deployment.number("/metadata/generation")
}

/// A copy of an object that would be a new one.
fn copy(object: &Object) -> Object {
    let metadata = object.value.pointer("/metadata");
    let field = |name: &str| metadata.and_then(|metadata| metadata.get(name)).cloned();
    let mut copy = json!({"metadata": {"name": WRITE_CHECK}, "spec": object.value.get("spec")});
    if let Some(fields) = copy.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        for name in ["namespace", "labels", "annotations"] {
            fields.extend(field(name).map(|value| (name.to_owned(), value)));
        }
    }
    Object::new(object.kind, copy)
}

#[cfg(test)]
mod tests {
    use super::super::find::fixtures::{INSTALLERS, objects, seen};
    use super::super::plan;
    use super::*;

    #[test]
    fn a_restored_configuration_is_known_although_its_ca_has_changed() {
        let (_, text) = INSTALLERS[0];
        let found = find::sort(&seen(objects(text)), &[]);
        let step = &plan::stop(&found)[0];
        let mut object = found.webhooks[0].clone();
        object.value["metadata"]["uid"] = json!("another");
        object.value["metadata"]["resourceVersion"] = json!("7");
        assert!(is_restored(step, &object));
        object.value["webhooks"][0]["clientConfig"]["caBundle"] = json!("Y2E=");
        assert!(is_restored(step, &object));
        object.value["webhooks"][0]["failurePolicy"] = json!("Ignore");
        assert!(!is_restored(step, &object));
    }
}
