//! What an OperatingSystemConfig holds: a [`Content`] as [`Stored`] in its status, and how it is read again.
//!
//! The upstream OSM stores documents in the spec, with credentials. They are never published: osc-controller
//! renders the pool again.

use crate::config::{
    CloudProviderRef, LateBound, OperatingSystemConfig, OperatingSystemConfigSpec, StageConfig, Stored,
};
use crate::digest;
use crate::gzip;
use crate::pool_ref::PoolRef;
use crate::profile::{MAX_CONTENT_BYTES, OperatingSystem, ProvisioningUtility};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// Both documents of a pool in memory, with markers instead of credentials, and what is needed to fill in the
/// markers.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    /// Operating system of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_name: Option<OperatingSystem>,
    /// Cloud provider of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_provider: Option<CloudProviderRef>,
    /// What the cloud passes to a new machine.
    #[serde(default)]
    pub bootstrap_config: StageConfig,
    /// What makes the machine a worker node.
    #[serde(default)]
    pub provisioning_config: StageConfig,
    /// The program on the machine that reads both documents.
    #[serde(default)]
    pub provisioning_utility: ProvisioningUtility,
    /// The MachineDeployment that it was rendered for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_deployment: Option<MachineDeploymentRef>,
    /// The value that each marker represents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late_bound_values: Vec<LateBound>,
    /// Kubeconfig with which kubelets of the pool request their client certificates, with a marker instead of
    /// the token. It is present if a machine fetches it from a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet_kubeconfig: Option<String>,
}

impl Content {
    /// [`Stored::content_id`]. It doesn't depend on the revision, so that a new revision alone changes no document.
    pub fn id(&self) -> String {
        let documents = (
            (self.os_name, self.cloud_provider.as_ref().map(|cloud| cloud.name)),
            (&self.bootstrap_config, &self.provisioning_config),
            (self.provisioning_utility, &self.late_bound_values),
            &self.kubelet_kubeconfig,
        );
        let mut id = digest::sha256_hex(json(&documents).as_bytes());
        id.truncate(16);
        id
    }
}

/// The MachineDeployment that a [`Content`] was rendered for.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct MachineDeploymentRef {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// Revision that machine-controller stamped. It is absent before the first revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Digest of the part of `spec.template` that the content was rendered from.
    pub template_digest: String,
}

/// What the upstream OSM stored.
impl From<&OperatingSystemConfigSpec> for Content {
    fn from(spec: &OperatingSystemConfigSpec) -> Self {
        Self {
            os_name: spec.os_name,
            cloud_provider: spec.cloud_provider.clone(),
            bootstrap_config: spec.bootstrap_config.clone(),
            provisioning_config: spec.provisioning_config.clone(),
            provisioning_utility: spec.provisioning_utility,
            ..Self::default()
        }
    }
}

/// What the content of an OperatingSystemConfig was rendered for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedFor {
    /// The pool. It never changes: another pool gets another OperatingSystemConfig.
    pub pool: PoolRef,
    /// Revision that machine-controller stamped on the pool's object. It is absent before the first revision,
    /// and while nothing has been rendered.
    pub revision: Option<String>,
    /// SHA-256 of the machine template that the content was rendered from, 64 hex characters; empty while
    /// nothing has been rendered.
    pub template_digest: String,
    /// As [`Stored::template_generation`].
    pub template_generation: Option<i64>,
}

impl RenderedFor {
    /// Writes it into a content.
    pub fn store(&self, content: &mut Content) {
        content.machine_deployment = Some(MachineDeploymentRef {
            namespace: self.pool.namespace.clone(),
            name: self.pool.name.clone(),
            uid: self.pool.uid.clone(),
            revision: self.revision.clone(),
            template_digest: self.template_digest.clone(),
        });
    }
}

