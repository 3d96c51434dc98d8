//! A rendered text, and how late-bound values get into it.
//!
//! The data of an engine may contain markers, or an engine places them by [`Placements::place`], whatever its
//! language calls that. It then makes a [`RenderedText`] by [`Placements::text`].

use std::collections::BTreeMap;

use osm_api::config::LateBound;
use osm_user_data::late_bound::{self, Encoding, Marker};

/// A text in which everything that looks like a marker is one.
pub(crate) struct RenderedText {
    pub(crate) content: String,
    /// Its markers, once for each time that they occur.
    pub(crate) markers: Vec<Marker>,
}

/// The markers that the templates of a stage may place.
pub(crate) struct Placements<'a> {
    known: &'a BTreeMap<String, LateBound>,
}

impl<'a> Placements<'a> {
    pub(crate) fn new(known: &'a BTreeMap<String, LateBound>) -> Self {
        Self { known }
    }

    /// What a template writes for the late-bound value `id`. The problem does not repeat the id, which may be
    /// data.
    pub(crate) fn place(&self, id: &str, encoding: Option<&str>) -> Result<String, String> {
        if !self.known.contains_key(id) && id.starts_with(late_bound::SECRET_PREFIX) {
            return Err(
                "a Secret must be named by a literal text \"secret/<namespace>/<name>/<key>\", and only in provisioningConfig"
                    .to_owned(),
            );
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
        let id = id.to_owned();
        Ok(Marker { id, encoding }.to_string())
    }

    /// The output of one template, if all that looks like a marker is one of a value of this stage.
    pub(crate) fn text(&self, content: String) -> Result<RenderedText, String> {
        let markers = late_bound::markers(&content).map_err(|_| {
            "a credential, or a name that is known only when user data is published, is cut: print it as a whole"
        })?;
        match markers.iter().find(|marker| !self.known.contains_key(&marker.id)) {
            Some(Marker { id, .. }) => Err(format!(
                "the late-bound value {id} can't be used in this stage of this pool; remove the variable that prints it, or move this \
                 text to the other stage; rhel/… needs a MachineDeployment with a complete subscription"
            )),
            None => Ok(RenderedText { content, markers }),
        }
    }
}
