//! `osmctl diff`: what machines of each pool would get that they don't get now.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use osm_render::Stage;
use serde_json::{Value, json};

use crate::difference::{self, Difference};
use crate::output::{self, Color};
use crate::tree::Tree;
use crate::{input, pools};

/// Show what machines of each pool would get that they do not get now
///
/// OLD and NEW are files or folders with profiles, MachineDeployments and settings, or folders that `osmctl render -o dir=` wrote.
/// The command renders both sides and compares the files of the machines, their modes, their units, and the rest of the documents.
///
/// The inputs of -f belong to both sides: with the pools there, OLD and NEW need to contain only what differs.
/// To compare two releases, write one side with the other release's osmctl.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # What a change of a profile does to the pools of a cluster
  kubectl get machinedeployments -A -o yaml >pools.yaml
  osmctl diff -f pools.yaml old-profile.yaml new-profile.yaml

  # What an upgrade of OSM changes, before you upgrade
  osmctl-0.1 render pools.yaml -o dir=before
  osmctl diff before pools.yaml

Exit codes: 0 no differences, 1 differences, more than 1 an error.")]
pub struct Diff {
    /// The side that machines get now
    old: PathBuf,
    /// The side that they would get
    new: PathBuf,
    /// File or folder that belongs to both sides; can be repeated
    #[arg(short, long, value_name = "PATH")]
    filename: Vec<PathBuf>,
    /// Settings document of both sides [default: the one in the inputs, or the default settings]
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// When to colour
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    color: Color,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Unified diffs
    Text,
    /// Names of the files that differ
    Names,
    /// Differences as JSON, with the texts of both sides
    Json,
}

impl Diff {
    /// Compares and prints.
    pub fn run(self) -> Result<ExitCode> {
        let (old, new) = (self.side(&self.old)?, self.side(&self.new)?);
        let differences = difference::between(&old, &new);
        output::print(&match self.output {
            Format::Text => {
                let color = self.color.is_on();
                differences.iter().map(|one| one.unified(color)).collect()
            }
            Format::Names => differences
                .iter()
                .map(|one| format!("{} {}\n", one.kind(), one.path))
                .collect(),
            Format::Json => json(&differences),
        })?;
        Ok(if differences.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
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
                "{} contains no MachineDeployment; add the pools with -f, or name a folder that `osmctl render -o dir=` wrote",
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

fn json(differences: &[Difference]) -> String {
    let differences: Vec<Value> = differences
        .iter()
        .map(|one| json!({"path": one.path, "change": one.kind(), "old": one.old, "new": one.new}))
        .collect();
    format!("{:#}\n", json!({"differences": differences}))
}
