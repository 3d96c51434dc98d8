//! A process that owns a control plane, for the test that kills it. Its argument is a file, to which it writes the control plane's directory.

use anyhow::{Context, Result};
use osm_testkit::{ControlPlane, Options};

#[tokio::main]
async fn main() -> Result<()> {
    let report = std::env::args().nth(1).context("usage: FILE")?;
    let control_plane = ControlPlane::start(Options::default()).await?;
    let kubeconfig = control_plane.admin_kubeconfig_path();
    let directory = kubeconfig.parent().context("a directory")?.display();
    // The test must never read half a path.
    let written = format!("{report}.new");
    std::fs::write(&written, directory.to_string())?;
    std::fs::rename(&written, report)?;
    std::future::pending().await
}
