//! The filled documents that go into the Secrets.

use std::borrow::Cow;
use std::cell::LazyCell;

use k8s_openapi::ByteString;
use osm_api::Reason;
use osm_api::config::LateBoundKind;
use osm_api::content::{Content, ContentError};
use osm_api::{digest, names};
use osm_user_data::{LateValues, Stage, UserDataError, kubeconfig_secret};

use crate::model::published_content::{Entries, Published, PublishedContent, entries};
use crate::model::record::of_parts;
use crate::model::token::Token;

/// Stand-ins while documents are compared.
const NO_TOKEN: &str = "token";
const NO_SECRET: &str = "secret";

#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error("{0}; osc-controller writes it again")]
    Content(#[from] ContentError),
    #[error("the {stage} document can't be generated: {source}")]
    UserData {
        /// `bootstrap`, `provisioning`, `edge` or `kubeconfig`.
        stage: &'static str,
        source: UserDataError,
    },
    #[error(
        "a document refers to the Secret with the kubelet's kubeconfig, and status.rendered.kubeletKubeconfig is empty; delete this OperatingSystemConfig, so that osc-controller of the same version creates it again"
    )]
    NoKubeconfig,
    #[error(
        "the bootstrap document has {bytes} bytes as the cloud counts them, and the limit is {limit}; make the profile's bootstrapConfig smaller"
    )]
    TooLarge { bytes: usize, limit: usize },
    #[error(
        "the {stage} document has {bytes} bytes as it is stored, and the limit of a Secret is {MAX_SECRET_BYTES}; make the profile or the values that it takes smaller"
    )]
    SecretTooLarge {
        /// `bootstrap` or `provisioning`.
        stage: &'static str,
        bytes: usize,
    },
}

/// The API server refuses Secrets with more data.
const MAX_SECRET_BYTES: usize = 1024 * 1024;

impl DocumentError {
    fn of(stage: Stage) -> impl FnOnce(UserDataError) -> Self {
        let stage = match stage {
            Stage::Bootstrap => "bootstrap",
            Stage::Provisioning => "provisioning",
        };
        move |source| Self::UserData { stage, source }
    }

    /// Reason for conditions, events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Content(_) => Reason::ContentModified,
            Self::UserData { source, .. } => source.reason(),
            Self::NoKubeconfig => Reason::LateBoundValueMissing,
            Self::TooLarge { .. } | Self::SecretTooLarge { .. } => Reason::UserDataTooLarge,
        }
    }
}

/// A pool's documents, complete except for the token and the name of the provisioning Secret.
#[derive(Clone)]
pub struct Documents {
    spec: Content,
    values: LateValues,
    /// What they are made from.
    pub content: PublishedContent,
    /// With a stand-in for the token, unless it is that of [`Self::with_token`].
    pub provisioning: String,
    /// The data of the provisioning Secret.
    pub entries: Entries,
}

impl Documents {
    /// Fills in everything that is known before the token is issued. `values` are those of the objects that
    /// late-bound values refer to.
    ///
    /// # Errors
    /// Values that are missing or don't fit their encoding.
    pub fn make(spec: Content, values: LateValues, pool: &str) -> Result<Self, DocumentError> {
        let mut documents = Self::unfilled(spec, values, pool);
        documents.fill_provisioning()?;
        let bootstrap = osm_user_data::plain_user_data(&documents.spec, Stage::Bootstrap, &documents.values)
            .map_err(DocumentError::of(Stage::Bootstrap))?;
        let kubeconfig = documents.fill_kubeconfig(&documents.values)?.unwrap_or_default();
        let parts = [&bootstrap, &documents.provisioning, &kubeconfig];
        documents.content.digest = of_parts(parts.map(String::as_bytes));
        documents.store()?;
        Ok(documents)
    }

    /// The documents that are published, for another token.
    ///
    /// # Errors
    /// As [`Self::make`].
    pub fn published(published: &Published, pool: &str) -> Result<Self, DocumentError> {
        let (spec, values) = (published.content.spec(), published.content.values());
        if kubeconfig_secret::is_needed(spec) {
            // Its provisioning document depends on the token.
            return Self::make(spec.clone(), values.clone(), pool);
        }
        let mut documents = Self::unfilled(spec.clone(), values.clone(), pool);
        documents.content = published.content.clone();
        documents.provisioning.clone_from(&published.document);
        documents.entries = published.entries.clone();
        documents.note_provisioning();
        Ok(documents)
    }

