//! `osmctl render`: the user data of a MachineDeployment, with stand-ins for what only a cluster knows.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use osm_api::config::MachineDeploymentRef;
use osm_api::pool;
use osm_api::settings::Settings;
use osm_render::ClusterEndpoint;

use crate::profiles::Chosen;
use crate::{input, output};

/// Print the user data that the controllers would write for a MachineDeployment
///
/// The profile is, in this order: the one of --profile; the one that the MachineDeployment's annotation
/// k8c.io/operating-system-profile names, or osp-OPERATINGSYSTEM, taken from -f or else from the built-in ones.
///
/// Credentials stand in no document printed here: in their places are names such as "api/token". Where the settings
/// give no API server or CA, which the controllers read from the cluster, stand-ins are used, and standard error says so.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # What a machine of this pool gets from its cloud
  osmctl render -f machine-deployment.yaml --stage bootstrap

  # What that then fetches from the API server, with the cluster's settings
  osmctl render -f machine-deployment.yaml --settings settings.yaml --stage provisioning

  # Try a profile that is being written with a pool of the cluster
  kubectl get -n kube-system machinedeployment pool -o yaml \\
    | osmctl render -f - --profile my-profile.yaml --stage provisioning")]
pub struct Render {
    /// MachineDeployment, in a YAML stream that may also hold profiles; - for standard input
    #[arg(short, long, value_name = "FILE|-")]
    filename: PathBuf,
    /// Settings document; without one, the default settings
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// OperatingSystemProfile to use, whatever the MachineDeployment says: a file, or the name of a built-in one
    #[arg(long, value_name = "FILE|NAME")]
    profile: Option<PathBuf>,
    /// Which of the two documents to print
    #[arg(long, value_enum)]
    stage: Stage,
}

#[derive(Clone, Copy, ValueEnum)]
enum Stage {
    /// What the cloud hands to a new machine
    Bootstrap,
    /// What the machine then fetches and applies
    Provisioning,
}

impl Render {
    /// Renders and prints.
    pub fn run(self) -> Result<()> {
        let manifests = input::manifests(&self.filename)?;
        let [machine_deployment] = manifests.machine_deployments.as_slice() else {
            bail!(
                "{} holds {} MachineDeployments: give exactly one",
                self.filename.display(),
                manifests.machine_deployments.len()
            );
        };
        let settings = input::settings(self.settings.as_deref())?;
        let pool = input::pool(machine_deployment)?;
        let profile = Chosen::of(
            machine_deployment,
            &pool,
            self.profile.as_deref(),
            &manifests.profiles,
            &self.filename,
        )?;
        let rendered = profile.render(&pool, &settings, &endpoint(&settings))?;
        output::warnings(&rendered.warnings);

        let mut config = rendered.spec;
        config.machine_deployment = Some(MachineDeploymentRef {
            namespace: pool.namespace.clone(),
            name: pool.name.clone(),
            uid: machine_deployment.metadata.uid.clone().unwrap_or_default(),
            revision: pool::revision(machine_deployment).map(str::to_owned),
            template_digest: pool::template_digest(machine_deployment),
        });
        let stage = match self.stage {
            Stage::Bootstrap => osm_render::Stage::Bootstrap,
            Stage::Provisioning => osm_render::Stage::Provisioning,
        };
        let document = osm_render::user_data(&config, stage, &osm_render::placeholders(&config))?;
        output::print(&document)
    }
}

/// The API server of the settings, with stand-ins for what they leave to the cluster.
fn endpoint(settings: &Settings) -> ClusterEndpoint {
    let stand_in = osm_render::stand_in_cluster();
    let mut missing = Vec::new();
    let mut given = |value: &Option<String>, field, stand_in| {
        value.clone().unwrap_or_else(|| {
            missing.push(field);
            stand_in
        })
    };
    let endpoint = ClusterEndpoint {
        api_server: given(&settings.cluster.api_server, "cluster.apiServer", stand_in.api_server),
        ca: given(&settings.cluster.ca_bundle, "cluster.caBundle", stand_in.ca),
    };
    if !missing.is_empty() {
        eprintln!("osmctl: the settings leave {} to the cluster: using stand-ins", missing.join(" and "));
    }
    endpoint
}