/// Why the documents of an OperatingSystemConfig can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    #[error("nothing has been rendered")]
    Missing,
    /// A document is not what osc-controller writes.
    #[error("status.rendered.{field} is not a document that osc-controller writes: {problem}")]
    Unreadable {
        /// `bootstrap` or `provisioning`.
        field: &'static str,
        /// What is wrong with it, without any of its text.
        problem: String,
    },
    /// Another client has written the status.
    #[error("status.rendered was modified by another client")]
    Modified,
}

impl Stored {
    /// What is stored of a content, what it needs, and the digest of all of it; still without the documents.
    /// `described` says what they are for; its other fields stay.
    #[must_use]
    pub fn new(content: &Content, needs_kubeconfig_secret: bool, described: Self) -> Self {
        let mut stored = Self {
            os_name: content.os_name,
            cloud_provider: content.cloud_provider.as_ref().map(|cloud| cloud.name),
            provisioning_utility: Some(content.provisioning_utility),
            late_bound_values: content.late_bound_values.clone(),
            kubelet_kubeconfig: content.kubelet_kubeconfig.clone(),
            needs_kubeconfig_secret,
            ..described
        }
        .without_documents();
        let [bootstrap, provisioning] = [&content.bootstrap_config, &content.provisioning_config].map(json);
        stored.digest = digest_of(&stored, &bootstrap, &provisioning);
        stored.content_id = Some(content.id());
        stored
    }

    /// With the documents of the content that it was made of. Most renderings change nothing, so that
    /// documents are compressed only where they are written.
    #[must_use]
    pub fn with_documents(&self, content: &Content) -> Self {
        let pack = |document| Some(gzip::USUAL.base64(&json(document)));
        Self {
            bootstrap: pack(&content.bootstrap_config),
            provisioning: pack(&content.provisioning_config),
            ..self.clone()
        }
    }

    /// Without the documents, which are most of it.
    #[must_use]
    pub fn without_documents(self) -> Self {
        Self {
            bootstrap: None,
            provisioning: None,
            ..self
        }
    }
}

/// The types of this crate that are written this way have names as keys, so that each value has a form as
/// JSON.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The one digest of a content: of its documents, of what decides how they are published, and of the revision
/// that they are for.
fn digest_of(stored: &Stored, bootstrap: &str, provisioning: &str) -> String {
    let digested = Stored {
        revision: stored.revision.clone(),
        os_name: stored.os_name,
        cloud_provider: stored.cloud_provider,
        provisioning_utility: stored.provisioning_utility,
        bootstrap: Some(bootstrap.to_owned()),
        provisioning: Some(provisioning.to_owned()),
        late_bound_values: stored.late_bound_values.clone(),
        kubelet_kubeconfig: stored.kubelet_kubeconfig.clone(),
        needs_kubeconfig_secret: stored.needs_kubeconfig_secret,
        ..Stored::default()
    };
    digest::sha256_hex(json(&digested).as_bytes())
}

/// At most [`MAX_CONTENT_BYTES`] are unpacked.
fn decompress(field: &'static str, packed: &str) -> Result<String, ContentError> {
    let unreadable = |problem: String| ContentError::Unreadable { field, problem };
    let gzip = STANDARD.decode(packed);
    let gzip = gzip.map_err(|_| unreadable("it is not Base64".to_owned()))?;
    gzip::unpack(&gzip, MAX_CONTENT_BYTES).map_err(|error| unreadable(error.to_string()))
}

fn stage(field: &'static str, json: &str) -> Result<StageConfig, ContentError> {
    serde_json::from_str(json).map_err(|error| {
        // The error itself can quote the document.
        let (line, column) = (error.line(), error.column());
        let problem = format!("line {line}, column {column} of its JSON is wrong");
        ContentError::Unreadable { field, problem }
    })
}

/// The spec that osc-controller writes.
pub fn spec_for(pool: PoolRef) -> OperatingSystemConfigSpec {
    OperatingSystemConfigSpec {
        pool_ref: Some(pool),
        ..OperatingSystemConfigSpec::default()
    }
}

