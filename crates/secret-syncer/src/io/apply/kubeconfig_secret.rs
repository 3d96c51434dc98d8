//! Owns the kubeconfig Secret, which machines of some pools fetch with their token.

use std::collections::BTreeMap;

use osm_api::names;

use crate::io::apply::objects;
use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::model::existing::WellKnown;
use crate::model::gathered::Gathered;
use crate::model::published_content::Entries;
use crate::model::token::Token;
use crate::plan::provisioning_secret::keep_until;
use crate::plan::steps::Publish;

/// `data`: `None` where machines fetch none.
///
/// # Errors
/// As [`objects::replace`].
pub async fn write(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
    annotations: &BTreeMap<String, String>,
    data: Option<Entries>,
    token: &Token,
) -> Result<(), ApplyError> {
    let Some(data) = data else { return Ok(()) };
    // Tokens that were published with it before may still fetch it.
    let keep_until = keep_until(gathered.existing.kubeconfig.as_deref(), token.expires);
    let mut annotations = annotations.clone();
    annotations.insert(names::KEEP_UNTIL.to_owned(), keep_until.to_string());
    let known = WellKnown::Kubeconfig;
    objects::replace(context, gathered, publish, known, annotations, data).await?;
    Ok(())
}
