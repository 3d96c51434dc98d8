//! `osmctl urls`: what nodes download.

use std::collections::HashSet;

use anyhow::Result;
use clap::{Args, ValueEnum};
use osm_api::settings::Settings;
use osm_render::Download;
use serde_json::json;

use crate::nodes::Nodes;
use crate::{input, output};

/// List what nodes download
///
/// The list holds what the profile's templates ask for by download-url and checksum-url when they are rendered, and the files
/// with the checksums. By default it is URLs and nothing else, one a line, for a loop in a shell.
///
/// Container images are not in it; the other formats name the one that every node needs, the pause image. Nor are packages of
/// the distribution, which nodes can do without.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # Fetch everything that a kind of node downloads, to be served by a mirror
  osmctl urls --profile osp-ubuntu --kubelet-version 1.34.4 | while read -r url; do
    curl -fsSL --create-dirs -o \"mirror/${url#*://}\" \"$url\"
  done

  # Versions, architectures and pinned checksums for all pools of a cluster, with its settings
  kubectl get machinedeployments,osp -A -o yaml | osmctl urls -f - --settings settings.yaml --output table

  # Upgrading: both kubelets, on OpenStack, for amd64
  osmctl urls --profile my-profile.yaml --kubelet-version 1.34.4 --kubelet-version 1.35.1 \\
    --cloud openstack --arch amd64")]
pub struct Urls {
    #[command(flatten)]
    nodes: Nodes,
    /// What to print
    #[arg(short, long, value_enum, default_value_t = Format::Urls)]
    output: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// URLs only, of files and their checksums
    Urls,
    /// What they are, and the pause image
    Table,
    /// The same for programs
    Json,
}

impl Urls {
    /// Lists and prints.
    pub fn run(self) -> Result<()> {
        let settings = input::settings(self.nodes.settings.as_deref())?;
        let downloads = self.nodes.downloads(&settings)?;
        output::print(&match self.output {
            Format::Urls => urls(&downloads),
            Format::Table => table(&downloads, &settings),
            Format::Json => json(&downloads, &settings),
        })
    }
}

fn urls(downloads: &[Download]) -> String {
    // A checksum file can be that of several.
    let mut seen = HashSet::new();
    let all = downloads.iter().flat_map(|download| [download.url(), download.checksum_url()]);
    all.filter(|url| seen.insert(url.clone())).map(|url| url + "\n").collect()
}

fn table(downloads: &[Download], settings: &Settings) -> String {
    let head = ["NAME", "VERSION", "ARCH", "URL", "CHECKSUM URL", "PINNED SHA-256"].map(str::to_owned);
    let lines = downloads.iter().map(|download| {
        [
            download.artefact.name().to_owned(),
            download.version.to_string(),
            download.architecture.to_owned(),
            download.url(),
            download.checksum_url(),
            download.sha256.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    });
    let table = output::table(&std::iter::once(head).chain(lines).collect::<Vec<_>>());
    let pause = settings.pause_image.as_deref().unwrap_or(
        "the default of the containerd on the node, as pauseImage is not set; `containerd config default` prints it",
    );
    format!("{table}\nPause image: {pause}\n")
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
    format!("{:#}\n", json!({"downloads": downloads, "pauseImage": settings.pause_image}))
}