    /// Without the provisioning document, and what depends on it.
    fn unfilled(spec: Content, mut values: LateValues, pool: &str) -> Self {
        let content = PublishedContent::of(&spec, &values);
        let kubeconfig_secret = names::kubeconfig_secret_name(pool);
        // Published documents that are used again need none.
        let content_id = LazyCell::new(|| spec.id());
        for late in &spec.late_bound_values {
            let value = match late.kind {
                LateBoundKind::KubeconfigSecretName => kubeconfig_secret.as_str(),
                LateBoundKind::ProvisioningSecretName => NO_SECRET,
                LateBoundKind::PoolID => pool,
                LateBoundKind::ContentID => content_id.as_str(),
                kind if kubeconfig_secret::is_token(kind) => NO_TOKEN,
                _ => continue,
            };
            values.insert(late.id.clone(), value.to_owned());
        }
        Self {
            spec,
            values,
            content,
            provisioning: String::new(),
            entries: Entries::default(),
        }
    }

    /// Whether the provisioning document depends on the token.
    pub fn has_token_later(&self) -> bool {
        kubeconfig_secret::is_needed(&self.spec)
    }

    /// Whether documents that are published differ from these in their token only.
    pub fn are_published(&self, published: &Published) -> bool {
        let is_same_document = self.has_token_later() || self.provisioning == published.document;
        is_same_document && self.content == published.content
    }

    /// The same documents with this token in the provisioning document, where it depends on it.
    ///
    /// # Errors
    /// As [`Self::make`].
    pub fn with_token(&self, token: &Token) -> Result<Cow<'_, Self>, DocumentError> {
        if !self.has_token_later() {
            return Ok(Cow::Borrowed(self));
        }
        let mut documents = self.clone();
        documents.values = self.values(token, NO_SECRET);
        documents.fill_provisioning()?;
        documents.store()?;
        Ok(Cow::Owned(documents))
    }

    fn fill_provisioning(&mut self) -> Result<(), DocumentError> {
        self.provisioning = self.document(Stage::Provisioning, &self.values)?;
        self.note_provisioning();
        Ok(())
    }

    /// Fills in what depends on the provisioning document.
    fn note_provisioning(&mut self) {
        let provisioning_digest = digest::sha256_hex(self.provisioning.as_bytes());
        for late in &self.spec.late_bound_values {
            let value = match late.kind {
                LateBoundKind::ProvisioningKey => names::CLOUD_CONFIG_GZIP_KEY,
                LateBoundKind::ProvisioningDigest => &provisioning_digest,
                _ => continue,
            };
            self.values.insert(late.id.clone(), value.to_owned());
        }
    }

    fn store(&mut self) -> Result<(), DocumentError> {
        let mut kinds = self.spec.late_bound_values.iter().map(|late| late.kind);
        let is_compressed = kinds.any(|kind| kind == LateBoundKind::ProvisioningKey);
        self.entries = entries(&self.provisioning, is_compressed, &self.content);
        fits_a_secret(
            "provisioning",
            self.entries.values().map(|bytes| bytes.0.len()).sum(),
        )
    }

    fn document(&self, stage: Stage, values: &LateValues) -> Result<String, DocumentError> {
        osm_user_data::user_data(&self.spec, stage, values).map_err(DocumentError::of(stage))
    }

    fn fill_kubeconfig(&self, values: &LateValues) -> Result<Option<String>, DocumentError> {
        let failed = |source| DocumentError::UserData {
            stage: "kubeconfig",
            source,
        };
        let kubeconfig = osm_user_data::kubelet_kubeconfig(&self.spec, values).map_err(failed)?;
        let mut kinds = self.spec.late_bound_values.iter().map(|late| late.kind);
        if kubeconfig.is_none() && kinds.any(|kind| kind == LateBoundKind::KubeconfigSecretName) {
            return Err(DocumentError::NoKubeconfig);
        }
        Ok(kubeconfig)
    }

    /// Everything that is late-bound, the token included.
    fn values(&self, token: &Token, provisioning_secret: &str) -> LateValues {
        let mut values = self.values.clone();
        for late in &self.spec.late_bound_values {
            let value = match late.kind {
                LateBoundKind::APIToken | LateBoundKind::KubeletToken => &token.text,
                LateBoundKind::ProvisioningSecretName => provisioning_secret,
                _ => continue,
            };
            values.insert(late.id.clone(), value.to_owned());
        }
        values
    }

    /// What the Secrets hold that one publish replaces, with this token, and the name of the provisioning
    /// Secret.
    ///
    /// # Errors
    /// As [`Self::make`]; a document that is larger than the cloud takes.
    pub fn texts(&self, token: &Token, secret: &str) -> Result<Texts, DocumentError> {
        let values = self.values(token, secret);
        let kubeconfig = if self.has_token_later() {
            let text = self.fill_kubeconfig(&values)?;
            Some(text.map_or_else(Entries::new, |text| entry(names::KUBECONFIG_KEY, text)))
        } else {
            None
        };
        let bootstrap = entry(names::CLOUD_CONFIG_KEY, self.bootstrap(&values)?);
        let failed = |source| DocumentError::UserData {
            stage: "edge",
            source,
        };
        let script = osm_user_data::edge_script(&self.spec, &values).map_err(failed)?;
        Ok(Texts {
            kubeconfig,
            bootstrap,
            edge_script: script.map(|script| entry(names::EDGE_SCRIPT_KEY, script)),
        })
    }

    fn bootstrap(&self, values: &LateValues) -> Result<String, DocumentError> {
        let text = self.document(Stage::Bootstrap, values)?;
        if let (Some(cloud), Some(os)) = (&self.spec.cloud_provider, self.spec.os_name)
            && let Some(limit) = osm_user_data::size_limit(cloud.name, os)
            && let Some(bytes) = limit.exceeded_by(&text)
        {
            return Err(DocumentError::TooLarge {
                bytes,
                limit: limit.bytes,
            });
        }
        fits_a_secret("bootstrap", text.len())?;
        Ok(text)
    }
}

