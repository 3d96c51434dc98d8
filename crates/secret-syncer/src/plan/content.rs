//! Chooses what is to be published: the content of a config, with the values that its documents take from
//! other objects, or what is published already, with other tokens.

use std::fmt;
use std::sync::Arc;

use osm_api::config::Stored;
use osm_api::{OperatingSystemConfig, names};
use osm_user_data::LateValues;

use crate::model::documents::{DocumentError, Documents};
use crate::model::gathered::Gathered;
use crate::model::memory::MadeFrom;
use crate::model::published_content::Published;
use crate::model::record::published_from;
use crate::model::source::Inputs;
use crate::model::view::ConfigView;

#[derive(Clone, Debug)]
pub struct Wanted {
    pub origin: Origin,
    pub revision: String,
    /// Digest of the content.
    pub digest: String,
    /// As the annotation of this name.
    pub published_from: String,
    pub is_edge: bool,
    pub needs_kubeconfig_secret: bool,
    /// With what is published.
    pub comparison: Comparison,
}

#[derive(Clone)]
pub enum Origin {
    /// Of the config, if it still has this [id](crate::model::view::ConfigView::content_id), with these
    /// values of sources.
    Config { id: String, values: LateValues },
    /// What is published already.
    Published(Arc<Published>),
}

/// Without the values.
impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config { id, .. } => write!(f, "Config({id})"),
            Self::Published(published) => write!(f, "Published({})", published.record.provisioning_secret),
        }
    }
}

impl Wanted {
    /// The content of the config.
    pub fn new(gathered: &Gathered, config: &ConfigView, rendered: &Stored, inputs: &Inputs) -> Self {
        Self {
            origin: Origin::Config {
                id: config.content_id(),
                values: inputs.values.clone(),
            },
            revision: rendered.revision.clone().unwrap_or_default(),
            digest: rendered.digest.clone(),
            published_from: published_from(&rendered.digest, &inputs.references),
            is_edge: config.is_edge,
            needs_kubeconfig_secret: config.needs_kubeconfig_secret,
            comparison: compare(gathered, &rendered.digest, inputs),
        }
    }

    /// What is published already.
    pub fn published(published: &Arc<Published>) -> Self {
        let (record, content) = (&published.record, &published.content);
        Self {
            origin: Origin::Published(Arc::clone(published)),
            revision: record.revision.clone(),
            digest: record.digest.clone(),
            published_from: record.published_from.clone(),
            is_edge: content.is_edge(),
            needs_kubeconfig_secret: content.needs_kubeconfig_secret(),
            comparison: Comparison::Same,
        }
    }

    /// Its documents, still without a token. `config`: as the API server has it now, unless it can't be
    /// decoded. `None`: then there are none, if they are made from it.
    ///
    /// # Errors
    /// Documents that can't be generated.
    pub fn documents(
        &self,
        config: Option<&OperatingSystemConfig>,
        pool: &str,
    ) -> Result<Option<Documents>, DocumentError> {
        let documents = match (&self.origin, config) {
            (Origin::Config { .. }, None) => return Ok(None),
            (Origin::Config { values, .. }, Some(config)) => {
                Documents::make(config.content()?, values.clone(), pool)
            }
            (Origin::Published(published), _) => Documents::published(published, pool),
        };
        documents.map(Some)
    }

    /// What is published, which was `recorded` as published from this, is the same.
    pub fn made_from(&self, recorded: &str) -> Option<MadeFrom> {
        let Origin::Config { values, .. } = &self.origin else {
            return None;
        };
        Some(MadeFrom {
            published_from: recorded.to_owned(),
            digest: self.digest.clone(),
            values: values.clone(),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Same,
    Different,
    /// An object that values come from has changed since, or another version published; the documents have to
    /// be compared.
    Unknown,
}

/// What the bootstrap Secret was published from.
pub fn recorded(gathered: &Gathered) -> Option<&str> {
    let bootstrap = gathered.existing.bootstrap.as_ref()?;
    bootstrap.meta.annotation(names::PUBLISHED_FROM)
}

/// `digest`: of the rendered content. Without a bootstrap Secret nothing is the same.
pub fn compare(gathered: &Gathered, digest: &str, inputs: &Inputs) -> Comparison {
    let Some(recorded) = recorded(gathered) else {
        return Comparison::Different;
    };
    let made_from = gathered.memory.made_from.as_ref();
    match made_from.filter(|made_from| made_from.published_from == recorded) {
        // More than the reference shows: after etcd was restored, a resourceVersion may stand for another
        // value.
        Some(known) if known.digest == digest && known.values == inputs.values => Comparison::Same,
        Some(_) => Comparison::Different,
        None if recorded == published_from(digest, &inputs.references) => Comparison::Same,
        None => Comparison::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use osm_user_data::LateValues;

    use super::*;
    use crate::plan::fixtures::{edit_bootstrap, published};

    fn inputs(state: &str, value: &str) -> Inputs {
        Inputs {
            values: LateValues::from([("password".to_owned(), value.to_owned())]),
            references: [format!("Secret/n/s={state}")].into(),
        }
    }

    #[test]
    fn a_changed_reference_alone_is_no_new_content() {
        let before = inputs("u/1", "a");
        let recorded = published_from("d", &before.references);
        let mut after_a_restart = published();
        edit_bootstrap(&mut after_a_restart, |secret| {
            secret
                .meta
                .annotations
                .insert(names::PUBLISHED_FROM, recorded.clone());
        });
        after_a_restart.memory.made_from = None;
        let mut running = after_a_restart.clone();
        running.memory.made_from = Some(MadeFrom {
            published_from: recorded,
            digest: "d".into(),
            values: before.values.clone(),
        });
        let (same, different, unknown) = (Comparison::Same, Comparison::Different, Comparison::Unknown);
        for (what, gathered, digest, inputs, expected) in [
            ("nothing has changed", &running, "d", inputs("u/1", "a"), same),
            (
                "the same, after a restart",
                &after_a_restart,
                "d",
                inputs("u/1", "a"),
                same,
            ),
            (
                "rewritten without a change",
                &running,
                "d",
                inputs("u/2", "a"),
                same,
            ),
            (
                "the same, after a restart",
                &after_a_restart,
                "d",
                inputs("u/2", "a"),
                unknown,
            ),
            ("another value", &running, "d", inputs("u/2", "b"), different),
            ("etcd was restored", &running, "d", inputs("u/1", "b"), different),
            ("another content", &running, "e", inputs("u/1", "a"), different),
            (
                "the same, after a restart",
                &after_a_restart,
                "e",
                inputs("u/1", "a"),
                unknown,
            ),
        ] {
            assert_eq!(compare(gathered, digest, &inputs), expected, "{what}");
        }
    }
}
