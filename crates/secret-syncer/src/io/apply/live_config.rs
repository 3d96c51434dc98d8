//! A config as the API server has it now, with its documents.

use osm_api::OperatingSystemConfig;
use osm_runtime::read;
use osm_runtime::request::failed;

use crate::io::context::Context;
use crate::model::view::ConfigView;

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
