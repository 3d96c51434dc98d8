//! Builds the programs that other commands run.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use osm_api::rbac::Service;
use serde_json::Value;
use tokio::process::Command;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// As in the images: optimised, and static.
    Release,
    /// As [`Self::Release`], and the programs name the crates in them. Needs cargo-auditable.
    Auditable,
}

/// `cargo` in the root of the repository. Dropping its future ends the process.
pub fn cargo() -> Command {
    let mut command = Command::from(osm_judges::cargo_tool::cargo());
    command
        .current_dir(crate::root())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

/// Builds the services and the program that serves user clusters, and returns their directory. Cargo prints its
/// progress to standard error.
///
/// # Errors
/// A build that fails.
pub async fn fleet() -> Result<PathBuf> {
    build(
        Profile::Release,
        Service::ALL.map(Service::name).into_iter().chain(["osm-sim"]),
    )
    .await
}

/// The programs that have an image: the services, and osmctl for the CronJob of the chart.
pub fn programs_of_images() -> impl Iterator<Item = &'static str> {
    Service::ALL.map(Service::name).into_iter().chain(["osmctl"])
}

/// Builds all [`programs_of_images`], and returns their directory.
///
/// # Errors
/// A build that fails.
pub async fn programs(profile: Profile) -> Result<PathBuf> {
    build(profile, programs_of_images()).await
}

async fn build(profile: Profile, packages: impl IntoIterator<Item = &'static str>) -> Result<PathBuf> {
    let mut arguments: Vec<&str> = packages
        .into_iter()
        .flat_map(|package| ["--package", package])
        .collect();
    let mut command = cargo();
    if profile == Profile::Auditable {
        command.arg("auditable");
    }
    let host = host().await?;
    // With a target, the flags don't apply to build scripts and procedural macros, which can't be static.
    arguments.extend(["--release", "--locked", "--target", &host]);
    let flags = format!("CARGO_TARGET_{}_RUSTFLAGS", host.to_uppercase().replace('-', "_"));
    // Incremental builds ignore `codegen-units = 1` of the profile.
    command
        .env(flags, "-C target-feature=+crt-static")
        .env("CARGO_INCREMENTAL", "0");
    run(command, &arguments).await
}

/// The target triple of this machine.
async fn host() -> Result<String> {
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let output = command
        .arg("-vV")
        .stdin(Stdio::null())
        .output()
        .await
        .context("rustc can't be run")?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc prints no host")?.to_owned())
}

async fn run(mut command: Command, arguments: &[&str]) -> Result<PathBuf> {
    command
        .args(["build", "--message-format=json-render-diagnostics"])
        .args(arguments)
        .stdout(Stdio::piped());
    let output = command
        .spawn()
        .context("cargo can't be run")?
        .wait_with_output()
        .await?;
    ensure!(output.status.success(), "cargo build failed");
    let messages = String::from_utf8(output.stdout).context("cargo's messages")?;
    let service = messages
        .lines()
        .find_map(service)
        .context("cargo built no service")?;
    Ok(service.parent().context("the directory of a service")?.to_owned())
}

/// The program of a service, if this message of cargo reports one. Test programs don't count.
fn service(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let of_service = |name: &Value| Service::ALL.iter().any(|service| name == service.name());
    let target = message
        .get("target")
        .filter(|target| target.get("name").is_some_and(of_service))?;
    let is_binary = target.pointer("/kind/0")? == "bin" && message.pointer("/profile/test")? == false;
    message
        .get("executable")?
        .as_str()
        .filter(|_| is_binary)
        .map(PathBuf::from)
}
