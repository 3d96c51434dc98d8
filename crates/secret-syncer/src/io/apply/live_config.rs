//! A config as the API server has it now, with its documents.

use osm_api::OperatingSystemConfig;
use osm_api::config::Rendered;
use osm_runtime::read;
use osm_runtime::request::failed;

use crate::io::context::Context;
use crate::model::view::ConfigView;

/// In errors.
pub const CONFIG: &str = "the OperatingSystemConfig";

/// A config as it is now.
pub struct LiveConfig {
    pub view: Box<ConfigView>,
    /// All of it. `None`: it can't be decoded.
    pub object: Option<Box<OperatingSystemConfig>>,
}

/// Reads a config. The cache learns of it, too.
///
/// # Errors
/// A request that failed; a conflict where there is no config.
pub async fn live_config(context: &Context, name: &str) -> Result<LiveConfig, osm_runtime::Error> {
    let api = context.configs();
    let found = read::get(
        &api,
        name,
        |mut config: OperatingSystemConfig| {
            // The view needs no documents, so they are not copied for it.
            let documents = rendered(&mut config).map(Rendered::take_documents);
            let view = Box::new(ConfigView::of(config.clone()));
            if let (Some(rendered), Some(documents)) = (rendered(&mut config), documents) {
                (rendered.bootstrap, rendered.provisioning) = documents;
            }
            LiveConfig {
                view,
                object: Some(Box::new(config)),
            }
        },
        |config| LiveConfig {
            view: Box::new(ConfigView::unreadable(config)),
            object: None,
        },
    );
    let Some(found) = found.await.map_err(failed(CONFIG))? else {
        return Err(osm_runtime::Error::Conflict { what: CONFIG });
    };
    context.saw_config(ConfigView::clone(&found.view));
    Ok(found)
}

fn rendered(config: &mut OperatingSystemConfig) -> Option<&mut Rendered> {
    config.status.as_mut()?.rendered.as_mut()
}
