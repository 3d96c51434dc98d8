//! A rendered text, and how late-bound values get into it.
//!
//! An engine places markers by [`Placements::place`], whatever its language calls that, and makes a [`RenderedText`] by
//! [`Placements::text`], which finds out whether every marker is intact. An engine whose data contain markers finds that out by itself,
//! and uses [`Placements::copied`].

use std::collections::BTreeMap;

use osm_api::config::LateBound;
use parking_lot::Mutex;

use crate::late_bound::{self, Encoding, Marker};

/// A text in which every marker is one that its template placed.
pub(crate) struct RenderedText {
    pub(crate) content: String,
    /// Its markers, once for each time that they occur.
    pub(crate) markers: Vec<Marker>,
}

/// Why an output whose data contain markers is refused.
pub(crate) enum NotCopied {
    /// Something that looks like a marker is none.
    Cut,
    /// The stage has no late-bound value with this id.
    OtherStage(String),
}

/// The markers that the templates of a stage may place.
pub(crate) struct Placements<'a> {
    known: &'a BTreeMap<String, LateBound>,
    /// Those of the text that is being rendered, once for each time that they were placed.
    placed: Mutex<Vec<Marker>>,
}

impl<'a> Placements<'a> {
    pub(crate) fn new(known: &'a BTreeMap<String, LateBound>) -> Self {
        Self {
            known,
            placed: Mutex::default(),
        }
    }

    /// Ids of the values of Secrets that the templates name.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &'a str> {
        let ids = self.known.keys().map(String::as_str);
        ids.filter(|id| id.starts_with(late_bound::SECRET_PREFIX))
    }

    /// What a template writes for the late-bound value `id`. The problem does not repeat the id, which may be data.
    pub(crate) fn place(&self, id: &str, encoding: Option<&str>) -> Result<String, String> {
        if !self.known.contains_key(id) && id.starts_with(late_bound::SECRET_PREFIX) {
            return Err(late_bound::SECRET_RULE.to_owned());
        }
        if !self.known.contains_key(id) {
            let known: Vec<&str> = self.known.keys().map(String::as_str).collect();
            let known = if known.is_empty() {
                "nothing".to_owned()
            } else {
                known.join(", ")
            };
            return Err(format!(
                "there is no such value in this stage; here it can be {known}"
            ));
        }
        let encoding = encoding
            .and_then(Encoding::of_template)
            .ok_or("write as=\"raw\", \"toml\", \"yaml\", \"json\", \"shell\" or \"b64\"")?;
        let marker = Marker {
            id: id.to_owned(),
            encoding,
        };
        let text = marker.to_string();
        self.placed.lock().push(marker);
        Ok(text)
    }

    /// The output of one template whose data contain markers, if all that look like markers are.
    pub(crate) fn copied(&self, content: String) -> Result<RenderedText, NotCopied> {
        let markers = late_bound::markers(&content).map_err(|_| NotCopied::Cut)?;
        match markers.iter().find(|marker| !self.known.contains_key(&marker.id)) {
            Some(marker) => Err(NotCopied::OtherStage(marker.id.clone())),
            None => Ok(RenderedText { content, markers }),
        }
    }

    /// The output of one template, if every marker that it placed is in it as often as it was placed, and nothing else that looks
    /// like a marker.
    pub(crate) fn text(&self, content: String) -> Result<RenderedText, String> {
        let destroyed = || {
            "a late-bound value went through something that changes it: write {{late …}} alone, with as=\"…\" for its encoding"
                .to_owned()
        };
        let placed = std::mem::take(&mut *self.placed.lock());
        let markers = late_bound::markers(&content).map_err(|_| destroyed())?;
        let mut missing: BTreeMap<&Marker, usize> = BTreeMap::new();
        for marker in &placed {
            *missing.entry(marker).or_default() += 1;
        }
        for marker in &markers {
            let left = missing.get_mut(marker).ok_or_else(destroyed)?;
            *left = left.saturating_sub(1);
        }
        if missing.values().any(|left| *left > 0) {
            return Err(destroyed());
        }
        Ok(RenderedText { content, markers })
    }
}
