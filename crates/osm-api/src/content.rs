//! What an OperatingSystemConfig holds, in each of its stored forms.
//!
//! This module alone knows which fields hold what. Everything else reads them through [`ContentView`] (or, where objects are JSON,
//! through [`ContentJson`]), and writes them with [`Unpacked`].
//!
//! | Form | Pool | Documents |
//! |---|---|---|
//! | of this version | `spec.poolRef` | packed, in `status.rendered` |
//! | of versions before it | `spec.machineDeployment` | in the spec, if `status.rendered.generation` is its generation |
//! | of the Go implementation | none | in the spec; they are never published |

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::Value;

use crate::config::{
    CloudProviderRef, LateBound, MachineDeploymentRef, OperatingSystemConfig, OperatingSystemConfigSpec,
    OperatingSystemConfigStatus, PoolReference, ProfileRef, Rendered, StageConfig,
};
use crate::digest;
use crate::gzip;
use crate::pool_ref::PoolRef;
use crate::profile::{CloudProvider, MAX_CONTENT_BYTES, OperatingSystem, ProvisioningUtility};

/// [`Rendered::generation`] where the documents are in the status.
const IN_STATUS: i64 = 0;

/// What the content of an OperatingSystemConfig was rendered for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedFor {
    /// The pool. It never changes: another pool gets another OperatingSystemConfig.
    pub pool: PoolRef,
    /// Revision that machine-controller stamped on the pool's object. It is absent before the first revision, and while
    /// nothing has been rendered.
    pub revision: Option<String>,
    /// SHA-256 of the machine template that the content was rendered from, 64 hex characters; empty while nothing has been rendered.
    pub template_digest: String,
}

impl RenderedFor {
    /// Writes it into a content.
    pub fn store(&self, content: &mut OperatingSystemConfigSpec) {
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
    /// It has none.
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
    #[error("status.rendered does not have the digest that it names")]
    Altered,
}

/// A content on its way into an OperatingSystemConfig. Most renderings change nothing, so that its documents are compressed only where it is
/// written.
#[derive(Clone, Debug, PartialEq)]
pub struct Unpacked {
    rendered: Rendered,
    bootstrap: String,
    provisioning: String,
}

impl Unpacked {
    /// Takes the documents of a content, what they need, and the digest of all of it. `described` says what they are for; its other fields
    /// stay.
    pub fn new(
        content: &OperatingSystemConfigSpec,
        needs_kubeconfig_secret: bool,
        described: Rendered,
    ) -> Self {
        let (bootstrap, provisioning) = (
            json(&content.bootstrap_config),
            json(&content.provisioning_config),
        );
        let mut rendered = Rendered {
            generation: IN_STATUS,
            os_name: content.os_name,
            cloud_provider: content.cloud_provider.as_ref().map(|cloud| cloud.name),
            provisioning_utility: Some(content.provisioning_utility),
            late_bound: content.late_bound.clone(),
            kubelet_kubeconfig: content.kubelet_kubeconfig.clone(),
            needs_kubeconfig_secret,
            ..described
        }
        .without_documents();
        rendered.digest = digest_of(&rendered, &bootstrap, &provisioning);
        Self {
            rendered,
            bootstrap,
            provisioning,
        }
    }

    /// All of it but the documents.
    pub fn rendered(&self) -> &Rendered {
        &self.rendered
    }

    /// As it is stored.
    pub fn pack(&self) -> Rendered {
        Rendered {
            bootstrap: Some(gzip::USUAL.base64(&self.bootstrap)),
            provisioning: Some(gzip::USUAL.base64(&self.provisioning)),
            ..self.rendered.clone()
        }
    }
}

/// The types of this crate that are written this way have names as keys, so that each value has a form as JSON.
fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// What a digest is of: these fields of [`Rendered`], in its order and form, with the documents unpacked.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Digested<'a> {
    generation: i64,
    digest: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    os_name: Option<OperatingSystem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cloud_provider: Option<CloudProvider>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provisioning_utility: Option<ProvisioningUtility>,
    bootstrap: &'a str,
    provisioning: &'a str,
    #[serde(skip_serializing_if = "<[LateBound]>::is_empty")]
    late_bound: &'a [LateBound],
    #[serde(skip_serializing_if = "Option::is_none")]
    kubelet_kubeconfig: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    needs_kubeconfig_secret: bool,
}

