//! `osmctl diff`: what machines of each pool would get that they don't get now. `live` compares with a
//! cluster.

mod live;

pub use live::{of_cluster, settings_maps, with_endpoint};

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use osm_user_data::Stage;

use crate::difference::{self, Difference};
use crate::tree::Tree;
use crate::{cluster, input, output, pools};

/// Exit code of an error, as of `kubectl diff`.
pub const ERROR: u8 = 2;

/// Show what machines of each pool would get that they do not get now
///
/// Without --cluster, two PATHs are required: OLD and NEW. Each is a file or folder with profiles,
/// MachineDeployments and settings, or a folder that `osmctl render -o dir=` wrote. The command renders both
/// sides and compares the files of the machines, their modes, their units, and the rest of the documents. The
/// inputs of -f belong to both sides: with the pools there, OLD and NEW need to contain only what differs.
///
/// With --cluster, the old side is what the OperatingSystemConfigs of the cluster contain.
/// The PATHs contain what is new. Everything else is that of the cluster: MachineDeployments, accepted
/// profiles and settings.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # What a change of a profile does to the machines of a cluster
  osmctl diff --cluster new-profile.yaml

  # In which clusters of a fleet it changes something
  osmctl diff --cluster --all new-profile.yaml --context seed

  # What two versions of a profile render to, for the pools in a file
  osmctl diff -f pools.yaml old-profile.yaml new-profile.yaml

  # What an upgrade of OSM changes, before you upgrade
  osmctl-0.1 render pools.yaml -o dir=before
  osmctl diff before pools.yaml

Exit codes: 0 no differences, 1 differences, more than 1 an error.")]
pub struct Diff {
    /// Files or folders to compare: OLD and NEW, or with --cluster only NEW
    #[arg(value_name = "PATH", required_unless_present = "cluster")]
    paths: Vec<PathBuf>,
    /// Compare with what the machines of a cluster get now
    #[arg(long)]
    cluster: bool,
    /// With --cluster: read all user clusters of a fleet, by the kubeconfigs in the seed, and print how many pools of
    /// each would change
    #[arg(long, requires = "cluster", conflicts_with_all = ["pool", "settings", "worker_kubeconfig", "worker_context"])]
    all: bool,
    /// With --cluster: only this pool, NAME or NAMESPACE/NAME of a MachineDeployment; can be repeated
    #[arg(long, value_name = "POOL", requires = "cluster")]
    pool: Vec<String>,
    /// File or folder that belongs to both sides; can be repeated
    #[arg(short, long, value_name = "PATH", conflicts_with = "cluster")]
    filename: Vec<PathBuf>,
    /// Settings document of both sides [default: the one in the inputs, or the default settings]. With
    /// --cluster: of the new side
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    #[command(flatten)]
    flags: cluster::Flags,
}

/// `is_incomplete`: not all could be compared.
fn code(differs: bool, is_incomplete: bool) -> ExitCode {
    match differs {
        _ if is_incomplete => ExitCode::from(ERROR),
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

/// Two sides, and whether a part of them could not be compared.
struct Sides {
    old: Tree,
    new: Tree,
    is_incomplete: bool,
}

impl Diff {
    /// Compares and prints.
    pub fn run(self) -> Result<ExitCode> {
        if self.all {
            return live::of_fleet(&self.flags, &self.paths);
        }
        let Sides {
            old,
            new,
            is_incomplete,
        } = self.sides()?;
        let differences = difference::between(&old, &new);
        let text: String = differences.iter().map(Difference::unified).collect();
        output::print(&text)?;
        Ok(code(!differences.is_empty(), is_incomplete))
    }

    fn sides(&self) -> Result<Sides> {
        if self.cluster {
            return live::sides(&self.flags, &self.paths, self.settings.as_deref(), &self.pool);
        }
        let [old, new] = self.paths.as_slice() else {
            bail!(
                "2 PATHs are required (OLD and NEW), got {}; provide both, or use --cluster",
                self.paths.len()
            );
        };
        Ok(Sides {
            old: self.side(old)?,
            new: self.side(new)?,
            is_incomplete: false,
        })
    }

    fn side(&self, path: &Path) -> Result<Tree> {
        if let Some(tree) = Tree::read(path)? {
            return Ok(tree);
        }
        let sources: Vec<PathBuf> = [path.to_owned()]
            .into_iter()
            .chain(self.filename.iter().cloned())
            .collect();
        let manifests = input::manifests(&sources)?;
        if manifests.machine_deployments.is_empty() {
            bail!(
                "{} contains no MachineDeployment; provide those of both sides with -f, or a folder that `osmctl render -o dir=` wrote",
                path.display()
            );
        }
        let settings = input::settings(&manifests, self.settings.as_deref())?.settings;
        let of_side = || format!("side {}", path.display());
        let selected = pools::select(&manifests, &sources, &settings, None).with_context(of_side)?;
        let rendered = pools::render(&selected).with_context(of_side)?;
        Tree::of(&rendered, &Stage::ALL)
    }
}
