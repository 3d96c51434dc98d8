//! `osmctl render`: the user data of a MachineDeployment, with placeholders for what only a cluster knows.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use osm_api::content::RenderedFor;
use osm_api::settings::Settings;
use osm_api::{PoolRef, pool};
use osm_render::ClusterEndpoint;

use crate::profiles::Chosen;
use crate::{input, output};

/// Print the user data that the controllers would write for a MachineDeployment
///
/// The flag --profile selects the profile. Without it, the annotation k8c.io/operating-system-profile of the
/// MachineDeployment does. The default is osp-OPERATINGSYSTEM. The command looks for the profile in -f first, then among
/// the built-in profiles.
///
/// The output contains no credentials. Names such as "api/token" mark their places. If the settings contain no API server
/// or no CA, the command uses placeholders and reports them on standard error. The controllers read both from the cluster.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # The user data that a machine of this pool gets from its cloud
  osmctl render -f machine-deployment.yaml --stage bootstrap

  # The document that the machine then fetches from the API server, with the settings of the cluster
  osmctl render -f machine-deployment.yaml --settings settings.yaml --stage provisioning

  # Try a new profile with a pool of the cluster
  kubectl get -n kube-system machinedeployment pool -o yaml \\
    | osmctl render -f - --profile my-profile.yaml --stage provisioning")]
pub struct Render {
    /// Read the MachineDeployment from this YAML file, which may also contain profiles; - reads standard input
    #[arg(short, long, value_name = "FILE|-")]
    filename: PathBuf,
    /// Settings document [default: the default settings]
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Use this profile instead of the MachineDeployment's: a file, or the name of a built-in profile
    #[arg(long, value_name = "FILE|NAME")]
    profile: Option<PathBuf>,
    /// Document to print
    #[arg(long, value_enum)]
    stage: Stage,
}

#[derive(Clone, Copy, ValueEnum)]
enum Stage {
    /// The user data that the cloud provides to a new machine
    Bootstrap,
    /// The document that the machine then fetches and applies
    Provisioning,
}

impl Render {
    /// Renders and prints.
    pub fn run(self) -> Result<()> {
        let manifests = input::manifests(&self.filename)?;
        let [machine_deployment] = manifests.machine_deployments.as_slice() else {
            bail!(
                "{} contains {} MachineDeployments; provide exactly one",
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
        let rendered_for = RenderedFor {
            pool: PoolRef::from(machine_deployment),
            revision: pool::revision(machine_deployment).map(str::to_owned),
            template_digest: pool::template_digest(machine_deployment),
        };
        rendered_for.store(&mut config);
        let stage = match self.stage {
            Stage::Bootstrap => osm_render::Stage::Bootstrap,
            Stage::Provisioning => osm_render::Stage::Provisioning,
        };
        let document = osm_render::user_data(&config, stage, &osm_render::placeholders(&config))?;
        output::print(&document)
    }
}

/// The API server of the settings, with placeholders for what they do not set.
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
        api_server: given(
            &settings.cluster.api_server,
            "cluster.apiServer",
            stand_in.api_server,
        ),
        ca: given(&settings.cluster.ca_bundle, "cluster.caBundle", stand_in.ca),
    };
    if !missing.is_empty() {
        eprintln!(
            "osmctl: the settings do not set {}; the output contains placeholders",
            missing.join(" and ")
        );
    }
    endpoint
}
