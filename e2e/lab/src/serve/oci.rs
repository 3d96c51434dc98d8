//! A container image of one static binary, as an archive in Docker's format: containerd and skopeo read it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::json;
use sha2::{Digest, Sha256};

/// Where a container finds programs by their names. The image's own is in the last of these.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The archive of an image that runs `binary`, for this machine's architecture. The binary lies at `/bin/<its
/// file name>`, and nothing else is there. `name` is that of the image, with registry and tag.
///
/// # Errors
/// When the binary can't be read, or this machine's architecture has no name here.
pub fn archive(name: &str, binary: &Path) -> Result<Vec<u8>> {
    let content = fs::read(binary).with_context(|| binary.display().to_string())?;
    let program = binary.file_name().and_then(|name| name.to_str());
    let program = format!("bin/{}", program.context("a binary's file name")?);
    let mut layer = tar::Builder::new(Vec::new());
    append(&mut layer, &program, &content)?;
    let layer = layer.into_inner()?;
    let config = json!({
        "architecture": crate::release::architecture()?,
        "os": "linux",
        "config": {"Env": [format!("PATH={PATH}")], "Entrypoint": [format!("/{program}")]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{:x}", Sha256::digest(&layer))]},
    });
    let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]);
    let mut archive = tar::Builder::new(Vec::new());
    append(&mut archive, "layer.tar", &layer)?;
    append(&mut archive, "config.json", config.to_string().as_bytes())?;
    append(&mut archive, "manifest.json", manifest.to_string().as_bytes())?;
    Ok(archive.into_inner()?)
}

/// Adds a file that root owns and everybody may read and run.
fn append(archive: &mut tar::Builder<Vec<u8>>, path: &str, content: &[u8]) -> Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_mode(0o755);
    header.set_size(content.len() as u64);
    Ok(archive.append_data(&mut header, path, content)?)
}
