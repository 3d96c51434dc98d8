//! `osmctl import`: what OSM would do with a cluster of the Go implementation.
//!
//! ```text
//! report    the snapshot of a cluster → what would happen to each pool and profile; pure
//! text      a report for people and programs
//! ```

pub mod report;
pub mod text;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::Args;
use osm_api::Settings;
use osm_api::settings::SettingsError;

use crate::output::{Color, Format};
use crate::progress::Progress;
use crate::snapshot::Snapshot;
use crate::{cluster, diff, input, output};

/// Compare what OSM would render with what the Go implementation generated
///
/// The command reads the MachineDeployments, profiles and OperatingSystemConfigs of a cluster that the Go implementation runs.
/// It renders each pool as OSM would, and compares the result with the OperatingSystemConfig of the pool, file by file.
/// It also validates the profiles that no pool uses. The command only reads.
///
/// Configs of the Go implementation contain credentials. The output does not: whatever looks like a credential is replaced.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # What a migration would change
  osmctl import --settings settings.yaml

  # The lines that differ
  osmctl import --settings settings.yaml --diff

  # A control plane on a seed, with the machines in a user cluster
  osmctl import --settings settings.yaml --context seed -n cluster-x7k2 --worker-kubeconfig user-cluster.kubeconfig

Exit codes: 0 OSM renders every pool, and equally, 1 there are differences or refused profiles, 2 the cluster cannot be read.")]
pub struct Import {
    /// Settings document to render with [default: the one of the cluster, or the default settings]
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Print the lines that differ
    #[arg(long)]
    diff: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// When to colour
    #[arg(long, value_enum, default_value_t = Color::Auto)]
    color: Color,
    #[command(flatten)]
    cluster: cluster::Flags,
}

impl Import {
    /// Reads the cluster, compares and prints.
    pub fn run(self) -> Result<ExitCode> {
        let needs = cluster::Needs {
            profiles: true,
            custom_profiles: true,
            settings: true,
            endpoint: true,
            ..cluster::Needs::default()
        };
        let snapshot = cluster::read(&self.cluster, needs)?;
        snapshot.warn();
        let settings = self.settings(&snapshot)?;
        let progress = Progress::new();
        let report = report::report(&snapshot, &settings, |done, total| {
            progress.count("comparing pools", done, total);
        });
        drop(progress);
        output::print(&match self.output {
            Format::Text => text::text(&report, self.diff, self.color.is_on()),
            Format::Json => text::json(&report, self.diff, &snapshot),
        })?;
        Ok(match report.is_clean() {
            _ if !snapshot.unread.is_empty() => ExitCode::from(diff::ERROR),
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    }

    fn settings(&self, snapshot: &Snapshot) -> Result<Settings> {
        let settings = match (&self.settings, &snapshot.settings) {
            (Some(path), _) => input::settings_document(Some(path))?.settings,
            (None, Some(text)) => Settings::parse(text).map_err(|SettingsError(mistakes)| {
                anyhow!(
                    "the settings of the cluster are invalid: {}; provide others with --settings",
                    mistakes.join("; ")
                )
            })?,
            (None, None) => {
                eprintln!(
                    "osmctl: no settings were found in ConfigMap {}; the defaults are used. Provide those of the installation with --settings",
                    snapshot.settings_place()
                );
                Settings::default()
            }
        };
        let settings = diff::with_endpoint(snapshot, settings);
        if settings.cluster.api_server.is_none() || settings.cluster.ca_bundle.is_none() {
            eprintln!(
                "osmctl: the address or the CA of the API server is not known; set cluster.apiServer and cluster.caBundle in the settings"
            );
        }
        Ok(settings)
    }
}