impl<'a> Digested<'a> {
    fn of(rendered: &'a Rendered, bootstrap: &'a str, provisioning: &'a str) -> Self {
        Self {
            generation: IN_STATUS,
            digest: "",
            revision: rendered.revision.as_deref(),
            os_name: rendered.os_name,
            cloud_provider: rendered.cloud_provider,
            provisioning_utility: rendered.provisioning_utility,
            bootstrap,
            provisioning,
            late_bound: &rendered.late_bound,
            kubelet_kubeconfig: rendered.kubelet_kubeconfig.as_deref(),
            needs_kubeconfig_secret: rendered.needs_kubeconfig_secret,
        }
    }
}

/// The digest of documents and of what decides how they are published.
fn digest_of(rendered: &Rendered, bootstrap: &str, provisioning: &str) -> String {
    digest::sha256_hex_of_json(&Digested::of(rendered, bootstrap, provisioning)).unwrap_or_default()
}

/// At most [`MAX_CONTENT_BYTES`] are unpacked.
fn decompress(field: &'static str, packed: &str) -> Result<String, ContentError> {
    let unreadable = |problem: String| ContentError::Unreadable { field, problem };
    let gzip = STANDARD
        .decode(packed)
        .map_err(|_| unreadable("it is not Base64".to_owned()))?;
    gzip::unpack(&gzip, MAX_CONTENT_BYTES).map_err(|error| unreadable(error.to_string()))
}

fn stage(field: &'static str, json: &str) -> Result<StageConfig, ContentError> {
    serde_json::from_str(json).map_err(|error| ContentError::Unreadable {
        field,
        // The error itself can quote the document.
        problem: format!(
            "line {}, column {} of its JSON is wrong",
            error.line(),
            error.column()
        ),
    })
}

/// The content that was packed.
fn unpack(pool: Option<&PoolRef>, rendered: &Rendered) -> Result<OperatingSystemConfigSpec, ContentError> {
    let text = |field, packed: &Option<String>| match packed {
        Some(packed) => decompress(field, packed),
        None => Err(ContentError::Missing),
    };
    let bootstrap = text("bootstrap", &rendered.bootstrap)?;
    let provisioning = text("provisioning", &rendered.provisioning)?;
    if digest_of(rendered, &bootstrap, &provisioning) != rendered.digest {
        return Err(ContentError::Altered);
    }
    let mut content = OperatingSystemConfigSpec {
        os_name: rendered.os_name,
        cloud_provider: rendered
            .cloud_provider
            .map(|name| CloudProviderRef { name, spec: None }),
        bootstrap_config: stage("bootstrap", &bootstrap)?,
        provisioning_config: stage("provisioning", &provisioning)?,
        provisioning_utility: rendered.provisioning_utility.unwrap_or_default(),
        profile: rendered.profile.clone(),
        digest: Some(rendered.digest.clone()),
        late_bound: rendered.late_bound.clone(),
        kubelet_kubeconfig: rendered.kubelet_kubeconfig.clone(),
        ..OperatingSystemConfigSpec::default()
    };
    if let Some(pool) = pool {
        let rendered_for = RenderedFor {
            pool: pool.clone(),
            revision: rendered.revision.clone(),
            template_digest: rendered.template_digest.clone().unwrap_or_default(),
        };
        rendered_for.store(&mut content);
    }
    Ok(content)
}

impl Rendered {
    /// Whether it is of the form that holds the documents itself.
    pub fn is_packed(&self) -> bool {
        self.generation == IN_STATUS
    }

    /// Takes the documents out. What is left is small.
    pub fn take_documents(&mut self) -> (Option<String>, Option<String>) {
        (self.bootstrap.take(), self.provisioning.take())
    }

