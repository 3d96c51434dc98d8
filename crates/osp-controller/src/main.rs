//! osp-controller: wiring only.

use std::process::ExitCode;

use clap::Parser;
use osm_api::rbac::{Installation, Service};
use osm_runtime::{AdmissionArgs, CommonArgs, ProfileArgs};

/// Installs the default OperatingSystemProfiles and validates every profile before a pool uses it.
///
/// osp-controller watches OperatingSystemProfiles and the settings. It writes the default profiles, and the
/// status of every profile. It copies an accepted profile to status.accepted, and the copy stays in use when
/// a later edit is refused. The condition Accepted explains why an edit is refused.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    profiles: ProfileArgs,
    /// Copy the CustomOperatingSystemProfiles of KKP in all these namespaces into OperatingSystemProfiles,
    /// and keep the copies up to date.
    #[arg(long, env = "OSM_CUSTOM_PROFILES")]
    custom_profiles: bool,
    #[command(flatten)]
    admission: AdmissionArgs,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let installation = Installation {
        profile_namespaces: args.profiles.profile_namespaces,
        custom_profiles: args.custom_profiles,
        ..args.common.installation()
    };
    osm_runtime::service::main(Service::OspController, args.common, installation, |cluster| {
        osp_controller::run(cluster, args.admission)
    })
}
