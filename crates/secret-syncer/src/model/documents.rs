//! The filled documents that go into the Secrets, and the MACs that identify them.

use osm_api::Reason;
use osm_api::config::{LateBound, LateBoundKind};
use osm_api::content::{Content, ContentError};
use osm_api::{digest, names};
use osm_render::{LateValues, Stage, UserDataError, kubeconfig_secret};

use crate::model::hmac_key::HmacKey;
use crate::model::published_content::{Entries, PublishedContent, PublishedDocument};
use crate::model::tokens::Tokens;

/// Stand-in for a token while documents are compared.
const NO_TOKEN: &str = "token";

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
}

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
            Self::TooLarge { .. } => Reason::UserDataTooLarge,
        }
    }
}

/// A pool's documents, complete except for the tokens.
#[derive(Clone)]
pub struct Documents {
    spec: Content,
    published_content: PublishedContent,
    values: LateValues,
    /// In a pool with a kubeconfig Secret this and the next three are those of [`Self::with_tokens`], or stand-ins.
    pub provisioning: String,
    /// The data of the provisioning Secret.
    pub entries: Entries,
    /// SHA-256 of the provisioning document.
    pub provisioning_digest: String,
    /// Name of the Secret for the provisioning document.
    pub provisioning_secret: String,
    /// MAC of the bootstrap document with stand-ins for the tokens; in a pool with a kubeconfig Secret, of everything that has tokens.
    pub document_mac: String,
}

impl Documents {
    /// Fills in everything that is known before tokens are issued. `values` are those of the objects that late-bound values refer to.
    ///
    /// # Errors
    /// Values that are missing or don't fit their encoding.
    pub fn make(spec: Content, values: LateValues, pool: &str, key: &HmacKey) -> Result<Self, DocumentError> {
        let mut documents = Self::unfilled(spec, values, pool);
        documents.fill_provisioning(pool, key)?;
        documents.identify(key)
    }

    /// The documents that are published, for other tokens.
    ///
    /// # Errors
    /// As [`Self::make`].
    pub fn published(
        published: &PublishedDocument,
        pool: &str,
        key: &HmacKey,
    ) -> Result<Self, DocumentError> {
        let (spec, values) = (published.content.spec(), published.content.values());
        if kubeconfig_secret::is_needed(spec) {
            // Its provisioning document depends on the tokens.
            return Self::make(spec.clone(), values.clone(), pool, key);
        }
        let mut documents = Self::unfilled(spec.clone(), values.clone(), pool);
        documents.provisioning = published.document.clone();
        documents.name_provisioning(published.entries.clone(), pool, key);
        documents.identify(key)
    }

    /// Without the provisioning document, and what depends on it.
    fn unfilled(spec: Content, mut values: LateValues, pool: &str) -> Self {
        let content = PublishedContent::of(&spec, &values);
        let kubeconfig_secret = names::kubeconfig_secret_name(pool);
        for late in &spec.late_bound {
            let value = match late.kind {
                LateBoundKind::KubeconfigSecretName => kubeconfig_secret.as_str(),
                kind if kubeconfig_secret::is_token(kind) => NO_TOKEN,
                _ => continue,
            };
            values.insert(late.id.clone(), value.to_owned());
        }
        Self {
            spec,
            published_content: content,
            values,
            provisioning: String::new(),
            entries: Entries::default(),
            provisioning_digest: String::new(),
            provisioning_secret: String::new(),
            document_mac: String::new(),
        }
    }

    /// With the MAC.
    fn identify(mut self, key: &HmacKey) -> Result<Self, DocumentError> {
        let bootstrap = osm_render::plain_user_data(&self.spec, Stage::Bootstrap, &self.values);
        let bootstrap = bootstrap.map_err(DocumentError::of(Stage::Bootstrap))?;
        self.document_mac = if kubeconfig_secret::is_needed(&self.spec) {
            let kubeconfig = self.fill_kubeconfig(&self.values)?.unwrap_or_default();
            let parts = [&bootstrap, &self.provisioning, &kubeconfig];
            key.mac(&parts.map(String::as_bytes))
        } else {
            key.mac(&[bootstrap.as_bytes()])
        };
        Ok(self)
    }