    /// Without the documents, which are most of it.
    #[must_use]
    pub fn without_documents(mut self) -> Self {
        self.take_documents();
        self
    }
}

impl From<&PoolRef> for PoolReference {
    fn from(pool: &PoolRef) -> Self {
        Self {
            api_version: pool.api_version.clone().into_owned(),
            kind: pool.kind.clone().into_owned(),
            namespace: pool.namespace.clone(),
            name: pool.name.clone(),
            uid: pool.uid.clone(),
        }
    }
}

impl From<&PoolReference> for PoolRef {
    fn from(pool: &PoolReference) -> Self {
        Self {
            api_version: Cow::Owned(pool.api_version.clone()),
            kind: Cow::Owned(pool.kind.clone()),
            namespace: pool.namespace.clone(),
            name: pool.name.clone(),
            uid: pool.uid.clone(),
        }
    }
}

/// The spec that an OperatingSystemConfig of this version has.
pub fn spec_for(pool: PoolReference) -> OperatingSystemConfigSpec {
    OperatingSystemConfigSpec {
        pool_ref: Some(pool),
        ..OperatingSystemConfigSpec::default()
    }
}

/// Reads an OperatingSystemConfig.
#[derive(Clone, Copy, Debug)]
pub struct ContentView<'a>(&'a OperatingSystemConfig);

impl<'a> ContentView<'a> {
    /// The view of `config`.
    pub fn of(config: &'a OperatingSystemConfig) -> Self {
        Self(config)
    }

    fn rendered(self) -> Option<&'a Rendered> {
        self.0.status.as_ref()?.rendered.as_ref()
    }

    /// What was rendered, where the documents are packed.
    fn packed(self) -> Option<&'a Rendered> {
        self.rendered().filter(|rendered| rendered.is_packed())
    }

    /// What it was rendered for; `None` on objects that the Go implementation made.
    pub fn rendered_for(self) -> Option<RenderedFor> {
        let pool = self.pool()?;
        let md = self.0.spec.machine_deployment.as_ref();
        let (revision, template_digest) = match (self.packed(), md) {
            (Some(rendered), _) => (rendered.revision.clone(), rendered.template_digest.clone()),
            (None, Some(md)) => (md.revision.clone(), Some(md.template_digest.clone())),
            (None, None) => (None, None),
        };
        Some(RenderedFor {
            pool,
            revision,
            template_digest: template_digest.unwrap_or_default(),
        })
    }

    /// The pool; `None` on objects that the Go implementation made.
    pub fn pool(self) -> Option<PoolRef> {
        let spec = &self.0.spec;
        let of_older = || {
            let md = spec.machine_deployment.as_ref()?;
            Some(PoolRef::machine_deployment(&md.namespace, &md.name, &md.uid))
        };
        spec.pool_ref.as_ref().map(PoolRef::from).or_else(of_older)
    }

    /// Whether it belongs to the pool whose object has this uid.
    pub fn belongs_to(self, uid: &str) -> bool {
        self.pool().is_some_and(|pool| pool.uid == uid)
    }

    /// Whether the spec says whose it is and nothing else.
    pub fn is_of_this_form(self) -> bool {
        let bare = self.0.spec.pool_ref.clone().map(spec_for);
        bare.as_ref() == Some(&self.0.spec)
    }

    /// The profile that the content was rendered from.
    pub fn profile(self) -> Option<&'a ProfileRef> {
        match self.packed() {
            Some(rendered) => rendered.profile.as_ref(),
            None => self.0.spec.profile.as_ref(),
        }
    }

    /// SHA-256 of the content as its writer gave it, 64 hex characters. It is absent while nothing has been rendered.
    pub fn digest(self) -> Option<&'a str> {
        match self.packed() {
            Some(rendered) => Some(&rendered.digest),
            None => self.0.spec.digest.as_deref(),
        }
    }

    /// What the markers in the content stand for.
    pub fn late_bound(self) -> &'a [LateBound] {
        match self.packed() {
            Some(rendered) => &rendered.late_bound,
            None => &self.0.spec.late_bound,
        }
    }

    /// Cloud of the pool. It is absent while nothing has been rendered.
    pub fn cloud_provider(self) -> Option<CloudProvider> {
        match self.packed() {
            Some(rendered) => rendered.cloud_provider,
            None => self.0.spec.cloud_provider.as_ref().map(|cloud| cloud.name),
        }
    }

    /// Whether the writer says that tokens need a Secret of their own; `None` where the content has to be searched for that.
    pub fn needs_kubeconfig_secret(self) -> Option<bool> {
        self.packed().map(|rendered| rendered.needs_kubeconfig_secret)
    }

    /// The content itself, as `osm-render` makes documents of it.
    ///
    /// # Errors
    /// Documents that nobody has rendered, or that another client has altered.
    pub fn content(self) -> Result<Cow<'a, OperatingSystemConfigSpec>, ContentError> {
        match self.packed() {
            Some(rendered) => unpack(self.pool().as_ref(), rendered).map(Cow::Owned),
            None => Ok(Cow::Borrowed(&self.0.spec)),
        }
    }

    /// The content that may be published, if there is any; see [`publishable`].
    pub fn publishable(self) -> Option<&'a Rendered> {
        publishable(self.0.metadata.generation, self.0.status.as_ref()?)
    }

    /// Whether what may be published is published, for this revision.
    pub fn is_published(self, revision: &str) -> bool {
        let published = self
            .0
            .status
            .as_ref()
            .and_then(|status| status.published.as_ref());
        published
            .zip(self.publishable())
            .is_some_and(|(published, rendered)| {
                published.revision == revision && published.digest == rendered.digest
            })
    }
}

