//! How much user data each cloud takes.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use osm_api::profile::{CloudProvider, OperatingSystem};

/// What a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// The document as it is.
    Raw,
    /// The document after gzip, as machine-controller sends it.
    Gzip,
    /// The document after base64.
    Base64,
}

/// A cloud's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeLimit {
    /// Most bytes.
    pub bytes: usize,
    /// What is counted.
    pub counted: Counted,
}

/// The limit of a cloud for bootstrap documents; `None` where no limit is documented that a bootstrap document could
/// come near.
///
/// - aws: 16 KiB before base64 (EC2 user guide, "Run commands when you launch an EC2 instance"); machine-controller
///   compresses, but not for Flatcar, whose Ignition can't read that.
/// - azure: 65,535 bytes before base64 (REST reference, `osProfile.customData`).
/// - openstack: 65,535 bytes of base64 (Nova, "Provide user data to instances").
/// - alibaba: 32 KiB before base64 (ECS, "Instance user data").
/// - hetzner: 32 KiB (Cloud API, `user_data`).
/// - digitalocean: 64 KiB (API, `user_data`).
/// - gce: 256 KiB for a metadata value (Compute Engine, "About VM metadata").
pub fn size_limit(cloud: CloudProvider, os: OperatingSystem) -> Option<SizeLimit> {
    const KIB: usize = 1024;
    let (bytes, counted) = match cloud {
        CloudProvider::Aws if os == OperatingSystem::Flatcar => (16 * KIB, Counted::Raw),
        CloudProvider::Aws => (16 * KIB, Counted::Gzip),
        CloudProvider::Azure => (65_535, Counted::Raw),
        CloudProvider::Openstack => (65_535, Counted::Base64),
        CloudProvider::Alibaba | CloudProvider::Hetzner => (32 * KIB, Counted::Raw),
        CloudProvider::Digitalocean => (64 * KIB, Counted::Raw),
        CloudProvider::Gce => (256 * KIB, Counted::Raw),
        _ => return None,
    };
    Some(SizeLimit { bytes, counted })
}

impl SizeLimit {
    /// Bytes of `document` as this limit counts them.
    pub fn count(&self, document: &str) -> usize {
        match self.counted {
            Counted::Raw => document.len(),
            Counted::Base64 => document.len().div_ceil(3) * 4,
            Counted::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
                // Writing to a Vec can't fail.
                let written = encoder.write_all(document.as_bytes()).and_then(|()| encoder.finish());
                written.map_or(document.len(), |bytes| bytes.len())
            }
        }
    }
}
