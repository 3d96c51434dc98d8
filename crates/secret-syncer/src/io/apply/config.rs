//! Reads the config as the API server has it now, and makes the documents of its pool.

use osm_api::OperatingSystemConfig;
use osm_runtime::read;
use osm_runtime::request::failed;

use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::io::gather;
use crate::model::documents::Documents;
use crate::model::gathered::Gathered;
use crate::model::view::ConfigView;
use crate::plan::steps::Publish;

/// In errors.
pub const CONFIG: &str = "the OperatingSystemConfig";

/// Reads a config as it is now; all of it, unless it can't be decoded. The cache learns of it, too.
///
/// # Errors
/// A request that failed; a conflict where there is no config.
pub async fn live_config(
    context: &Context,
    name: &str,
) -> Result<(ConfigView, Option<Box<OperatingSystemConfig>>), osm_runtime::Error> {
    let api = context.configs();
    let found = read::get(
        &api,
        name,
        |config| (ConfigView::of(&config), Some(Box::new(config))),
        |config| (ConfigView::unreadable(config), None),
    );
    let Some(found) = found.await.map_err(failed(CONFIG))? else {
        return Err(osm_runtime::Error::Conflict { what: CONFIG });
    };
    context.saw_config(found.0.clone());
    Ok(found)
}

/// The documents to publish, still without a token. `None`: exactly these are published already.
///
/// # Errors
/// Requests that failed; a conflict where the config is no longer as planned; documents that can't be
/// generated.
pub async fn documents(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
) -> Result<Option<Documents>, ApplyError> {
    let (view, config) = live_config(context, &gathered.name).await?;
    let changed = osm_runtime::Error::Conflict { what: CONFIG };
    if !publish.is_allowed(gathered, &view) {
        return Err(changed.into());
    }
    let pool = gathered.pool();
    let documents = publish
        .wanted
        .documents(config.as_deref(), &pool)?
        .ok_or(changed)?;
    let published = match &publish.compare {
        Some(record) => gather::published(context, &pool, record.clone()).await?,
        None => None,
    };
    let is_new = published.is_none_or(|published| !documents.are_published(&published));
    Ok(is_new.then_some(documents))
}
