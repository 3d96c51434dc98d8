//! `osmctl mirror-settings`: settings by which nodes download from a mirror, with checksums of what is on it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use osm_api::digest;
use osm_api::settings::Settings;
use osm_render::{Artefact, Download};
use osm_user_data::yaml;
use serde_json::{Value, json};

use crate::nodes::Nodes;
use crate::output;

/// Print settings that make nodes download from a mirror
///
/// The command prints the settings document, that of --settings or of -f, with the base URLs of the mirror
/// and with pinned checksums. Nodes then reject any file that changes on the mirror.
///
/// The folder must contain each file of `osmctl urls` at the path that follows :// in its URL, such as
/// dl.k8s.io/v1.34.4/bin/linux/amd64/kubelet. The command verifies the checksum of each file. It uses the
/// checksum that --settings pin, or the one in the checksum file, which the folder must then contain.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # What `osmctl urls` lists was fetched to ./mirror, which http://mirror.example.com serves
  osmctl mirror-settings --profile osp-ubuntu --kubelet-version 1.34.4 \\
    --dir mirror --url http://mirror.example.com >settings.yaml

  # For all pools of a cluster, and with what the site needs besides: registries, certificates ...
  kubectl get machinedeployments,osp -A -o yaml \\
    | osmctl mirror-settings -f - --settings site.yaml --dir mirror --url http://mirror.example.com")]
pub struct MirrorSettings {
    #[command(flatten)]
    nodes: Nodes,
    /// Folder that the mirror serves
    #[arg(long, value_name = "FOLDER")]
    dir: PathBuf,
    /// URL under which nodes reach the folder
    #[arg(long, value_name = "URL")]
    url: String,
}

impl MirrorSettings {
    /// Checks and prints.
    pub fn run(self) -> Result<ExitCode> {
        let (settings, downloads) = self.nodes.downloads()?;
        let mut document = settings.document;
        let url = self.url.trim_end_matches('/');
        let mut mistakes = Vec::new();
        for download in &downloads {
            match checked(download, &self.dir) {
                Ok(sha256) => output::merge(&mut document, &of_mirror(download, url, &sha256)),
                Err(mistake) => mistakes.push(format!("{mistake:#}")),
            }
        }
        if !mistakes.is_empty() {
            bail!(
                "{} does not contain all downloads:\n  {}",
                self.dir.display(),
                mistakes.join("\n  ")
            );
        }
        Settings::from_document(document.clone()).context("--url can't be used")?;
        output::document(&yaml::write(&document).map_err(anyhow::Error::msg)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The checksum of a download's file on the mirror, if it is correct.
fn checked(download: &Download, mirror: &Path) -> Result<String> {
    let read = |url: &str| {
        let path = mirror.join(without_scheme(url));
        let file = std::fs::read(&path)
            .with_context(|| format!("cannot read {}; download {url} to this path", path.display()))?;
        anyhow::Ok((path, file))
    };
    let (path, file) = read(&download.url())?;
    let found = digest::sha256_hex(&file);
    let (expected, source) = match &download.sha256 {
        Some(pinned) => (pinned.clone(), "the settings pin".to_owned()),
        None => {
            let (path, text) = read(&download.checksum_url())?;
            let name = download.path.rsplit('/').next().unwrap_or_default();
            let sum = checksum_of(name, &String::from_utf8_lossy(&text)).with_context(|| {
                format!(
                    "{} contains no checksum of {name}; download the checksum file again",
                    path.display()
                )
            })?;
            (sum, format!("{} has", path.display()))
        }
    };
    if found != expected {
        bail!(
            "{} has the SHA-256 checksum {found}, but {source} {expected}; download the file again",
            path.display()
        );
    }
    Ok(found)
}

/// Path of a URL's file on the mirror.
fn without_scheme(url: &str) -> &str {
    url.split_once("://").map_or(url, |(_, path)| path)
}

/// The checksum of file `name` in a checksum file: bare, or one of many lines `checksum name`.
fn checksum_of(name: &str, text: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let sum = words
            .next()
            .filter(|sum| sum.len() == 64 && sum.chars().all(|c| c.is_ascii_hexdigit()))?;
        let named = words
            .next()
            .map(|word| word.trim_start_matches('*').rsplit('/').next().unwrap_or(word));
        named
            .is_none_or(|named| named == name)
            .then(|| sum.to_ascii_lowercase())
    })
}

/// The settings by which nodes fetch a download from the mirror, and accept nothing else.
fn of_mirror(download: &Download, mirror: &str, sha256: &str) -> Value {
    let base_url = format!("{mirror}/{}", without_scheme(&download.base_url));
    let version = download.version.to_string();
    let sums = json!({ download.architecture: sha256 });
    let settings = match download.artefact {
        // Several kubelets may need several.
        Artefact::Kubelet | Artefact::Crictl => json!({"baseURL": base_url, "sha256": {version: sums}}),
        _ => json!({"version": version, "baseURL": base_url, "sha256": sums}),
    };
    json!({"downloads": {download.artefact.name(): settings}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_files_are_read_as_nodes_read_them() {
        let (a, b) = ("a".repeat(64), "b".repeat(64));
        for (text, expected) in [
            (a.clone(), Some(&a)),
            (format!("{}\n", a.to_uppercase()), Some(&a)),
            (format!("{b}  runc.arm64\n{a}  runc.amd64\n"), Some(&a)),
            (format!("{b}  runc.amd64.asc\n{a} *./runc.amd64\n"), Some(&a)),
            (format!("\n{a}\trelease/runc.amd64"), Some(&a)),
            (format!("{b}  runc.arm64\n"), None),
            ("<html>\n".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(checksum_of("runc.amd64", &text).as_ref(), expected, "{text}");
        }
    }
}
