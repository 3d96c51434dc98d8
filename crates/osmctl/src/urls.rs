//! `osmctl urls`: what nodes download.

use std::collections::HashSet;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use osm_api::settings::Settings;
use osm_render::Download;
use serde_json::json;

use crate::nodes::Nodes;
use crate::{input, output};

/// List what nodes download
///
/// The list contains each file that the templates request by download-url, and the files with the checksums. By default, the
/// command prints one URL per line, for a loop in a shell.
///
/// The list contains no container images and no packages of the distribution. Nodes need one image, the pause image, which the
/// JSON output reports. Nodes become Ready without the packages.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # Fetch all files that a kind of node downloads, to fill a mirror
  osmctl urls --profile osp-ubuntu --kubelet-version 1.34.4 | while read -r url; do
    curl -fsSL --create-dirs -o \"mirror/${url#*://}\" \"$url\"
  done

  # List versions, architectures and pinned checksums for all pools of a cluster, with its settings
  kubectl get machinedeployments,osp -A -o yaml | osmctl urls -f - --settings settings.yaml --output json

  # Prepare an upgrade: both kubelets, on OpenStack, for amd64
  osmctl urls --profile my-profile.yaml --kubelet-version 1.34.4 --kubelet-version 1.35.1 \\
    --cloud openstack --arch amd64")]
pub struct Urls {
    #[command(flatten)]
    nodes: Nodes,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Urls)]
    output: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// URLs of the files and of their checksums
    Urls,
    /// JSON with the versions, architectures and pinned checksums, and the pause image
    Json,
}

impl Urls {
    /// Lists and prints.
    pub fn run(self) -> Result<ExitCode> {
        let settings = input::settings_document(self.nodes.settings.as_deref())?.settings;
        let downloads = self.nodes.downloads(&settings)?;
        output::print(&match self.output {
            Format::Urls => urls(&downloads),
            Format::Json => json(&downloads, &settings),
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

fn urls(downloads: &[Download]) -> String {
    // A checksum file can be that of several.
    let mut seen = HashSet::new();
    let all = downloads
        .iter()
        .flat_map(|download| [download.url(), download.checksum_url()]);
    all.filter(|url| seen.insert(url.clone()))
        .map(|url| url + "\n")
        .collect()
}

fn json(downloads: &[Download], settings: &Settings) -> String {
    let downloads: Vec<_> = downloads
        .iter()
        .map(|download| {
            json!({
                "name": download.artefact.name(),
                "version": download.version.to_string(),
                "architecture": download.architecture,
                "url": download.url(),
                "checksumURL": download.checksum_url(),
                "sha256": download.sha256,
            })
        })
        .collect();
    format!(
        "{:#}\n",
        json!({"downloads": downloads, "pauseImage": settings.pause_image})
    )
}
