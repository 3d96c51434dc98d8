//! secret-syncer: wiring only.

use std::net::IpAddr;
use std::process::ExitCode;

use clap::Parser;
use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser as _};
use osm_api::Joining;
use osm_api::rbac::{AdmissionObjects, Installation, Service};
use osm_runtime::{CommonArgs, WorkerArgs};
use secret_syncer::io::clients::Names;
use secret_syncer::io::program;

/// Publishes OperatingSystemConfigs as Secrets in the namespace cloud-init-settings.
///
/// The service watches OperatingSystemConfigs and the objects that it creates for them. It issues and renews the credentials with
/// which new nodes fetch their configuration and join the cluster. It runs no templates.
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(flatten)]
    common: CommonArgs,
    #[command(flatten)]
    worker: WorkerArgs,
    /// Name of this installation, as a label on every object that it creates. Objects of other installations are never changed.
    /// The default is the value of --namespace.
    #[arg(long, env = "OSM_INSTALLATION", value_name = "NAME")]
    installation: Option<String>,
    /// How machines join. approved: with their pool's token, which may only ask, while csr-approver approves. static: with a token of
    /// osm-node-bootstrap or a bootstrap token, for which kube-controller-manager approves the certificate of any node.
    #[arg(long, env = "OSM_JOINING", value_name = "MODE", default_value_t,
          value_parser = PossibleValuesParser::new(Joining::names()).try_map(|mode| mode.parse::<Joining>()))]
    joining: Joining,
    /// Secret in the namespace of the pods in which secret-syncer keeps the key pair of the admission webhooks. The Secret must exist,
    /// perhaps without content. Without this flag, the webhooks have another certificate, or do not exist.
    #[arg(
        long,
        env = "OSM_ADMISSION_SECRET",
        value_name = "NAME",
        requires = "admission_hosts"
    )]
    admission_secret: Option<String>,
    /// Names and addresses by which API servers reach the admission webhooks, comma-separated.
    #[arg(
        long,
        env = "OSM_ADMISSION_HOSTS",
        value_name = "HOSTS",
        value_delimiter = ',',
        requires = "admission_secret",
        value_parser = NonEmptyStringValueParser::new()
    )]
    admission_hosts: Vec<String>,
    /// ValidatingWebhookConfiguration for profiles, which gets the CA of the key pair.
    #[arg(
        long,
        env = "OSM_ADMISSION_PROFILES_WEBHOOK",
        value_name = "NAME",
        requires = "admission_secret"
    )]
    admission_profiles_webhook: Option<String>,
    /// ValidatingWebhookConfiguration for MachineDeployments, in the worker cluster, which gets the CA of the key pair.
    #[arg(
        long,
        env = "OSM_ADMISSION_MACHINE_DEPLOYMENTS_WEBHOOK",
        value_name = "NAME",
        requires = "admission_secret"
    )]
    admission_machine_deployments_webhook: Option<String>,
}

/// A host as a certificate has it: several texts are the same IPv6 address.
fn canonical(host: String) -> String {
    host.parse::<IpAddr>().map_or(host, |address| address.to_string())
}

fn main() -> ExitCode {
    let args = Args::parse();
    let id = args.installation.unwrap_or_else(|| args.common.namespace.clone());
    let worker = args.worker.worker_cluster_kubeconfig;
    let (profiles, machine_deployments) = (
        args.admission_profiles_webhook,
        args.admission_machine_deployments_webhook,
    );
    let installation = Installation {
        joining: args.joining,
        admission: args.admission_secret.map(|secret| AdmissionObjects {
            secret,
            profiles,
            machine_deployments,
        }),
        ..args.common.installation()
    };
    osm_runtime::service::main(
        Service::SecretSyncer,
        args.common,
        worker,
        installation,
        |process, cluster| {
            let names = Names {
                installation: id,
                program: program::digest_of_this(),
                admission_hosts: args.admission_hosts.into_iter().map(canonical).collect(),
            };
            secret_syncer::run(process, cluster, names)
        },
    )
}
