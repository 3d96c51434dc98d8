//! `cargo xtask manifest`: writes `deploy/operating-system-manager.yaml`.

use anyhow::Result;
use osm_testkit::manifest;

use crate::generated;

/// Render deploy/operating-system-manager.yaml, which installs the services without Helm
#[derive(clap::Args)]
pub struct Manifest {
    /// Write nothing; fail if the file is out of date
    #[arg(long)]
    check: bool,
}

impl Manifest {
    /// Writes or checks the file.
    ///
    /// # Errors
    /// A chart that can't be rendered, a file that differs (with `--check`) or can't be written.
    pub async fn run(&self) -> Result<()> {
        let files = [(
            crate::root().join("deploy/operating-system-manager.yaml"),
            manifest::render().await?,
        )];
        let bad = "out of date (run `cargo xtask manifest`)";
        generated::settle(
            &generated::stale(files),
            self.check,
            "the manifest is up to date",
            bad,
        )
    }
}