    /// The same documents with these tokens in the provisioning document, too.
    ///
    /// # Errors
    /// As [`Self::make`].
    pub fn with_tokens(&self, tokens: &Tokens, pool: &str, key: &HmacKey) -> Result<Self, DocumentError> {
        let mut documents = self.clone();
        documents.values = self.values(tokens);
        documents.fill_provisioning(pool, key)?;
        Ok(documents)
    }

    /// Fills in the provisioning document, its name and its digest.
    fn fill_provisioning(&mut self, pool: &str, key: &HmacKey) -> Result<(), DocumentError> {
        self.provisioning = self.document(Stage::Provisioning, &self.values)?;
        let mut kinds = self.spec.late_bound.iter().map(|late| late.kind);
        let is_compressed = kinds.any(|kind| kind == LateBoundKind::ProvisioningKey);
        let entries = Entries::new(&self.provisioning, is_compressed, &self.published_content);
        self.name_provisioning(entries, pool, key);
        Ok(())
    }

    /// Fills in what depends on the provisioning document.
    fn name_provisioning(&mut self, entries: Entries, pool: &str, key: &HmacKey) {
        self.provisioning_secret = entries.secret_name(pool, key);
        self.entries = entries;
        self.provisioning_digest = digest::sha256_hex(self.provisioning.as_bytes());
        for late in &self.spec.late_bound {
            let value = match late.kind {
                LateBoundKind::ProvisioningSecretName => self.provisioning_secret.as_str(),
                LateBoundKind::ProvisioningKey => names::CLOUD_CONFIG_GZIP_KEY,
                LateBoundKind::ProvisioningDigest => &self.provisioning_digest,
                _ => continue,
            };
            self.values.insert(late.id.clone(), value.to_owned());
        }
    }

    fn document(&self, stage: Stage, values: &LateValues) -> Result<String, DocumentError> {
        osm_render::user_data(&self.spec, stage, values).map_err(DocumentError::of(stage))
    }

    fn fill_kubeconfig(&self, values: &LateValues) -> Result<Option<String>, DocumentError> {
        let failed = |source| DocumentError::UserData {
            stage: "kubeconfig",
            source,
        };
        let kubeconfig = osm_render::kubelet_kubeconfig(&self.spec, values).map_err(failed)?;
        let mut kinds = self.spec.late_bound.iter().map(|late| late.kind);
        if kubeconfig.is_none() && kinds.any(|kind| kind == LateBoundKind::KubeconfigSecretName) {
            return Err(DocumentError::NoKubeconfig);
        }
        Ok(kubeconfig)
    }

    /// The kubelet's bootstrap kubeconfig with its token; `None` where no machine fetches one.
    ///
    /// # Errors
    /// As [`Self::make`].
    pub fn kubeconfig(&self, tokens: &Tokens) -> Result<Option<String>, DocumentError> {
        self.fill_kubeconfig(&self.values(tokens))
    }

    /// Everything that is late-bound, tokens included.
    fn values(&self, tokens: &Tokens) -> LateValues {
        let mut values = self.values.clone();
        for late in &self.spec.late_bound {
            let token = match late.kind {
                LateBoundKind::ApiToken => &tokens.api,
                LateBoundKind::KubeletToken => &tokens.kubelet,
                _ => continue,
            };
            values.insert(late.id.clone(), token.clone());
        }
        values
    }

    /// The script of an edge pool, with its tokens; `None` for others.
    ///
    /// # Errors
    /// As [`Self::bootstrap`].
    pub fn edge_script(&self, tokens: &Tokens) -> Result<Option<String>, DocumentError> {
        let failed = |source| DocumentError::UserData {
            stage: "edge",
            source,
        };
        osm_render::edge_script(&self.spec, &self.values(tokens)).map_err(failed)
    }

    /// The bootstrap document with its tokens.
    ///
    /// # Errors
    /// A document that is larger than the cloud takes.
    pub fn bootstrap(&self, tokens: &Tokens) -> Result<String, DocumentError> {
        let text = self.document(Stage::Bootstrap, &self.values(tokens))?;
        if let (Some(cloud), Some(os)) = (&self.spec.cloud_provider, self.spec.os_name)
            && let Some(limit) = osm_render::size_limit(cloud.name, os)
            && let Some(bytes) = limit.exceeded_by(&text)
        {
            return Err(DocumentError::TooLarge {
                bytes,
                limit: limit.bytes,
            });
        }
        Ok(text)
    }
}

