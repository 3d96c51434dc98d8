//! `cargo xtask manifest`: writes the files in `deploy` that are rendered from the chart.

use anyhow::Result;
use osm_testkit::manifest;

use crate::generated::File;

pub async fn files() -> Result<Vec<File>> {
    Ok(vec![
        (manifest::file(), manifest::render().await?),
        (manifest::rules_file(), manifest::render_rules().await?),
    ])
}