/// The content that may be published. Where the spec holds it, that is the content of the generation which osc-controller rendered: an
/// edit by anybody else has another generation.
pub fn publishable(generation: Option<i64>, status: &OperatingSystemConfigStatus) -> Option<&Rendered> {
    status
        .rendered
        .as_ref()
        .filter(|rendered| rendered.is_packed() || Some(rendered.generation) == generation)
}

/// The content of a `config` that is needed for nothing else; see [`ContentView::content`].
///
/// # Errors
/// As [`ContentView::content`].
pub fn into_content(config: OperatingSystemConfig) -> Result<OperatingSystemConfigSpec, ContentError> {
    let view = ContentView::of(&config);
    match view.packed() {
        Some(rendered) => unpack(view.pool().as_ref(), rendered),
        None => Ok(config.spec),
    }
}

/// Name of the pool that this content is for.
pub fn pool_name(content: &OperatingSystemConfigSpec) -> Option<&str> {
    content.machine_deployment.as_ref().map(|md| md.name.as_str())
}

/// Reads an OperatingSystemConfig that is JSON, and perhaps not whole. Observers that follow objects of every kind use it.
#[derive(Clone, Copy, Debug)]
pub struct ContentJson<'a>(&'a Value);

impl<'a> ContentJson<'a> {
    /// The view of `config`.
    pub fn of(config: &'a Value) -> Self {
        Self(config)
    }