/// MAC of everything that a pool's documents are made from, tokens excepted: unchanged means that the content need
/// not be looked at.
pub fn inputs_mac(key: &HmacKey, digest: &str, late_bound: &[LateBound], values: &LateValues) -> String {
    let mut parts: Vec<&[u8]> = vec![digest.as_bytes()];
    for late in late_bound {
        parts.push(late.id.as_bytes());
        parts.push(values.get(&late.id).map_or(b"".as_slice(), String::as_bytes));
    }
    key.mac(&parts)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use osm_api::config::StageConfig;
    use serde_json::json;

    use super::*;

    const POOL: &str = "0123456789abcdef0123";

    fn stage(data: &str) -> StageConfig {
        let files = json!({"files": [{"path": "/a", "content": {"inline": {"data": data}}}]});
        serde_json::from_value(files).unwrap()
    }

    fn spec(provisioning: &str, kubeconfig: Option<&str>) -> Content {
        let late = [
            ("api/token", LateBoundKind::ApiToken),
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
            late_bound: late
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

    fn tokens(name: &str) -> Tokens {
        Tokens {
            api: format!("api-{name}"),
            kubelet: format!("kubelet-{name}"),
            expires: Timestamp::UNIX_EPOCH,
            renew_at: Timestamp::UNIX_EPOCH,
        }
    }

    const LATER: &str = "%%osm-late{api/token,raw}%% %%osm-late{kubelet/kubeconfig-secret-name,raw}%%";
    const KUBECONFIG: &str = "token: %%osm-late{kubelet/token,raw}%%\n";

    #[test]
    fn a_provisioning_document_with_tokens_is_as_new_as_they_are_and_its_mac_is_not() {
        let key = HmacKey::new([7; 32]);
        let make = || Documents::make(spec(LATER, Some(KUBECONFIG)), LateValues::new(), POOL, &key).unwrap();
        let with = |name| make().with_tokens(&tokens(name), POOL, &key).unwrap();
        let (one, again, two) = (with("one"), with("one"), with("two"));
        assert!(one.provisioning.contains("api-one"), "{}", one.provisioning);
        assert!(one.provisioning.contains(&format!("osm-kubeconfig-{POOL}")));
        assert_eq!(one.provisioning_secret, again.provisioning_secret);
        assert_ne!(one.provisioning_secret, two.provisioning_secret);
        let macs = [make(), one.clone(), two].map(|documents| documents.document_mac);
        assert!(macs.iter().all(|mac| *mac == macs[0]), "{macs:?}");

        let bootstrap = one.bootstrap(&tokens("one")).unwrap();
        for part in [
            one.provisioning_secret.as_str(),
            &one.provisioning_digest,
            "api-one",
        ] {
            assert!(bootstrap.contains(part), "{part}: {bootstrap}");
        }
        assert_eq!(
            one.kubeconfig(&tokens("one")).unwrap().as_deref(),
            Some("token: kubelet-one\n")
        );
    }

    #[test]
    fn the_mac_is_of_everything_that_has_tokens() {
        let key = HmacKey::new([7; 32]);
        let mac = |provisioning: &str, kubeconfig| {
            let spec = spec(provisioning, kubeconfig);
            Documents::make(spec, LateValues::new(), POOL, &key)
                .unwrap()
                .document_mac
        };
        let (one, more) = (format!("{LATER} one"), format!("more {KUBECONFIG}"));
        let macs = [
            mac(LATER, Some(KUBECONFIG)),
            mac(&one, Some(KUBECONFIG)),
            mac(LATER, Some(&more)),
            mac("", None),
        ];
        for (n, mac) in macs.iter().enumerate() {
            assert!(!macs[..n].contains(mac), "{n}: {macs:?}");
        }
    }

    #[test]
    fn a_kubeconfig_that_is_referred_to_has_to_be_there() {
        let key = HmacKey::new([7; 32]);
        let made = Documents::make(spec(LATER, None), LateValues::new(), POOL, &key);
        assert!(matches!(made, Err(DocumentError::NoKubeconfig)));
        let made = Documents::make(
            spec("%%osm-late{api/token,raw}%%", None),
            LateValues::new(),
            POOL,
            &key,
        );
        assert_eq!(made.unwrap().kubeconfig(&tokens("one")).unwrap(), None);
    }
}
