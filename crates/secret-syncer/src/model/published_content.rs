//! The content from which the published documents of a pool were generated, tokens excepted. The provisioning
//! Secret holds it beside its document, so that tokens can be renewed and Secrets restored while the config
//! or the sources of its values can't be used.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use osm_api::config::{CloudProviderRef, StageConfig};
use osm_api::content::{Content, MachineDeploymentRef};
use osm_api::profile::CloudProvider;
use osm_api::{gzip, names};
use osm_user_data::{LateValues, Stage, kubeconfig_secret};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::record::Record;

/// Most bytes of a document and its content as they are stored. etcd refuses requests above 1.5 MiB, and the
/// API server Secrets above 1 MiB.
pub const MAX_STORED_BYTES: usize = 1_000_000;

/// Most bytes of a document, and of its content, before they are compressed: no Secret makes this program
/// unpack more.
pub const MAX_UNPACKED_BYTES: usize = 4 << 20;

/// The parts of a content that documents with other tokens depend on, with the values of sources that these
/// parts refer to. There is no `Debug`, so that no log shows values.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct PublishedContent {
    spec: Content,
    values: LateValues,
    /// SHA-256 of all documents with stand-ins for tokens and for the name of the provisioning Secret. It
    /// shows whether another version of this program fills them in differently.
    pub digest: String,
}

impl PublishedContent {
    /// `values` are those of sources, and the digest is still empty. The provisioning stage is left out
    /// unless its document has tokens: without them, the document itself serves.
    pub fn of(spec: &Content, values: &LateValues) -> Self {
        let has_tokens_later = kubeconfig_secret::is_needed(spec);
        // Contents that differ only in what is left out yield the same documents.
        let mut spec = Content {
            os_name: spec.os_name,
            cloud_provider: spec.cloud_provider.as_ref().map(|cloud| CloudProviderRef {
                name: cloud.name,
                spec: None,
            }),
            bootstrap_config: spec.bootstrap_config.clone(),
            provisioning_config: if has_tokens_later {
                spec.provisioning_config.clone()
            } else {
                StageConfig::default()
            },
            provisioning_utility: spec.provisioning_utility,
            machine_deployment: spec.machine_deployment.as_ref().map(|md| MachineDeploymentRef {
                revision: None,
                template_digest: String::new(),
                ..md.clone()
            }),
            late_bound_values: spec.late_bound_values.clone(),
            kubelet_kubeconfig: spec.kubelet_kubeconfig.clone(),
        };
        if !has_tokens_later {
            let used = osm_user_data::late_bound_ids(&spec, Stage::Bootstrap);
            spec.late_bound_values.retain(|late| used.contains(&late.id));
        }
        let of_source = |id: &str| {
            let mut late_bound = spec.late_bound_values.iter();
            late_bound.any(|late| late.id == id && late.source.is_some())
        };
        let values = values.iter().filter(|(id, _)| of_source(id));
        let values = values.map(|(id, value)| (id.clone(), value.clone())).collect();
        Self {
            spec,
            values,
            digest: String::new(),
        }
    }

    pub fn spec(&self) -> &Content {
        &self.spec
    }

    pub fn values(&self) -> &LateValues {
        &self.values
    }

    pub fn is_edge(&self) -> bool {
        let cloud = self.spec.cloud_provider.as_ref();
        cloud.is_some_and(|cloud| cloud.name == CloudProvider::Edge)
    }

    pub fn needs_kubeconfig_secret(&self) -> bool {
        kubeconfig_secret::is_needed(&self.spec)
    }
}

/// The data of a provisioning Secret: a document, and beside it what it was generated from.
pub type Entries = BTreeMap<String, ByteString>;

/// `is_compressed`: the machine that fetches the document unpacks it. The content is left out where both
/// would be too large.
pub fn entries(document: &str, is_compressed: bool, content: &PublishedContent) -> Entries {
    let document_entry = if is_compressed {
        (names::CLOUD_CONFIG_GZIP_KEY, gzip::USUAL.bytes(document))
    } else {
        (names::CLOUD_CONFIG_KEY, document.as_bytes().to_vec())
    };
    let json = serde_json::to_string(content).ok();
    let content = json
        .filter(|json| json.len().max(document.len()) <= MAX_UNPACKED_BYTES)
        .map(|json| (names::CONTENT_GZIP_KEY, gzip::USUAL.bytes(&json)))
        .filter(|(_, bytes)| bytes.len().saturating_add(document_entry.1.len()) <= MAX_STORED_BYTES);
    let entries = std::iter::once(document_entry).chain(content);
    entries
        .map(|(name, bytes)| (name.to_owned(), ByteString(bytes)))
        .collect()
}

/// The document, and the JSON of its content.
fn unpack(entries: &Entries) -> Option<(String, String)> {
    let unpack = |bytes: &ByteString| gzip::unpack(&bytes.0, MAX_UNPACKED_BYTES).ok();
    let (plain, compressed) = (
        entries.get(names::CLOUD_CONFIG_KEY),
        entries.get(names::CLOUD_CONFIG_GZIP_KEY),
    );
    let document = match (plain, compressed) {
        (Some(text), None) => String::from_utf8(text.0.clone()).ok(),
        (None, Some(bytes)) => unpack(bytes),
        _ => None,
    };
    Some((document?, unpack(entries.get(names::CONTENT_GZIP_KEY)?)?))
}

/// What is published for a pool, with all that documents with other tokens are generated from. There is no
/// `Debug`, so that no log shows values.
#[derive(Clone)]
pub struct Published {
    pub record: Record,
    pub document: String,
    pub content: PublishedContent,
    /// As they are stored.
    pub entries: Entries,
}

impl Published {
    /// From a provisioning Secret of this pool. `None`: the Secret is another pool's, or not the one that is
    /// recorded, or can be altered, or another version of this program wrote a content in which this one
    /// would lose something.
    pub fn read(secret: Secret, pool: &str, record: Record) -> Option<Self> {
        // Not by its label, which can be lost.
        let is_of_pool = names::is_provisioning_secret_of(pool, &secret.name_any());
        let is_recorded = record.provisioning_uid.is_none() || secret.metadata.uid == record.provisioning_uid;
        if !is_of_pool || !is_recorded || secret.immutable != Some(true) {
            return None;
        }
        let entries = secret.data?;
        let (document, json) = unpack(&entries)?;
        let stored: Value = serde_json::from_str(&json).ok()?;
        let content = PublishedContent::deserialize(&stored).ok()?;
        let again = PublishedContent {
            digest: content.digest.clone(),
            ..PublishedContent::of(&content.spec, &content.values)
        };
        (serde_json::to_value(again).ok()? == stored).then_some(Self {
            record,
            document,
            content,
            entries,
        })
    }
}
