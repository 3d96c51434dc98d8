//! A process that owns a control plane, for the tests that watch what remains when such a process ends or is killed.
//!
//! Arguments: a file, to which the process writes the directory of its control plane, and `stays` or `ends`.

use anyhow::{Context, Result};
use osm_testkit::ControlPlane;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (report, mode) = arguments
        .next()
        .zip(arguments.next())
        .context("usage: FILE stays|ends")?;
    let control_plane = ControlPlane::shared().await?;
    let kubeconfig = control_plane.admin_kubeconfig_path();
    let directory = kubeconfig
        .parent()
        .context("the kubeconfig has no directory")?
        .display()
        .to_string();
    // The tests must never read half a path.
    let written = format!("{report}.new");
    std::fs::write(&written, directory)?;
    std::fs::rename(&written, report)?;
    if mode == "stays" {
        std::future::pending::<()>().await;
    }
    Ok(())
}
