//! Sends the requests of one pool.

use anyhow::{Context, Result, ensure};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Request, StatusCode};
use kube::client::Body;
use kube::core::{DynamicObject, TypeMeta};
use kube::{Client, ResourceExt};
use osm_api::names;
use serde::Deserialize;

use crate::writes::{Step, Values, uid, version};

/// Sends requests with two identities.
#[derive(Clone)]
pub struct Sender {
    /// The implementation's own.
    client: Client,
    /// Without an identity: the token of a node is added to the request.
    anonymous: Client,
}

/// What later requests need of an answer.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    uid: Option<String>,
    resource_version: Option<String>,
}

/// The answer to a TokenRequest.
#[derive(Deserialize)]
struct TokenAnswer {
    status: TokenStatus,
}

#[derive(Deserialize)]
struct TokenStatus {
    token: String,
}

/// The resource of TokenRequests.
const TOKEN_REQUESTS: &str = "serviceaccounts/token";

impl Sender {
    /// Connects as a kubeconfig says.
    ///
    /// # Errors
    /// A TLS configuration that is refused.
    pub fn new(config: kube::Config) -> Result<Self> {
        let mut anonymous = config.clone();
        anonymous.auth_info = kube::config::AuthInfo::default();
        Ok(Self {
            client: config.try_into()?,
            anonymous: anonymous.try_into()?,
        })
    }

    /// The client with the implementation's own identity.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Sends one request, and keeps what later ones need in `values`.
    ///
    /// # Errors
    /// An answer other than success: the request and the server's message.
    pub async fn send(&self, step: &Step, values: &mut Values) -> Result<()> {
        let fail = || {
            format!(
                "{} of {}",
                step.kind,
                values.get(POOL_NAME).map_or("?", String::as_str)
            )
        };
        let mut request = Request::builder()
            .method(step.method.as_str())
            .uri(step.uri.fill(values).with_context(fail)?)
            .header(CONTENT_TYPE, &step.content_type);
        let client = if step.as_node {
            let token = values
                .get(TOKEN)
                .context("no token was requested")
                .with_context(fail)?;
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
            &self.anonymous
        } else {
            &self.client
        };
        let body = step.body.fill(values).with_context(fail)?.into_bytes();
        let answer = client
            .send(request.body(Body::from(body))?)
            .await
            .with_context(fail)?;
        let status = answer.status();
        let bytes = answer.into_body().collect_bytes().await.with_context(fail)?;
        if step.method == "DELETE" && status == StatusCode::NOT_FOUND {
            return Ok(());
        }
        ensure!(
            status.is_success(),
            "{}: {status}: {}",
            fail(),
            String::from_utf8_lossy(&bytes)
        );
        if step.kind.ends_with(TOKEN_REQUESTS) {
            let answer: TokenAnswer = serde_json::from_slice(&bytes).with_context(fail)?;
            values.insert(TOKEN.to_owned(), answer.status.token);
            return Ok(());
        }
        let answer: Answer = serde_json::from_slice(&bytes).with_context(fail)?;
        let Metadata {
            uid: own,
            resource_version,
        } = answer.metadata;
        values.extend(own.map(|own| (uid(step.object), own)));
        values.extend(resource_version.map(|last| (version(step.object), last)));
        Ok(())
    }
}

/// Value: name of the pool.
pub const POOL_NAME: &str = "pool.name";
/// Value: uid of the pool's MachineDeployment.
pub const POOL_UID: &str = "pool.uid";
/// Value: the pool's id in names of ours.
pub const POOL_ID: &str = "pool.id";
/// Value: the revision that machine-controller stamped.
pub const REVISION: &str = "pool.revision";
/// Value: the MachineDeployment with the finalizer of the Go implementation, as JSON.
pub const WITH_FINALIZER: &str = "pool.with-finalizer";
/// Value: the MachineDeployment without this finalizer, as JSON.
pub const WITHOUT_FINALIZER: &str = "pool.without-finalizer";
/// Value: six letters or digits that no other pool has.
pub const TOKEN_ID: &str = "pool.token-id";
const TOKEN: &str = "token";

/// The values that a MachineDeployment gives.
///
/// # Errors
/// An object that can't be serialized.
pub fn values(pool: &DynamicObject) -> Result<Values> {
    let (namespace, name) = (pool.namespace().unwrap_or_default(), pool.name_any());
    let own = pool.uid().unwrap_or_default();
    let id = names::pool_id(&namespace, &name, &own);
    let mut with = pool.clone();
    with.types = Some(TypeMeta {
        api_version: "cluster.k8s.io/v1alpha1".to_owned(),
        kind: "MachineDeployment".to_owned(),
    });
    with.managed_fields_mut().clear();
    with.finalizers_mut()
        .retain(|finalizer| finalizer != names::GO_FINALIZER);
    let without = serde_json::to_string(&with)?;
    with.finalizers_mut().push(names::GO_FINALIZER.to_owned());
    let revision = pool
        .annotations()
        .get(names::REVISION)
        .cloned()
        .unwrap_or_default();
    let token_id = id.get(..6).unwrap_or(&id).to_owned();
    Ok([
        (POOL_NAME, name),
        (POOL_UID, own),
        (POOL_ID, id),
        (REVISION, revision),
        (WITH_FINALIZER, serde_json::to_string(&with)?),
        (WITHOUT_FINALIZER, without),
        (TOKEN_ID, token_id),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into())
}
