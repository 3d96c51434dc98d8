//! Documents with their tokens, and the Secrets that hold them.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Secret;

use crate::io::apply::objects;
use crate::io::context::Context;
use crate::model::documents::Documents;
use crate::model::gathered::Gathered;
use crate::model::tokens::Tokens;
use crate::plan::adoption::WellKnown;
use crate::plan::steps::Publish;

/// Documents with the tokens that they are written with.
pub struct Filled<'a> {
    pub documents: Cow<'a, Documents>,
    pub tokens: Tokens,
    /// Value of the annotation [`osm_api::names::BOUND_TO`].
    pub bound_to: String,
}

impl Filled<'_> {
    /// A Secret with the annotations that later decisions rest on, sealed together with its only data entry.
    pub fn secret(
        &self,
        context: &Context,
        gathered: &Gathered,
        publish: &Publish,
        known: WellKnown,
        name: &str,
        entry: Option<(&str, &[u8])>,
    ) -> Secret {
        let installation = &context.clients.installation;
        let mut metadata = objects::metadata(&publish.ownership, installation, name, known.role());
        let annotations = publish.annotations(&self.documents, &self.tokens, self.bound_to.clone());
        metadata.annotations.get_or_insert_default().extend(annotations);
        objects::sealed(&gathered.key, objects::secret(metadata, entry, false))
    }
}
