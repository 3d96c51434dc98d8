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
    let mut command = Command::from(osm_testkit::cargo_tool::cargo());
    command.current_dir(crate::root()).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Builds everything as `cargo test --workspace` does, and gives the folder that holds the services. (Building the services
/// alone would choose other features for what they depend on, and so build that twice.)
///
/// # Errors
/// A build that fails.
pub async fn workspace() -> Result<PathBuf> {
    build(&["--workspace", "--all-targets"]).await
}

/// Builds the three services, and gives the folder that holds them. Cargo tells its progress on standard error.
///
/// # Errors
/// A build that fails.
pub async fn services(profile: Profile) -> Result<PathBuf> {
    let mut arguments = packages();
    if profile == Profile::Release {
        arguments.push("--release");
    }
    build(&arguments).await
}

/// As [`services`] in [`Profile::Release`], static: the programs need no file beside them. The C library is the one that all tests run with.
///
/// # Errors
/// A build that fails.
pub async fn static_services() -> Result<PathBuf> {
    let host = host().await?;
    let mut arguments = packages();
    // With a target, build scripts and macros stay as they are: those can't be static.
    arguments.extend(["--release", "--locked", "--target", &host]);
    let flags = format!("CARGO_TARGET_{}_RUSTFLAGS", host.to_uppercase().replace('-', "_"));
    let mut command = cargo();
    // Incremental builds are cut into more pieces, whatever the profile says.
    command.env(flags, "-C target-feature=+crt-static").env("CARGO_INCREMENTAL", "0");
    run(command, &arguments).await
}

/// The kind of machine that this is, as Rust names it.
///
/// # Errors
/// When rustc can't be asked.
pub async fn host() -> Result<String> {
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let output = command.arg("-vV").stdin(Stdio::null()).output().await.context("rustc can't be run")?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc names no host")?.to_owned())
}

fn packages() -> Vec<&'static str> {
    Service::ALL.iter().flat_map(|service| ["--package", service.name()]).collect()
}

async fn build(arguments: &[&str]) -> Result<PathBuf> {
    run(cargo(), arguments).await
}

async fn run(mut command: Command, arguments: &[&str]) -> Result<PathBuf> {
    command
        .args(["build", "--message-format=json-render-diagnostics"])
        .args(arguments)
        .stdout(Stdio::piped());
    let output = command.spawn().context("cargo can't be run")?.wait_with_output().await?;
    ensure!(output.status.success(), "cargo build failed");
    let messages = String::from_utf8(output.stdout).context("cargo's messages")?;
    let service = messages.lines().find_map(service).context("cargo built no service")?;
    Ok(service.parent().context("the folder of a service")?.to_owned())
}

/// The service that a message of cargo is about; its tests don't count.
fn service(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let of_service = |name: &Value| Service::ALL.iter().any(|service| name == service.name());
    let target = message.get("target").filter(|target| target.get("name").is_some_and(of_service))?;
    let is_binary = target.pointer("/kind/0")? == "bin" && message.pointer("/profile/test")? == false;
    message.get("executable")?.as_str().filter(|_| is_binary).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn artifact(name: &str, kind: &str, test: bool, executable: Option<&str>) -> String {
        json!({"reason": "compiler-artifact", "target": {"name": name, "kind": [kind]},
            "profile": {"test": test}, "executable": executable})
        .to_string()
    }

    #[test]
    fn services_are_found_among_cargos_messages() {
        let found = service(&artifact("osp-controller", "bin", false, Some("/t/debug/osp-controller")));
        assert_eq!(found, Some("/t/debug/osp-controller".into()));
        for other in [
            artifact("osp-controller", "bin", true, Some("/t/debug/deps/osp-controller-1f")),
            artifact("profiles", "test", true, Some("/t/debug/deps/profiles-1f")),
            artifact("osp_controller", "lib", false, None),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ] {
            assert_eq!(service(&other), None, "{other}");
        }
    }
}
