//! csr-approver: wiring only.

use std::process::ExitCode;

use clap::Parser;
use csr_approver::CsrApprover;
use osm_api::rbac::Service;
use osm_runtime::CommonArgs;
use osm_runtime::fleet::FleetArgs;

/// Approves the certificates of nodes that join as machines of their pool.
///
/// The service watches CertificateSigningRequests, MachineDeployments, MachineSets, Machines and Nodes of the
/// worker cluster. It approves a request only for a Machine of the requesting pool that has no Node yet. It
/// reads no settings, and no Secret but its kubeconfigs with --fleet.
#[derive(Parser)]
#[command(
    version,
    mut_arg("namespace", |arg| arg.help("Namespace of the installation. The service keeps its Leases there")),
    mut_arg("settings_config_map", |arg| arg.hide(true)),
)]
struct Args {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    fleet: FleetArgs,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let installation = args.common.installation();
    osm_runtime::service::serve::<CsrApprover>(Service::CsrApprover, args.common, args.fleet, installation)
}
