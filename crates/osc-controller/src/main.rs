//! osc-controller: wiring only.

use std::process::ExitCode;

use clap::Parser;
use clap::builder::NonEmptyStringValueParser;
use osc_controller::OscController;
use osm_api::rbac::{Installation, Service};
use osm_runtime::fleet::FleetArgs;
use osm_runtime::{CommonArgs, ProfileArgs};

/// Renders one OperatingSystemConfig per MachineDeployment.
///
/// The service watches MachineDeployments, OperatingSystemProfiles, the settings and the cluster's API
/// endpoint, and writes OperatingSystemConfigs. It needs no permission on Secrets, except on its kubeconfigs
/// with --fleet. It never writes a MachineDeployment, except to remove a finalizer if
/// --remove-upstream-finalizers is set.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    fleet: FleetArgs,
    #[command(flatten)]
    profiles: ProfileArgs,
    /// Namespace of profiles for MachineDeployments that name no namespace, and whose profile isn't in
    /// --namespace. Another installation validates the profiles there.
    #[arg(
        long,
        env = "OSM_FALLBACK_PROFILE_NAMESPACE",
        value_name = "NAMESPACE",
        value_parser = NonEmptyStringValueParser::new()
    )]
    fallback_profile_namespace: Option<String>,
    /// Namespaces in which ConfigMaps may hold the settings of a pool, comma-separated. A MachineDeployment
    /// selects such a ConfigMap of its namespace in its annotation operatingsystemmanager.k8c.io/settings.
    #[arg(
        long,
        env = "OSM_POOL_SETTINGS_NAMESPACES",
        value_name = "NAMESPACES",
        value_delimiter = ',',
        default_value = "kube-system"
    )]
    pool_settings_namespaces: Vec<String>,
    /// Namespaces whose MachineDeployments get user data, comma-separated; without this flag, all. A pool
    /// that was published before in another namespace stays published, and its credentials are renewed.
    #[arg(
        long,
        env = "OSM_MACHINE_DEPLOYMENT_NAMESPACES",
        value_name = "NAMESPACES",
        value_delimiter = ',',
        value_parser = NonEmptyStringValueParser::new()
    )]
    machine_deployment_namespaces: Vec<String>,
    /// Remove the finalizer kubermatic.io/cleanup-operating-system-configs of the upstream OSM from
    /// MachineDeployments that are being deleted. Set this only if the upstream OSM no longer runs. It
    /// requires permission to patch MachineDeployments.
    #[arg(long, env = "OSM_REMOVE_UPSTREAM_FINALIZERS")]
    remove_upstream_finalizers: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let installation = Installation {
        profile_namespaces: args.profiles.profile_namespaces,
        fallback_profile_namespace: args.fallback_profile_namespace,
        pool_settings_namespaces: args.pool_settings_namespaces,
        machine_deployment_namespaces: args.machine_deployment_namespaces,
        go_finalizers: args.remove_upstream_finalizers,
        ..args.common.installation()
    };
    osm_runtime::service::serve::<OscController>(
        Service::OscController,
        args.common,
        args.fleet,
        installation,
    )
}
