//! `osmctl urls`: what nodes download.

use std::collections::HashSet;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::nodes::Nodes;
use crate::output;

/// List what nodes download
///
/// The list contains each file that the templates request by download-url, and the files with the checksums.
/// The command prints one URL per line, for a loop in a shell.
///
/// The list contains no container images and no packages of the distribution. Nodes need one image,
/// `pauseImage` of the settings. Nodes become Ready without the packages.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # Fetch all files that a kind of node downloads, to fill a mirror
  osmctl urls --profile osp-ubuntu --kubelet-version 1.34.4 | while read -r url; do
    curl -fsSL --create-dirs -o \"mirror/${url#*://}\" \"$url\"
  done

  # All pools of a cluster, with its settings, which can also be among the manifests
  kubectl get machinedeployments,osp -A -o yaml | osmctl urls -f - --settings settings.yaml

  # Prepare an upgrade: both kubelets, for amd64
  osmctl urls --profile my-profile.yaml --kubelet-version 1.34.4 --kubelet-version 1.35.1 --arch amd64")]
pub struct Urls {
    #[command(flatten)]
    nodes: Nodes,
}

impl Urls {
    /// Lists and prints.
    pub fn run(self) -> Result<ExitCode> {
        let (_, downloads) = self.nodes.downloads()?;
        // A checksum file can be that of several.
        let mut seen = HashSet::new();
        let urls = downloads
            .iter()
            .flat_map(|download| [download.url(), download.checksum_url()]);
        let text: String = urls
            .filter(|url| seen.insert(url.clone()))
            .map(|url| url + "\n")
            .collect();
        output::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}
