//! A rendered text, and using it again: most texts of a profile read little or nothing of a pool, and so give the same
//! for one pool after the other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ::handlebars::Context;
use osm_api::config::LateBound;
use osm_api::digest;
use osm_api::profile::stored_bytes;
use osm_api::settings::Downloads;
use semver::Version;
use serde_json::Value;

use crate::downloads::Download;
use crate::handlebars::{Reads, reads};
use crate::late::{self, Damaged, Marker};

/// Most texts of one template that are kept.
const MAX_KEPT: usize = 8;

/// Everything that a text can depend on.
pub(crate) struct Inputs<'a> {
    pub(crate) context: Context,
    pub(crate) downloads: &'a Downloads,
    pub(crate) kubelet: &'a Version,
}

/// A rendered text.
pub(crate) struct Text {
    pub(crate) content: String,
    /// Its markers, as often as they stand there.
    pub(crate) markers: Vec<Marker>,
    /// What it had the URL of.
    pub(crate) downloads: Vec<Download>,
    /// Steps that it took.
    pub(crate) steps: u64,
    /// SHA-256, hex.
    pub(crate) digest: String,
    /// As [`stored_bytes`].
    pub(crate) stored_bytes: usize,
}

impl Text {
    /// A text that is taken as it is.
    pub(crate) fn verbatim(content: &str) -> Result<Self, Damaged> {
        let markers = late::markers(content)?;
        Ok(Self::new(content.to_owned(), markers, Vec::new(), 0))
    }

    /// A text that a template gave.
    pub(crate) fn new(content: String, markers: Vec<Marker>, downloads: Vec<Download>, steps: u64) -> Self {
        Self {
            digest: digest::sha256_hex(content.as_bytes()),
            stored_bytes: stored_bytes(&content),
            content,
            markers,
            downloads,
            steps,
        }
    }
}

/// The texts that a template gave last.
pub(crate) struct Memo {
    reads: Reads,
    /// The one that was used last comes first.
    kept: Mutex<Vec<Kept>>,
}

/// A text, and what it was made of.
struct Kept {
    text: Arc<Text>,
    /// What stood at each path that the template reads.
    read: Vec<Option<Value>>,
    /// `None`: it has no URL.
    downloads: Option<(Downloads, Version)>,
}

impl Memo {
    pub(crate) fn new(reads: Reads) -> Self {
        Self { reads, kept: Mutex::default() }
    }

    /// The text that rendering would give, if it was given before.
    pub(crate) fn find(&self, inputs: &Inputs<'_>, known: &BTreeMap<String, LateBound>) -> Option<Arc<Text>> {
        let read = self.read(inputs);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|kept| kept.holds_for(&read, inputs, known))?;
        kept.get_mut(..=at)?.rotate_right(1);
        kept.first().map(|kept| kept.text.clone())
    }

    pub(crate) fn keep(&self, text: &Arc<Text>, inputs: &Inputs<'_>) {
        let Inputs { downloads, kubelet, .. } = *inputs;
        let new = Kept {
            text: text.clone(),
            read: self.read(inputs).into_iter().map(Option::<&Value>::cloned).collect(),
            downloads: (!text.downloads.is_empty()).then(|| (downloads.clone(), kubelet.clone())),
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.truncate(MAX_KEPT - 1);
        kept.insert(0, new);
    }

    fn read<'i>(&self, inputs: &'i Inputs<'_>) -> Vec<Option<&'i Value>> {
        self.reads.iter().map(|path| reads::at(inputs.context.data(), path)).collect()
    }
}

impl Kept {
    /// Whether rendering would give this text again, where the template reads `read`.
    fn holds_for(
        &self,
        read: &[Option<&Value>],
        inputs: &Inputs<'_>,
        known: &BTreeMap<String, LateBound>,
    ) -> bool {
        let same = |(own, other): (&Option<Value>, &Option<&Value>)| match (own, other) {
            (Some(own), Some(other)) => reads::same(own, other),
            (own, other) => own.is_none() && other.is_none(),
        };
        let downloads = |(downloads, kubelet): &(Downloads, Version)| {
            downloads == inputs.downloads && kubelet == inputs.kubelet
        };
        self.read.iter().zip(read).all(same)
            && self.downloads.as_ref().is_none_or(downloads)
            && self.text.markers.iter().all(|marker| known.contains_key(&marker.id))
    }
}
