//! Owns the bootstrap Secret, and the Secret with the script of an edge pool: publishes them.

use std::collections::BTreeMap;

use osm_api::config::Published;

use crate::io::apply::objects;
use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::model::existing::WellKnown;
use crate::model::gathered::Gathered;
use crate::model::published_content::Entries;
use crate::plan::steps::Publish;

/// New machines boot with this from now on. Returns what the status says of it.
///
/// # Errors
/// As [`objects::replace`].
pub async fn write(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
    annotations: &BTreeMap<String, String>,
    data: Entries,
    edge_script: Option<Entries>,
) -> Result<Published, ApplyError> {
    let known = WellKnown::Bootstrap;
    let written = objects::replace(context, gathered, publish, known, annotations.clone(), data).await?;
    if let Some(script) = edge_script {
        let known = WellKnown::EdgeScript;
        objects::replace(context, gathered, publish, known, annotations.clone(), script).await?;
    }
    // It lacks an annotation only if another program changes what is written.
    let status = written.meta.published(&publish.wanted.digest);
    status.ok_or_else(|| osm_runtime::Error::Conflict { what: known.what() }.into())
}