/// The data of the Secrets that one publish replaces.
pub struct Texts {
    /// `None`: machines fetch none. It may hold nothing.
    pub kubeconfig: Option<Entries>,
    pub bootstrap: Entries,
    /// Of an edge pool.
    pub edge_script: Option<Entries>,
}

fn entry(key: &str, text: String) -> Entries {
    Entries::from([(key.to_owned(), ByteString(text.into_bytes()))])
}

fn fits_a_secret(stage: &'static str, bytes: usize) -> Result<(), DocumentError> {
    if bytes <= MAX_SECRET_BYTES {
        Ok(())
    } else {
        Err(DocumentError::SecretTooLarge { stage, bytes })
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use osm_api::config::{LateBound, StageConfig};
    use serde_json::json;

    use super::*;
    use crate::model::record::of_entries;

    const POOL: &str = "0123456789abcdef0123";

    fn stage(data: &str) -> StageConfig {
        let files = json!({"files": [{"path": "/a", "content": {"inline": {"data": data}}}]});
        serde_json::from_value(files).unwrap()
    }

    fn spec(provisioning: &str, kubeconfig: Option<&str>) -> Content {
        let late = [
            ("api/token", LateBoundKind::APIToken),
            ("kubelet/token", LateBoundKind::KubeletToken),
            (
                "kubelet/kubeconfig-secret-name",
                LateBoundKind::KubeconfigSecretName,
            ),
            ("provisioning/secret-name", LateBoundKind::ProvisioningSecretName),
            ("provisioning/sha256", LateBoundKind::ProvisioningDigest),
        ];
        let bootstrap = "%%osm-late{api/token,raw}%% %%osm-late{provisioning/secret-name,raw}%% \
                         %%osm-late{provisioning/sha256,raw}%%";
        let texts = [bootstrap, provisioning, kubeconfig.unwrap_or_default()];
        Content {
            bootstrap_config: stage(bootstrap),
            provisioning_config: stage(provisioning),
            kubelet_kubeconfig: kubeconfig.map(str::to_owned),
            late_bound_values: late
                .into_iter()
                .filter(|(id, _)| texts.iter().any(|text| text.contains(id)))
                .map(|(id, kind)| LateBound {
                    id: id.into(),
                    kind,
                    source: None,
                })
                .collect(),
            ..Content::default()
        }
    }

    fn token(name: &str) -> Token {
        Token {
            text: format!("token-{name}"),
            account: String::new(),
            expires: Timestamp::UNIX_EPOCH,
            renew_at: Timestamp::UNIX_EPOCH,
        }
    }

    const LATER: &str = "%%osm-late{api/token,raw}%% %%osm-late{kubelet/kubeconfig-secret-name,raw}%%";
    const KUBECONFIG: &str = "token: %%osm-late{kubelet/token,raw}%%\n";

    #[test]
    fn a_provisioning_document_with_a_token_is_as_new_as_that_is_and_what_it_is_made_from_is_not() {
        let make = || Documents::make(spec(LATER, Some(KUBECONFIG)), LateValues::new(), POOL).unwrap();
        let with = |name| make().with_token(&token(name)).unwrap().into_owned();
        let (one, again, two) = (with("one"), with("one"), with("two"));
        assert!(one.provisioning.contains("token-one"), "{}", one.provisioning);
        assert!(one.provisioning.contains(&format!("osm-kubeconfig-{POOL}")));
        assert_eq!(of_entries(&one.entries), of_entries(&again.entries));
        assert_ne!(of_entries(&one.entries), of_entries(&two.entries));
        assert!(one.content == make().content && two.content == make().content);

        let texts = one.texts(&token("one"), "the-secret").unwrap();
        let text = |data: &Entries, key: &str| String::from_utf8(data[key].0.clone()).unwrap();
        let bootstrap = text(&texts.bootstrap, names::CLOUD_CONFIG_KEY);
        let kubeconfig = text(&texts.kubeconfig.unwrap(), names::KUBECONFIG_KEY);
        assert!(texts.edge_script.is_none());
        let digest = digest::sha256_hex(one.provisioning.as_bytes());
        for part in ["the-secret", &digest, "token-one"] {
            assert!(bootstrap.contains(part), "{part}: {bootstrap}");
        }
        assert_eq!(kubeconfig, "token: token-one\n");
    }

    #[test]
    fn nodes_get_the_ids_of_their_pool_and_of_a_content_that_a_revision_does_not_change() {
        let marked = |revision: &str| {
            let ids = [
                ("pool/id", LateBoundKind::PoolID),
                ("pool/content", LateBoundKind::ContentID),
            ];
            let mut spec = spec("%%osm-late{pool/id,raw}%% %%osm-late{pool/content,raw}%%", None);
            spec.late_bound_values.extend(ids.map(|(id, kind)| LateBound {
                id: id.into(),
                kind,
                source: None,
            }));
            let md = json!({"namespace": "n", "name": "p", "uid": "u", "revision": revision, "templateDigest": revision});
            spec.machine_deployment = serde_json::from_value(md).unwrap();
            spec
        };
        let id = marked("1").id();
        assert!(
            id.len() == 16 && id == marked("2").id() && id != spec("", None).id(),
            "{id}"
        );
        let provisioning = Documents::make(marked("1"), LateValues::new(), POOL)
            .unwrap()
            .provisioning;
        assert!(provisioning.contains(&format!("{POOL} {id}")), "{provisioning}");
    }

    #[test]
    fn the_digest_is_of_all_documents() {
        let digest = |provisioning: &str, kubeconfig| {
            let spec = spec(provisioning, kubeconfig);
            Documents::make(spec, LateValues::new(), POOL)
                .unwrap()
                .content
                .digest
        };
        let (one, more) = (format!("{LATER} one"), format!("more {KUBECONFIG}"));
        let digests = [
            digest(LATER, Some(KUBECONFIG)),
            digest(&one, Some(KUBECONFIG)),
            digest(LATER, Some(&more)),
            digest("", None),
        ];
        for (n, digest) in digests.iter().enumerate() {
            assert!(!digests[..n].contains(digest), "{n}: {digests:?}");
        }
    }

    #[test]
    fn a_kubeconfig_that_is_referred_to_has_to_be_there() {
        let made = Documents::make(spec(LATER, None), LateValues::new(), POOL);
        assert!(matches!(made, Err(DocumentError::NoKubeconfig)));
        let made = Documents::make(spec("%%osm-late{api/token,raw}%%", None), LateValues::new(), POOL);
        let texts = made.unwrap().texts(&token("one"), "the-secret").unwrap();
        assert!(texts.kubeconfig.is_some_and(|data| data.is_empty()) && !texts.bootstrap.is_empty());
    }
}
