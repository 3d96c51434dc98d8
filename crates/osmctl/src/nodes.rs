//! The nodes that a command selects, and what they download.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Result, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use osm_api::Pool;
use osm_api::settings::{ARCHITECTURES, Settings};
use osm_render::Download;
use semver::Version;

use crate::input::{self, Manifests, SettingsDocument};
use crate::profiles::Chosen;
use crate::{output, pools};

/// Flags that select nodes.
#[derive(Args)]
pub struct Nodes {
    #[command(flatten)]
    source: Source,
    /// Profile: a file, or the name of a built-in profile. With -f, it replaces the profiles of the
    /// MachineDeployments
    #[arg(long, value_name = "FILE|NAME")]
    profile: Option<PathBuf>,
    /// Settings document [default: the one in -f, or else the default settings]
    #[arg(long, value_name = "FILE")]
    pub settings: Option<PathBuf>,
    /// Architecture of the nodes; can be repeated [default: all]
    #[arg(long, value_parser = PossibleValuesParser::new(ARCHITECTURES))]
    arch: Vec<String>,
}

/// A kind of node with what it is rendered from.
type Node = (Pool, Rc<Chosen>, Settings);

/// Where pools come from.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct Source {
    /// Read MachineDeployments from this YAML file, which may also contain profiles; - reads standard input
    #[arg(short, long, value_name = "FILE|-")]
    filename: Option<PathBuf>,
    /// Version of the kubelet, with --profile and instead of -f; can be repeated
    #[arg(long, value_name = "VERSION", value_parser = version, requires = "profile")]
    kubelet_version: Vec<Version>,
}

fn version(text: &str) -> Result<Version, String> {
    Version::parse(text.strip_prefix('v').unwrap_or(text))
        .map_err(|_| "is not a version; use the form 1.34.2".to_owned())
}

impl Nodes {
    /// What all of them download, each file once and in order, by which settings.
    pub fn downloads(&self) -> Result<(SettingsDocument, Vec<Download>)> {
        let sources: Vec<PathBuf> = self.source.filename.iter().cloned().collect();
        let manifests = input::manifests(&sources)?;
        let document = input::settings(&manifests, self.settings.as_deref())?;
        let nodes = if sources.is_empty() {
            self.of_versions(&document.settings)?
        } else {
            self.of_manifests(&manifests, &sources, &document.settings)?
        };
        // URLs do not depend on it.
        let cluster = osm_render::stand_in_cluster();
        let (mut downloads, mut warnings) = (BTreeSet::new(), BTreeSet::new());
        for (pool, profile, settings) in nodes {
            let rendered = profile.render(&pool, None, &settings, &cluster)?;
            downloads.extend(rendered.downloads);
            warnings.extend(rendered.warnings);
        }
        // Without manifests, the pools are samples with every IP family, which the cluster need not have.
        warnings.retain(|warning| !(sources.is_empty() && warning.starts_with("cluster.")));
        output::warnings(&warnings);
        if downloads.is_empty() {
            output::note(
                "osmctl: the profile's templates ask for no download; what they put together without download-url is not \
                 known here",
            );
        }
        downloads.retain(|download| {
            self.arch.is_empty() || self.arch.iter().any(|arch| arch == download.architecture)
        });
        Ok((document, downloads.into_iter().collect()))
    }

    fn of_manifests(
        &self,
        manifests: &Manifests,
        sources: &[PathBuf],
        settings: &Settings,
    ) -> Result<Vec<Node>> {
        if manifests.machine_deployments.is_empty() {
            bail!(
                "{} contains no MachineDeployment; provide at least one, or use --profile and --kubelet-version",
                sources
                    .first()
                    .map(|source| source.display().to_string())
                    .unwrap_or_default()
            );
        }
        let selected = pools::select(manifests, sources, settings, self.profile.as_deref())?;
        let node = |selected: pools::Selected| (selected.pool, selected.profile, selected.settings);
        Ok(selected.into_iter().map(node).collect())
    }

    fn of_versions(&self, settings: &Settings) -> Result<Vec<Node>> {
        // The command line is refused without one.
        let argument = self.profile.as_deref().unwrap_or(Path::new(""));
        let profile = Rc::new(Chosen::given(argument, &[])?);
        let pools = osm_render::plain_pools(profile.spec(), &self.source.kubelet_version);
        let node = |(_, pool)| (pool, Rc::clone(&profile), settings.clone());
        Ok(pools.into_iter().map(node).collect())
    }
}
