//! secret-syncer: wiring only.

use std::process::ExitCode;

use clap::Parser;
use osm_api::rbac::Service;
use osm_runtime::CommonArgs;
use osm_runtime::fleet::FleetArgs;
use secret_syncer::SecretSyncer;

/// Publishes OperatingSystemConfigs as Secrets in the namespace cloud-init-settings.
///
/// The service watches OperatingSystemConfigs and the objects that it creates for them. It issues and renews
/// the credentials with which new nodes fetch their configuration and join the cluster. It runs no templates.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    fleet: FleetArgs,
    /// Name of this installation, as a label on every object that it creates. Objects of other installations
    /// are never changed. The default is the value of --namespace.
    #[arg(long, env = "OSM_INSTALLATION", value_name = "NAME")]
    installation: Option<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let mut installation = args.common.installation();
    installation.id = args.installation.unwrap_or(installation.id);
    osm_runtime::service::serve::<SecretSyncer>(Service::SecretSyncer, args.common, args.fleet, installation)
}
