//! osc-controller: wiring only.

use std::process::ExitCode;

use clap::Parser;
use osm_api::rbac::Service;
use osm_runtime::CommonArgs;

/// Renders one OperatingSystemConfig per MachineDeployment.
///
/// Watches MachineDeployments, OperatingSystemProfiles, the settings and the cluster's API endpoint; writes
/// OperatingSystemConfigs. Has no right on any Secret, and never writes a MachineDeployment.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    common: CommonArgs,
}

fn main() -> ExitCode {
    osm_runtime::service::main(Service::OscController, Args::parse().common, osc_controller::run)
}
