//! The journal of a migration: a Secret, because the private key of the webhook's certificate may be among what it keeps. It is written before
//! each step, so that an interrupted migration can be continued and rolled back.

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::kinds;
use super::plan::{State, Step};
use crate::cluster::{Editor, Object};

/// Name of the Secret, in the namespace of the installation.
pub const NAME: &str = "osm-migration";

const KEY: &str = "journal.json";

/// The largest journal, below the limit of 1 MiB for a Secret, whose content is encoded by base64 on the way.
const MAX_BYTES: usize = 900 << 10;

/// What has happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Journal {
    pub phase: Phase,
    /// Values of the chart.
    pub values: Value,
    /// Names of the webhooks whose configurations are deleted; a refusal names one of them.
    pub webhooks: Vec<String>,
    /// Services that these webhooks call.
    pub services: Vec<String>,
    /// When the last webhook configuration was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_webhooks_at: Option<Timestamp>,
    pub steps: Vec<Step>,
}

/// How far a migration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// `apply` has begun.
    Stopping,
    /// The Go implementation is stopped, and OSM can be installed.
    Stopped,
    /// `finish` has begun.
    CleaningUp,
    Finished,
    /// `rollback` has begun.
    RollingBack,
}

/// A journal in the cluster.
pub struct Kept {
    pub journal: Journal,
    secret: Object,
}

impl Kept {
    /// The journal of a namespace, if there is one.
    ///
    /// # Errors
    /// A request that fails, or a Secret of this name that is no journal.
    pub async fn read(editor: &Editor<'_>, namespace: &str) -> Result<Option<Self>> {
        let Some(secret) = editor.get(kinds::SECRET, Some(namespace), NAME).await? else {
            return Ok(None);
        };
        let journal = decoded(&secret).with_context(|| {
            format!("Secret {namespace}/{NAME} is not a journal of this version of osmctl; use the version that wrote it; if the Secret has another purpose, create it under another name, and delete this one")
        })?;
        Ok(Some(Self { journal, secret }))
    }

    /// Writes the first journal of a migration.
    ///
    /// # Errors
    /// A request that fails, or a journal that exists.
    pub async fn create(editor: &Editor<'_>, namespace: &str, journal: Journal) -> Result<Self> {
        let secret = Object::new(
            kinds::SECRET,
            json!({
                "type": "Opaque",
                "metadata": {"name": NAME, "namespace": namespace, "labels": {"app.kubernetes.io/managed-by": "osmctl"}},
                "stringData": {KEY: encoded(&journal)?},
            }),
        );
        let secret = editor.create(&secret).await?;
        Ok(Self { journal, secret })
    }

    /// Writes the journal. Fails if another osmctl has written it.
    ///
    /// # Errors
    /// A request that fails.
    pub async fn write(&mut self, editor: &Editor<'_>) -> Result<()> {
        let mut secret = self.secret.clone();
        let text = encoded(&self.journal)?;
        if let Some(fields) = secret.value.as_object_mut() {
            fields.shift_remove("data");
            fields.insert("stringData".to_owned(), json!({KEY: text}));
        }
        self.secret = editor.replace(&secret).await.map_err(|failure| {
            if failure.is_conflict() {
                anyhow::anyhow!(
                    "another osmctl continues this migration at the same time; wait until it has ended"
                )
            } else {
                failure.into()
            }
        })?;
        Ok(())
    }

    /// Sets the state of a step, and writes the journal.
    ///
    /// # Errors
    /// A request that fails.
    pub async fn set(&mut self, editor: &Editor<'_>, step: usize, state: State) -> Result<()> {
        if let Some(step) = self.journal.steps.get_mut(step) {
            step.state = state;
        }
        self.write(editor).await
    }

    /// Sets the phase, and writes the journal.
    ///
    /// # Errors
    /// A request that fails.
    pub async fn enter(&mut self, editor: &Editor<'_>, phase: Phase) -> Result<()> {
        self.journal.phase = phase;
        self.write(editor).await
    }

    /// Deletes the journal.
    ///
    /// # Errors
    /// A request that fails.
    pub async fn delete(self, editor: &Editor<'_>) -> Result<()> {
        Ok(editor.delete(&self.secret).await?)
    }
}

fn encoded(journal: &Journal) -> Result<String> {
    let text = serde_json::to_string(journal).context("cannot write the journal")?;
    if text.len() > MAX_BYTES {
        bail!(
            "the objects of the Go implementation are larger than a journal can keep; migrate by the manual steps of docs/migration.md"
        );
    }
    Ok(text)
}

fn decoded(secret: &Object) -> Option<Journal> {
    let data = secret.value.pointer("/data")?.get(KEY)?;
    let bytes: ByteString = serde_json::from_value(data.clone()).ok()?;
    serde_json::from_slice(&bytes.0).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal() -> Journal {
        Journal {
            phase: Phase::Stopping,
            values: json!({"settings": {}}),
            webhooks: vec!["w".to_owned()],
            services: Vec::new(),
            deleted_webhooks_at: None,
            steps: Vec::new(),
        }
    }

    #[test]
    fn a_journal_is_read_as_it_was_written() {
        let mut journal = journal();
        journal.deleted_webhooks_at = Some("2026-01-02T03:04:05Z".parse().unwrap());
        let text = encoded(&journal).unwrap();
        let data = serde_json::to_value(ByteString(text.into_bytes())).unwrap();
        let secret = Object::new(kinds::SECRET, json!({"data": {KEY: data}}));
        assert_eq!(decoded(&secret), Some(journal));
        for other in [
            json!({}),
            json!({"data": {KEY: "!"}}),
            json!({"data": {KEY: "e30="}}),
        ] {
            assert_eq!(decoded(&Object::new(kinds::SECRET, other)), None);
        }
    }

    #[test]
    fn a_journal_fits_a_secret() {
        let mut journal = journal();
        let with = |bytes: usize| json!("x".repeat(bytes));
        journal.values = with(MAX_BYTES - encoded(&journal).unwrap().len());
        assert!(encoded(&journal).is_ok());
        journal.values = with(MAX_BYTES);
        assert!(encoded(&journal).is_err());
    }
}
