//! `osmctl render`: what the controllers write for MachineDeployments, with placeholders for what only a
//! cluster knows.

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Result, bail};
use clap::Args;
use osm_user_data::yaml;

use crate::tree::{StageName, Tree};
use crate::{input, output, pools};

/// Exit code of a wrong command line, as of clap.
const USAGE_ERROR: u8 = 2;

/// Print what the controllers would write for MachineDeployments
///
/// The flag --profile selects the profile. Without it, the annotation k8c.io/operating-system-profile of the
/// MachineDeployment does. The default is osp-OPERATINGSYSTEM. The command looks for the profile in -f first,
/// then among the built-in profiles.
///
/// The output contains no credentials. Names such as "api/token" mark their places. If the settings contain
/// no API server or no CA, the command uses placeholders and reports them on standard error. The controllers
/// read both from the cluster.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # The user data that a machine of this pool gets from its cloud
  osmctl render -f machine-deployment.yaml --stage bootstrap

  # The document that the machine then fetches from the API server, with the settings of the cluster
  osmctl render -f machine-deployment.yaml --settings settings.yaml --stage provisioning

  # Try a new profile with a pool of the cluster
  kubectl get -n kube-system machinedeployment pool -o yaml \\
    | osmctl render -f - --profile my-profile.yaml --stage provisioning

  # The files that machines of all pools in a folder would have, below ./machines/NAMESPACE/POOL
  osmctl render manifests/ -o dir=machines

  # The OperatingSystemConfigs that osc-controller would write
  osmctl render manifests/ -o yaml")]
pub struct Render {
    /// Files and folders with MachineDeployments, profiles and settings; - reads standard input
    #[arg(value_name = "PATH", required_unless_present = "filename")]
    paths: Vec<PathBuf>,
    /// The same as PATH; can be repeated
    #[arg(short, long, value_name = "PATH|-")]
    filename: Vec<PathBuf>,
    /// Settings document [default: the one in the inputs, or the default settings]
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Profile to use instead of the one that each MachineDeployment selects: a file, or the name of a
    /// built-in profile
    #[arg(long, value_name = "FILE|NAME")]
    profile: Option<PathBuf>,
    /// Document; with -o user-data it is required, with -o dir= the default is both
    #[arg(long, value_enum)]
    stage: Option<StageName>,
    /// Output: user-data (one document of one pool), yaml (OperatingSystemConfigs), or dir=PATH (the files of
    /// machines)
    #[arg(short, long, value_name = "FORMAT", default_value = "user-data")]
    output: Format,
}

#[derive(Clone)]
enum Format {
    UserData,
    Yaml,
    Folder(PathBuf),
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "user-data" => Ok(Self::UserData),
            "yaml" => Ok(Self::Yaml),
            _ => match text.strip_prefix("dir=") {
                Some(path) if !path.is_empty() => Ok(Self::Folder(path.into())),
                _ => Err("use user-data, yaml or dir=PATH".to_owned()),
            },
        }
    }
}

impl Render {
    /// Renders and prints.
    pub fn run(self) -> Result<ExitCode> {
        if matches!((&self.output, self.stage), (Format::UserData, None)) {
            output::note(
                "osmctl: -o user-data prints one document; select it with --stage bootstrap or --stage provisioning",
            );
            return Ok(ExitCode::from(USAGE_ERROR));
        }
        let sources: Vec<PathBuf> = self.filename.iter().chain(&self.paths).cloned().collect();
        let manifests = input::manifests(&sources)?;
        let settings = input::settings(&manifests, self.settings.as_deref())?.settings;
        let selected = pools::select(&manifests, &sources, &settings, self.profile.as_deref())?;
        let pools = pools::render(&selected)?;
        pools::warn(&selected, &pools);
        if pools.is_empty() {
            bail!(
                "the inputs contain 0 MachineDeployments; provide at least one, for -o user-data provide exactly one"
            );
        }
        match (&self.output, self.stage) {
            (Format::UserData, Some(stage)) => match pools.as_slice() {
                [pool] => drop(output::raw(&pool.document(stage.into())?)?),
                _ => bail!(
                    "the inputs contain {} MachineDeployments; provide exactly one, or use another --output",
                    pools.len()
                ),
            },
            // Refused above.
            (Format::UserData, None) => {}
            (Format::Yaml, _) => {
                let object = |pool: &pools::RenderedPool| {
                    // What serializes has a JSON form.
                    let object = serde_json::to_value(pool.object()).unwrap_or_default();
                    yaml::write(&object).map_err(anyhow::Error::msg)
                };
                let objects: Result<Vec<String>> = pools.iter().map(object).collect();
                output::raw(&objects?.join("---\n"))?;
            }
            (Format::Folder(folder), stage) => {
                let stages = stage.map_or(osm_user_data::Stage::ALL.to_vec(), |stage| vec![stage.into()]);
                Tree::of(&pools, &stages)?.write(folder)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
