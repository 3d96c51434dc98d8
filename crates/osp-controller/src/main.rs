//! osp-controller: wiring only.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use osm_api::rbac::{Installation, Service};
use osm_runtime::{CommonArgs, ProfileArgs};

/// Installs the default OperatingSystemProfiles and judges every profile before a pool uses it.
///
/// Watches OperatingSystemProfiles and the settings; writes the default profiles and the status of all. What it accepts is
/// in status.accepted, and stays there when a later edit is refused; why it was refused is in the condition Accepted.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    profiles: ProfileArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Install the CustomResourceDefinitions, or bring those that are there to this version, and end. Newer ones stay.
    UpgradeCrds,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(Command::UpgradeCrds) = args.command {
        return osm_runtime::service::once(
            Service::OspController,
            args.common,
            osp_controller::crds::upgrade,
        );
    }
    let installation =
        Installation { profile_namespaces: args.profiles.profile_namespaces, ..args.common.installation() };
    osm_runtime::service::main(Service::OspController, args.common, None, installation, osp_controller::run)
}