    /// uid of the pool's object.
    pub fn pool_uid(self) -> Option<&'a str> {
        self.text("/spec/poolRef/uid")
            .or_else(|| self.text("/spec/machineDeployment/uid"))
    }

    /// Revision that the content was rendered for.
    pub fn revision(self) -> Option<&'a str> {
        self.text("/status/rendered/revision")
            .or_else(|| self.text("/spec/machineDeployment/revision"))
    }

    /// Whether its content may be published; see [`publishable`].
    pub fn is_publishable(self) -> bool {
        let Some(rendered) = self
            .0
            .pointer("/status/rendered")
            .filter(|rendered| rendered.is_object())
        else {
            return false;
        };
        let generation = rendered.get("generation").and_then(Value::as_i64);
        generation == Some(IN_STATUS)
            || generation.is_some()
                && generation == self.0.pointer("/metadata/generation").and_then(Value::as_i64)
    }

    fn text(self, pointer: &str) -> Option<&'a str> {
        self.0.pointer(pointer)?.as_str()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(generation: i64, rendered: i64) -> Value {
        json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemConfig",
            "metadata": {"name": "p-n-config", "generation": generation},
            "spec": {"digest": "d"},
            "status": {
                "rendered": {"generation": rendered, "digest": "d", "revision": "1"},
                "published": {"digest": "d", "revision": "1", "bootstrapSecret": "b", "provisioningSecret": "p",
                    "credentialExpires": "e"},
            },
        })
    }

    #[test]
    fn only_the_rendered_generation_is_publishable() {
        for (rendered, expected) in [(3, true), (2, false)] {
            let json = config(3, rendered);
            let typed: OperatingSystemConfig = serde_json::from_value(json.clone()).unwrap();
            let view = ContentView::of(&typed);
            assert_eq!(view.publishable().is_some(), expected);
            assert_eq!(ContentJson::of(&json).is_publishable(), expected);
            assert_eq!(
                (view.is_published("1"), view.is_published("2")),
                (expected, false)
            );
        }
        assert!(!ContentJson::of(&json!({})).is_publishable());
    }

    fn rendered_for() -> RenderedFor {
        RenderedFor {
            pool: PoolRef::machine_deployment("n", "p", "u"),
            revision: Some("7".into()),
            template_digest: "t".into(),
        }
    }

    fn content() -> OperatingSystemConfigSpec {
        let mut content = serde_json::from_value(json!({
            "osName": "ubuntu", "cloudProvider": {"name": "aws"}, "provisioningUtility": "cloud-init",
            "bootstrapConfig": {"files": [{"path": "/etc/boot", "content": {"inline": {"data": "boot ü"}}}]},
            "provisioningConfig": {"units": [{"name": "a.service", "enable": true}], "modules": {"runcmd": [["a"]]}},
            "lateBound": [{"id": "api/token", "kind": "ApiToken"}],
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
        } = rendered_for();
        let mut config = OperatingSystemConfig::new("p-n-config", spec_for((&pool).into()));
        let rendered = Rendered {
            revision,
            template_digest: Some(template_digest),
            ..Rendered::default()
        };
        config.status = Some(OperatingSystemConfigStatus {
            rendered: Some(Unpacked::new(&content(), true, rendered).pack()),
            ..OperatingSystemConfigStatus::default()
        });
        config
    }

    fn rendered(config: &mut OperatingSystemConfig) -> &mut Rendered {
        config.status.as_mut().unwrap().rendered.as_mut().unwrap()
    }

    #[test]
    fn a_content_in_the_spec_is_read() {
        let mut typed: OperatingSystemConfig = serde_json::from_value(config(1, 1)).unwrap();
        assert_eq!(ContentView::of(&typed).rendered_for(), None);
        rendered_for().store(&mut typed.spec);
        let view = ContentView::of(&typed);
        assert!(view.belongs_to("u") && !view.belongs_to("v") && !view.is_of_this_form());
        assert_eq!(view.rendered_for(), Some(rendered_for()));
        assert_eq!(view.content().unwrap().as_ref(), &typed.spec);
        let json = serde_json::to_value(&typed).unwrap();
        let view = ContentJson::of(&json);
        assert_eq!(view.pool_uid(), Some("u"));
    }

    #[test]
    fn what_is_packed_is_read_again() {
        let config = packed();
        let view = ContentView::of(&config);
        assert!(view.belongs_to("u") && view.is_of_this_form() && view.publishable().is_some());
        assert_eq!(view.rendered_for(), Some(rendered_for()));
        assert_eq!(view.needs_kubeconfig_secret(), Some(true));
        let mut unpacked = view.content().unwrap().into_owned();
        assert_eq!(unpacked.digest.take().as_deref(), view.digest());
        assert_eq!(unpacked, content());
        let json = serde_json::to_value(&config).unwrap();
        let view = ContentJson::of(&json);
        assert_eq!((view.pool_uid(), view.revision()), (Some("u"), Some("7")));
        assert!(view.is_publishable());
        // The object as it is stored has nothing but these in its spec.
        assert_eq!(json["spec"].as_object().unwrap().len(), 1, "{}", json["spec"]);
    }

    #[test]
    fn the_same_content_is_packed_to_the_same_text_and_gzip_unpacks_it() {
        let (mut one, mut two) = (packed(), packed());
        assert_eq!(rendered(&mut one), rendered(&mut two));
        let packed = rendered(&mut one).bootstrap.clone().unwrap();
        let gzip = STANDARD.decode(packed).unwrap();
        assert_eq!(gzip[4..8], [0; 4], "the header has no time");
        let text = gzip::unpack(&gzip, MAX_CONTENT_BYTES).unwrap();
        assert_eq!(text, serde_json::to_string(&content().bootstrap_config).unwrap());
    }

    /// A digest of another form would make secret-syncer publish every pool again.
    #[test]
    fn what_a_digest_is_of_is_written_as_a_status_is() {
        let mut config = packed();
        let full = rendered(&mut config).clone();
        for rendered in [Rendered::default(), full] {
            let digested = Digested::of(&rendered, "boot", "provision");
            let as_status = Rendered {
                generation: IN_STATUS,
                revision: rendered.revision.clone(),
                os_name: rendered.os_name,
                cloud_provider: rendered.cloud_provider,
                provisioning_utility: rendered.provisioning_utility,
                bootstrap: Some("boot".into()),
                provisioning: Some("provision".into()),
                late_bound: rendered.late_bound.clone(),
                kubelet_kubeconfig: rendered.kubelet_kubeconfig.clone(),
                needs_kubeconfig_secret: rendered.needs_kubeconfig_secret,
                ..Rendered::default()
            };
            assert_eq!(json(&digested), json(&as_status));
        }
    }

    #[test]
    fn what_another_client_altered_is_refused() {
        type Edit = fn(&mut Rendered);
        let other = |text: &str| Some(gzip::USUAL.base64(text));
        let edits: [(&str, Edit); 7] = [
            ("revision", |rendered| rendered.revision = Some("8".into())),
            ("document", |rendered| {
                rendered.bootstrap = Some(gzip::USUAL.base64(r#"{"files":[]}"#));
            }),
            ("late-bound values", |rendered| rendered.late_bound.clear()),
            ("kubeconfig", |rendered| rendered.kubelet_kubeconfig = None),
            ("cloud", |rendered| rendered.cloud_provider = None),
            ("binding of tokens", |rendered| {
                rendered.needs_kubeconfig_secret = false
            }),
            ("digest", |rendered| rendered.digest = "d".into()),
        ];
        for (what, edit) in edits {
            let mut config = packed();
            edit(rendered(&mut config));
            assert_eq!(
                ContentView::of(&config).content(),
                Err(ContentError::Altered),
                "{what}"
            );
            assert_eq!(into_content(config), Err(ContentError::Altered), "{what}");
        }
        let bomb = " ".repeat(MAX_CONTENT_BYTES + 1);
        for (packed, problem) in [
            (None, "nothing has been rendered"),
            (Some("hunter2!".to_owned()), "it is not Base64"),
            (
                Some(STANDARD.encode("hunter2")),
                "it is not text that gzip has compressed",
            ),
            (other(&bomb), "it has more than 524288 bytes"),
        ] {
            let mut config = packed_with(packed);
            let error = ContentView::of(&config).content().unwrap_err().to_string();
            assert!(error.contains(problem) && !error.contains("hunter2"), "{error}");
            // What is dropped from memory is no alteration.
            let stripped = std::mem::take(rendered(&mut config)).without_documents();
            assert_eq!((stripped.bootstrap, stripped.provisioning), (None, None));
        }
    }

    fn packed_with(bootstrap: Option<String>) -> OperatingSystemConfig {
        let mut config = packed();
        rendered(&mut config).bootstrap = bootstrap;
        config
    }
}
