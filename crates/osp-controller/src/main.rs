//! osp-controller: wiring only.

use std::process::ExitCode;

use clap::Parser;
use osm_api::rbac::{Installation, Service};
use osm_runtime::{CommonArgs, ProfileArgs};

/// Installs the default OperatingSystemProfiles and judges every profile before a pool uses it.
///
/// Watches OperatingSystemProfiles and the settings; writes the default profiles and the status of all. What it accepts is
/// in status.accepted, and stays there when a later edit is refused; why it was refused is in the condition Accepted.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    profiles: ProfileArgs,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let installation =
        Installation { profile_namespaces: args.profiles.profile_namespaces, ..args.common.installation() };
    osm_runtime::service::main(Service::OspController, args.common, installation, osp_controller::run)
}
