//! A container image of one static binary.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use hyper::body::Bytes;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Where a container finds programs by their names. The image's own is in the last of these.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// An image for this machine's architecture. The same binary and arguments make the same image, bit by bit.
#[derive(Debug, Clone)]
pub struct Image {
    repository: String,
    tag: String,
    manifest: Blob,
    blobs: [Blob; 2],
}

/// Content with the digest by which it is asked for.
#[derive(Debug, Clone)]
pub(super) struct Blob {
    pub(super) media_type: &'static str,
    /// `sha256:<hex>`.
    pub(super) digest: String,
    pub(super) bytes: Bytes,
}

impl Image {
    /// An image that runs `binary` with `arguments` (which a pod's `args` replace). The binary lies at `/bin/<its file name>`,
    /// and nothing else is there.
    ///
    /// `repository` is a path such as `osm/node-test`, without a registry.
    ///
    /// # Errors
    /// When the binary can't be read, or this machine's architecture has no name here.
    pub fn from_binary(repository: &str, tag: &str, binary: &Path, arguments: &[&str]) -> Result<Self> {
        let content = fs::read(binary).with_context(|| binary.display().to_string())?;
        let name = binary
            .file_name()
            .and_then(|name| name.to_str())
            .context("a binary's file name")?;
        let tar = layer(name, &content)?;
        let mut packed = GzBuilder::new().write(Vec::new(), Compression::fast());
        packed.write_all(&tar)?;
        let layer = Blob::new(LAYER, packed.finish()?);
        let config = Blob::json(
            CONFIG,
            &json!({
                "created": "1970-01-01T00:00:00Z",
                "architecture": crate::release::architecture()?,
                "os": "linux",
                "config": {
                    "Env": [format!("PATH={PATH}")],
                    "Entrypoint": [format!("/bin/{name}")],
                    "Cmd": arguments,
                },
                "rootfs": { "type": "layers", "diff_ids": [digest(&tar)] },
            }),
        )?;
        let manifest = Blob::json(
            MANIFEST,
            &json!({
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": config.descriptor(),
                "layers": [layer.descriptor()],
            }),
        )?;
        Ok(Self {
            repository: repository.to_owned(),
            tag: tag.to_owned(),
            manifest,
            blobs: [config, layer],
        })
    }

    /// The path by which it is pulled.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Its tag.
    #[must_use]
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// The manifest's digest, `sha256:<hex>`, by which the image can be pulled as well.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.manifest.digest
    }

    /// The image as an archive (an OCI image layout) that `ctr images import` knows by the name `registry`/repository:tag.
    ///
    /// # Errors
    /// None that is known: it is written to memory.
    pub fn archive(&self, registry: &str) -> Result<Vec<u8>> {
        let mut manifest = self.manifest.descriptor();
        if let Some(fields) = manifest.as_object_mut() {
            let name = format!("{registry}/{}:{}", self.repository, self.tag);
            fields.insert(
                "annotations".to_owned(),
                json!({"io.containerd.image.name": name}),
            );
        }
        let index = json!({"schemaVersion": 2, "manifests": [manifest]});
        let mut archive = tar::Builder::new(Vec::new());
        let mut add = |path: String, content: &[u8]| {
            let mut header = header(tar::EntryType::Regular, content.len() as u64);
            archive.append_data(&mut header, path, content)
        };
        add("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        add("index.json".to_owned(), index.to_string().as_bytes())?;
        for blob in self.blobs.iter().chain([&self.manifest]) {
            add(format!("blobs/{}", blob.digest.replace(':', "/")), &blob.bytes)?;
        }
        Ok(archive.into_inner()?)
    }

    /// The manifest, where `reference` is the tag or the manifest's digest.
    pub(super) fn manifest(&self, reference: &str) -> Option<&Blob> {
        (reference == self.tag || reference == self.manifest.digest).then_some(&self.manifest)
    }

    /// What the manifest consists of.
    pub(super) fn blob(&self, digest: &str) -> Option<&Blob> {
        self.blobs.iter().find(|blob| blob.digest == digest)
    }
}

impl Blob {
    fn new(media_type: &'static str, bytes: Vec<u8>) -> Self {
        Self {
            media_type,
            digest: digest(&bytes),
            bytes: bytes.into(),
        }
    }

    fn json(media_type: &'static str, document: &Value) -> Result<Self> {
        Ok(Self::new(media_type, serde_json::to_vec(document)?))
    }

    fn descriptor(&self) -> Value {
        json!({ "mediaType": self.media_type, "digest": self.digest, "size": self.bytes.len() })
    }
}

fn layer(name: &str, content: &[u8]) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    archive.append_data(&mut header(tar::EntryType::Directory, 0), "bin/", &[][..])?;
    let size = content.len() as u64;
    archive.append_data(
        &mut header(tar::EntryType::Regular, size),
        format!("bin/{name}"),
        content,
    )?;
    Ok(archive.into_inner()?)
}

/// Owned by root, from the beginning of time.
fn header(kind: tar::EntryType, size: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(0o755);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    header
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}
