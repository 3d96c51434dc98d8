//! `osmctl lint`: what the cluster would refuse, and what a reviewer would comment on.

mod hints;
mod pool;
mod profile;
mod report;
mod scripts;
mod spec;
mod yaml_traps;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use osm_api::names::{self, SETTINGS_KEY};

use crate::input::{self, Manifests};
use crate::pools::RenderedPool;
use crate::problem::{Problem, Problems, Severity};
use crate::profiles::built_ins;
use crate::{output, pools};

/// Check profiles, MachineDeployments and settings
///
/// Errors are what the API server, osp-controller, osc-controller and secret-syncer would refuse. The command
/// runs the code of these services: it renders each profile for every cloud provider that the profile
/// supports, with each minor version of the kubelet, with default settings and with everything set.
///
/// Warnings are what a reviewer would comment on: scripts without `set -e`, credentials that users other than
/// root can read, user data near the limit of a cloud provider, variables that do not exist, and values that
/// YAML parsers read differently.
///
/// Without PATH, the command checks the built-in profiles.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # All profiles, pools and settings in a folder
  osmctl lint manifests/

  # In a workflow on GitHub, with annotations in the pull request
  osmctl lint profiles/ -o github

  # Rendered scripts, with shellcheck
  osmctl render manifests/ -o dir=machines
  find machines -type f -exec grep -l '^#!/bin/sh' {} + | xargs shellcheck

Exit codes: 0 no errors, 1 errors, 2 usage error.")]
pub struct Lint {
    /// Files and folders with profiles, MachineDeployments and settings; - reads standard input
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The same as PATH; can be repeated
    #[arg(short, long, value_name = "PATH|-")]
    filename: Vec<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// Exit with 1 also if there are only warnings
    #[arg(long)]
    warnings_as_errors: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// One problem per line, and its hint
    Text,
    /// All problems as JSON
    Json,
    /// Annotations of GitHub workflows
    Github,
}

impl Lint {
    /// Checks and prints.
    pub fn run(self) -> Result<ExitCode> {
        let sources: Vec<PathBuf> = self.filename.iter().chain(&self.paths).cloned().collect();
        let (mut manifests, mut problems) = input::read(&sources);
        if sources.is_empty() {
            manifests.profiles = built_ins();
        }
        problems.extend(check(&manifests, &sources)?);
        sort(&mut problems);
        let checked = checked(&manifests);
        match self.output {
            Format::Text => output::print(&report::text(&problems))?,
            Format::Json => output::print(&report::json(&problems))?,
            // These lines are commands.
            Format::Github => drop(output::raw(&report::github(&problems))?),
        }
        let count = |severity| {
            problems
                .iter()
                .filter(|problem| problem.severity == severity)
                .count()
        };
        let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
        output::note(&format!(
            "osmctl: {}, {} in {checked}",
            output::count(errors, "error"),
            output::count(warnings, "warning")
        ));
        if errors > 0 || (self.warnings_as_errors && warnings > 0) {
            Ok(ExitCode::FAILURE)
        } else {
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn checked(manifests: &Manifests) -> String {
    let settings = manifests.settings.len() + manifests.settings_maps.len();
    [
        output::count(manifests.profiles.len(), "profile"),
        output::count(manifests.machine_deployments.len(), "MachineDeployment"),
        output::count(settings, "settings document"),
    ]
    .join(", ")
}

/// All problems of manifests that could be read.
fn check(manifests: &Manifests, sources: &[PathBuf]) -> Result<Vec<Problem>> {
    let mut problems = profile::check_all(&manifests.profiles)?;
    let settings = manifests.settings.iter().map(|item| &item.origin);
    let settings = settings.chain(manifests.settings_maps.iter().map(|item| &item.origin));
    let in_map = format!("data.{SETTINGS_KEY}");
    let of_pool = format!("metadata.annotations.{}", names::SETTINGS);
    let pools = manifests.machine_deployments.iter().map(|item| &item.origin);
    for (origin, text) in settings
        .map(|origin| (origin, &in_map))
        .chain(pools.map(|origin| (origin, &of_pool)))
    {
        problems.extend(yaml_traps::check(origin, ""));
        problems.extend(yaml_traps::check_text(origin, text));
    }
    problems.extend(check_pools(manifests, sources)?);
    Ok(problems)
}

/// What osc-controller would report about the pools.
fn check_pools(manifests: &Manifests, sources: &[PathBuf]) -> Result<Vec<Problem>> {
    let settings = match input::settings(manifests, None) {
        Ok(document) => document.settings,
        Err(error) => return Ok(error.downcast::<Problems>()?.0),
    };
    let mut problems = pool::check_together(&manifests.machine_deployments, &settings);
    problems.extend(pool::check_twice(&manifests.machine_deployments));
    problems.extend(pool::check_twice(&manifests.profiles));
    // What is wrong with one pool hides nothing of another.
    let selected = pools::select_all(manifests, sources, &settings, None)?;
    let rendered = pools::render_all(&selected.good)?;
    problems.extend(pool::check_checksums(&selected.good, &manifests.settings));
    problems.extend(selected.problems.into_iter().chain(rendered.problems));
    problems.extend(rendered.good.iter().flat_map(warnings));
    // Without settings, it is not known what they allow.
    if !manifests.settings.is_empty() {
        let sources = rendered.good.iter();
        problems.extend(sources.flat_map(|one| pool::check_sources(one, &settings)));
    }
    Ok(problems)
}

/// What works, but may not be what was meant.
fn warnings(pool: &RenderedPool) -> impl Iterator<Item = Problem> {
    let name = &pool.pool_ref.name;
    let warning = move |warning| {
        Problem::warning(
            "pool",
            pool.place.clone(),
            format!("MachineDeployment {name}: {warning}"),
        )
    };
    pool.warnings.iter().map(warning)
}

/// In the order of places. The profile of a pool is checked by itself, too, so that a problem can occur
/// twice.
fn sort(problems: &mut Vec<Problem>) {
    problems.sort_by(|a, b| (&a.place, a.severity, &a.message).cmp(&(&b.place, b.severity, &b.message)));
    problems.dedup_by(|b, a| {
        a.place == b.place
            && a.rule == b.rule
            && (a.message.contains(&b.message) || b.message.contains(&a.message))
    });
}
