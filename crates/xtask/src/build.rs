//! Builds what other commands run.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use osm_api::rbac::Service;
use serde_json::Value;
use tokio::process::Command;

/// Optimised or quickly built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// As tests are.
    Dev,
    /// As installed.
    Release,
}

/// `cargo`, in the root of the repository. It ends with the future that runs it.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(crate::root()).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Builds the three services, and gives the folder that holds them. Cargo tells its progress on standard error.
///
/// # Errors
/// A build that fails.
pub async fn services(profile: Profile) -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--message-format=json-render-diagnostics"]).stdout(Stdio::piped());
    command.args(Service::ALL.iter().flat_map(|service| ["--package", service.name()]));
    if profile == Profile::Release {
        command.arg("--release");
    }
    let output = command.spawn().context("cargo can't be run")?.wait_with_output().await?;
    ensure!(output.status.success(), "the services can't be built");
    let executables = String::from_utf8(output.stdout).context("cargo's messages")?;
    let service = executables.lines().find_map(executable).context("cargo built no executable")?;
    Ok(service.parent().context("the executable's folder")?.to_owned())
}

/// The executable that a message of cargo is about.
fn executable(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    message.get("executable")?.as_str().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_found_among_cargos_messages() {
        let message = r#"{"reason":"compiler-artifact","executable":"/t/debug/osp-controller"}"#;
        assert_eq!(executable(message), Some("/t/debug/osp-controller".into()));
        assert_eq!(executable(r#"{"reason":"compiler-artifact","executable":null}"#), None);
        assert_eq!(executable(r#"{"reason":"build-finished","success":true}"#), None);
    }
}
