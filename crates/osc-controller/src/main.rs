//! osc-controller: wiring only.

use std::process::ExitCode;

use clap::Parser;
use osm_api::rbac::Service;
use osm_runtime::{CommonArgs, ProfileArgs};

/// Renders one OperatingSystemConfig per MachineDeployment.
///
/// Watches MachineDeployments, OperatingSystemProfiles, the settings and the cluster's API endpoint; writes
/// OperatingSystemConfigs. Has no right on any Secret, and never writes a MachineDeployment.
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
    osm_runtime::service::main(Service::OscController, args.common, Some(args.profiles), osc_controller::run)
}
