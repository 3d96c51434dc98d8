//! Tokens of nodes: issued by the API server, bound to a pool's provisioning Secret, and asked what they may do
//! before they are handed out.

use std::sync::Mutex;
use std::time::Duration;

use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::config::AuthInfo;
use kube::{Api, Client};
use osm_api::names::{CLOUD_INIT_SETTINGS, NODE_BOOTSTRAP_ACCOUNT};
use osm_runtime::request::failed;
use osm_runtime::{Context, client, rights};

use crate::Error;
use crate::state::{State, lock};

/// The API server learns of a new Role or RoleBinding by a watch of its own: for so long its "no" is not believed.
const PATIENCE: [Duration; 5] = [
    Duration::from_millis(20),
    Duration::from_millis(80),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// The rights of `osm-node-bootstrap` are the same for every pool; a "yes" is believed this long.
const BELIEVED: Duration = Duration::from_secs(300);

/// The two tokens of a pool. `Debug` does not show them.
pub struct Tokens {
    /// Opens the pool's own Secrets.
    pub api: String,
    /// May request a node's client certificate.
    pub kubelet: String,
    /// When the first of them expires, as the API server granted it.
    pub expires: Timestamp,
    /// How long the first of them lives from when it was issued: no clock but the API server's counts.
    pub life: Duration,
}

/// Issues both tokens, bound to the provisioning Secret, and checks that they open what a node needs.
///
/// # Errors
/// Requests that failed; [`Error::RightMissing`].
pub async fn issue(
    state: &State,
    account: &str,
    secret: (&str, &str),
    life: Duration,
) -> Result<Tokens, Error> {
    let (api, kubelet) = tokio::try_join!(
        request(state, account, secret, life),
        request(state, NODE_BOOTSTRAP_ACCOUNT, secret, life)
    )?;
    let (expires, life) = (api.expires.min(kubelet.expires), api.life.min(kubelet.life));
    let tokens = Tokens { api: api.token, kubelet: kubelet.token, expires, life };
    state.as_token.check(&tokens, secret.0).await?;
    Ok(tokens)
}

struct Issued {
    token: String,
    expires: Timestamp,
    life: Duration,
}

async fn request(
    state: &State,
    account: &str,
    (name, uid): (&str, &str),
    life: Duration,
) -> Result<Issued, Error> {
    let spec = TokenRequestSpec {
        // Empty: the API server's own audience.
        audiences: Vec::new(),
        expiration_seconds: Some(i64::try_from(life.as_secs()).unwrap_or(i64::MAX)),
        bound_object_ref: Some(BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Secret".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
        }),
    };
    let request = TokenRequest { spec, ..TokenRequest::default() };
    let api: Api<ServiceAccount> = Api::namespaced(state.context.client.clone(), CLOUD_INIT_SETTINGS);
    let before = Timestamp::now();
    let issued = api.create_token_request(account, &PostParams::default(), &request).await;
    let answer = issued.map_err(failed("issuing a token"))?;
    // An answer without a token is not known to happen; such a one expires at once, and is asked for again.
    let (token, expires) =
        answer.status.map_or((String::new(), before), |status| (status.token, status.expiration_timestamp.0));
    // The server writes here what it grants. Our clock may be wrong by more than that.
    let granted = answer.spec.expiration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let granted = granted.map_or(life, Duration::from_secs).min(life);
    let by_clock = Duration::try_from(expires.duration_since(before)).unwrap_or_default();
    // A server that shortens without saying so in the spec is believed by its timestamp.
    let life = if by_clock.is_zero() { granted } else { granted.min(by_clock) };
    Ok(Issued { token, expires, life })
}

/// A connection on which each request carries a token of its own.
pub struct AsToken {
    client: Client,
    believed: Mutex<Option<std::time::Instant>>,
}

impl AsToken {
    /// Connects as nobody.
    ///
    /// # Errors
    /// Certificates that can't be read.
    pub fn new(context: &Context) -> anyhow::Result<Self> {
        let mut config = context.config.clone();
        config.auth_info = AuthInfo::default();
        let client = client::connect(config, &context.metrics, context.args.request_timeout())?;
        Ok(Self { client, believed: Mutex::new(None) })
    }

    async fn check(&self, tokens: &Tokens, secret: &str) -> Result<(), Error> {
        let read = ResourceAttributes {
            namespace: Some(CLOUD_INIT_SETTINGS.to_owned()),
            verb: Some("get".to_owned()),
            resource: Some("secrets".to_owned()),
            name: Some(secret.to_owned()),
            ..ResourceAttributes::default()
        };
        self.must_be_allowed(&tokens.api, read).await?;
        if lock(&self.believed).is_some_and(|since| since.elapsed() < BELIEVED) {
            return Ok(());
        }
        for subresource in [None, Some("nodeclient")] {
            let join = ResourceAttributes {
                group: Some("certificates.k8s.io".to_owned()),
                verb: Some("create".to_owned()),
                resource: Some("certificatesigningrequests".to_owned()),
                subresource: subresource.map(str::to_owned),
                ..ResourceAttributes::default()
            };
            self.must_be_allowed(&tokens.kubelet, join).await?;
        }
        *lock(&self.believed) = Some(std::time::Instant::now());
        Ok(())
    }

    async fn must_be_allowed(&self, token: &str, attributes: ResourceAttributes) -> Result<(), Error> {
        for patience in PATIENCE {
            if self.allowed(token, &attributes).await? {
                return Ok(());
            }
            tokio::time::sleep(patience).await;
        }
        Err(Error::RightMissing { right: rights::describe(&attributes) })
    }

    async fn allowed(&self, token: &str, attributes: &ResourceAttributes) -> Result<bool, Error> {
        let spec = SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes.clone()),
            ..Default::default()
        };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        let body = serde_json::to_vec(&review).map_err(kube::Error::SerdeError);
        let request = body.and_then(|body| {
            Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
                .header(http::header::CONTENT_TYPE, "application/json")
                .header(http::header::AUTHORIZATION, format!("Bearer {token}"))
                .body(body)
                .map_err(kube::Error::HttpError)
        });
        let answer = match request {
            Ok(request) => self.client.request::<SelfSubjectAccessReview>(request).await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(answer) => Ok(answer.status.is_some_and(|status| status.allowed)),
            // The token of an account or Secret that the API server has yet to see.
            Err(error) if osm_runtime::status::is_code(&error, 401) => Ok(false),
            Err(error) => Err(failed("asking what a token may do")(error).into()),
        }
    }
}
