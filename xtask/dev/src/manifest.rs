//! `cargo xtask manifest`: writes the files in `deploy` that are rendered from the chart.

use anyhow::Result;
use osm_testkit::manifest;

use crate::generated;

/// Render the files in deploy: one installs the services without Helm, and one has the alerts
#[derive(clap::Args)]
pub struct Manifest {
    /// Write nothing; fail if a file is out of date
    #[arg(long)]
    check: bool,
}

impl Manifest {
    /// Writes or checks the files.
    ///
    /// # Errors
    /// A chart that can't be rendered, a file that differs (with `--check`) or can't be written.
    pub async fn run(&self) -> Result<()> {
        let deploy = crate::root().join("deploy");
        let files = [
            (
                deploy.join("operating-system-manager.yaml"),
                manifest::render().await?,
            ),
            (
                deploy.join("prometheus-rules.yaml"),
                manifest::render_rules().await?,
            ),
        ];
        let bad = "out of date (run `cargo xtask manifest`)";
        generated::settle(
            &generated::stale(files),
            self.check,
            "the files in deploy are up to date",
            bad,
        )
    }
}