impl OperatingSystemConfig {
    /// What osc-controller has rendered last.
    pub fn stored(&self) -> Option<&Stored> {
        self.status.as_ref()?.rendered.as_ref()
    }

    /// What it was rendered for; `None` on objects that the upstream OSM made.
    pub fn rendered_for(&self) -> Option<RenderedFor> {
        let stored = self.stored();
        let template_digest = stored.and_then(|stored| stored.template_digest.clone());
        Some(RenderedFor {
            pool: self.pool()?.clone(),
            revision: stored.and_then(|stored| stored.revision.clone()),
            template_digest: template_digest.unwrap_or_default(),
            template_generation: stored.and_then(|stored| stored.template_generation),
        })
    }

    /// The pool; `None` on objects that the upstream OSM made.
    pub fn pool(&self) -> Option<&PoolRef> {
        self.spec.pool_ref.as_ref()
    }

    /// Whether the spec says whose it is and nothing else.
    pub fn has_bare_spec(&self) -> bool {
        let bare = self.pool().cloned().map(spec_for);
        bare.as_ref() == Some(&self.spec)
    }

    /// The content that is stored, as `osm-render` makes documents of it.
    ///
    /// # Errors
    /// Documents that were not rendered, or that another client has modified.
    pub fn content(&self) -> Result<Content, ContentError> {
        let stored = self.stored().ok_or(ContentError::Missing)?;
        let text = |field, packed: &Option<String>| match packed {
            Some(packed) => decompress(field, packed),
            None => Err(ContentError::Missing),
        };
        let bootstrap = text("bootstrap", &stored.bootstrap)?;
        let provisioning = text("provisioning", &stored.provisioning)?;
        if digest_of(stored, &bootstrap, &provisioning) != stored.digest {
            return Err(ContentError::Modified);
        }
        let cloud = |name| CloudProviderRef { name, spec: None };
        let mut content = Content {
            os_name: stored.os_name,
            cloud_provider: stored.cloud_provider.map(cloud),
            bootstrap_config: stage("bootstrap", &bootstrap)?,
            provisioning_config: stage("provisioning", &provisioning)?,
            provisioning_utility: stored.provisioning_utility.unwrap_or_default(),
            late_bound_values: stored.late_bound_values.clone(),
            kubelet_kubeconfig: stored.kubelet_kubeconfig.clone(),
            machine_deployment: None,
        };
        if let Some(rendered_for) = self.rendered_for() {
            rendered_for.store(&mut content);
        }
        Ok(content)
    }

    /// Whether what may be published is published, for this revision.
    pub fn is_published(&self, revision: &str) -> bool {
        let published = self.status.as_ref().and_then(|status| status.published.as_ref());
        published.zip(self.stored()).is_some_and(|(published, stored)| {
            published.revision == revision && published.digest == stored.digest
        })
    }
}

/// Name of the pool that this content is for.
pub fn pool_name(content: &Content) -> Option<&str> {
    content.machine_deployment.as_ref().map(|md| md.name.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::{OperatingSystemConfigStatus, Published};

    fn rendered_for() -> RenderedFor {
        RenderedFor {
            pool: PoolRef::machine_deployment("n", "p", "u"),
            revision: Some("7".into()),
            template_digest: "t".into(),
            template_generation: Some(3),
        }
    }

    fn content() -> Content {
        let mut content = serde_json::from_value(json!({
            "osName": "ubuntu", "cloudProvider": {"name": "aws"}, "provisioningUtility": "cloud-init",
            "bootstrapConfig": {"files": [{"path": "/etc/boot", "content": {"inline": {"data": "boot ü"}}}]},
            "provisioningConfig": {"units": [{"name": "a.service", "enable": true}], "modules": {"runcmd": [["a"]]}},
            "lateBoundValues": [{"id": "api/token", "kind": "APIToken"}],
            "kubeletKubeconfig": "kind: Config",
        }))
        .unwrap();
        rendered_for().store(&mut content);
        content
    }

    /// As osc-controller writes it.
    fn packed() -> OperatingSystemConfig {
        let RenderedFor {
            pool,
            revision,
            template_digest,
            template_generation,
        } = rendered_for();
        let mut config = OperatingSystemConfig::new("p-n-config", spec_for(pool.clone()));
        let described = Stored {
            revision,
            template_digest: Some(template_digest),
            template_generation,
            ..Stored::default()
        };
        let rendered = Stored::new(&content(), true, described).with_documents(&content());
        let published = Published {
            digest: rendered.digest.clone(),
            revision: "7".into(),
            bootstrap_secret: "b".into(),
            provisioning_secret: "p".into(),
            credential_expiration_time: "e".into(),
        };
        config.status = Some(OperatingSystemConfigStatus {
            rendered: Some(rendered),
            published: Some(published),
            ..OperatingSystemConfigStatus::default()
        });
        config
    }

    fn rendered(config: &mut OperatingSystemConfig) -> &mut Stored {
        config.status.as_mut().unwrap().rendered.as_mut().unwrap()
    }

    #[test]
    fn what_is_packed_is_read_again() {
        let config = packed();
        assert!(config.has_bare_spec());
        let expected = (true, false);
        assert_eq!((config.is_published("7"), config.is_published("8")), expected);
        assert_eq!(config.rendered_for(), Some(rendered_for()));
        assert_eq!(config.content(), Ok(content()));
        let json = serde_json::to_value(&config).unwrap();
        // The object as it is stored has nothing but these in its spec.
        assert_eq!(json["spec"].as_object().unwrap().len(), 1, "{}", json["spec"]);
    }

    #[test]
    fn the_same_content_is_packed_to_the_same_text() {
        let (mut one, mut two) = (packed(), packed());
        assert_eq!(rendered(&mut one), rendered(&mut two));
        let bootstrap = rendered(&mut one).bootstrap.take().unwrap();
        let gzip = STANDARD.decode(bootstrap).unwrap();
        assert_eq!(gzip[4..8], [0; 4], "the header has no time");
    }

    #[test]
    fn what_another_client_modified_is_refused() {
        type EditRendered = fn(&mut Stored);
        let edits: [(&str, EditRendered); 7] = [
            ("revision", |rendered| rendered.revision = Some("8".into())),
            ("document", |rendered| {
                rendered.bootstrap = packed_text(r#"{"files":[]}"#)
            }),
            ("late-bound values", |rendered| rendered.late_bound_values.clear()),
            ("kubeconfig", |rendered| rendered.kubelet_kubeconfig = None),
            ("cloud", |rendered| rendered.cloud_provider = None),
            ("tokens", |rendered| rendered.needs_kubeconfig_secret = false),
            ("digest", |rendered| rendered.digest = "d".into()),
        ];
        for (what, edit) in edits {
            let mut config = packed();
            edit(rendered(&mut config));
            assert_eq!(config.content(), Err(ContentError::Modified), "{what}");
        }
        let bomb = " ".repeat(MAX_CONTENT_BYTES + 1);
        for (packed, problem) in [
            (None, "nothing has been rendered"),
            (Some("hunter2!".to_owned()), "it is not Base64"),
            (Some(STANDARD.encode("hunter2")), "it is not text that gzip has"),
            (packed_text(&bomb), "it has more than 524288 bytes"),
        ] {
            let mut config = self::packed();
            rendered(&mut config).bootstrap = packed;
            let error = config.content().unwrap_err().to_string();
            assert!(error.contains(problem) && !error.contains("hunter2"), "{error}");
            // Dropping a document from memory does not count as an alteration.
            let stripped = std::mem::take(rendered(&mut config)).without_documents();
            assert_eq!((stripped.bootstrap, stripped.provisioning), (None, None));
        }
    }

    fn packed_text(text: &str) -> Option<String> {
        Some(gzip::USUAL.base64(text))
    }
}
