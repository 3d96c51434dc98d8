//! Tokens of nodes: issued by the API server, bound to a pool's provisioning Secret, and asked what they may do
//! before they are handed out.

use std::sync::Mutex;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Request;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use osm_api::names::{CLOUD_INIT_SETTINGS, NODE_BOOTSTRAP_ACCOUNT};
use osm_api::settings::NodeBootstrapKind;
use osm_runtime::request::failed;
use osm_runtime::rights;

use crate::plan::{self, Publish};
use crate::state::{State, lock};
use crate::{Error, bootstrap_token};

/// The API server learns of a new Role or RoleBinding by a watch of its own: for so long its "no" is not believed.
const PATIENCE: [Duration; 5] = [
    Duration::from_millis(20),
    Duration::from_millis(80),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// What may join has the same rights in every pool; a "yes" is believed this long.
const BELIEVED: Duration = Duration::from_secs(300);

/// The two tokens of a pool. `Debug` does not show them.
pub struct Tokens {
    /// Opens the pool's own Secrets.
    pub api: String,
    /// May request a node's client certificate.
    pub kubelet: String,
    /// When they were issued. This and the next two are by the API server's clock alone.
    pub issued: Timestamp,
    /// When the first of them expires, as the API server granted it.
    pub expires: Timestamp,
    /// How long the first of them lives from when it was issued.
    pub life: Duration,
}

/// Issues both tokens, bound to the provisioning Secret where they are ServiceAccounts', and checks that they open what a
/// node needs.
///
/// # Errors
/// Requests that failed; [`Error::RightMissing`], [`Error::BootstrapTokenForbidden`].
pub async fn issue(
    state: &State,
    config: &str,
    publish: &Publish,
    secret: (&str, &str),
) -> Result<Tokens, Error> {
    let api = request(state, &publish.identity, secret, publish.life);
    let (api, kubelet) = match publish.node_bootstrap.kind {
        NodeBootstrapKind::ServiceAccountToken => {
            tokio::try_join!(api, request(state, NODE_BOOTSTRAP_ACCOUNT, secret, publish.life))?
        }
        NodeBootstrapKind::BootstrapToken => {
            let api = api.await?;
            let kubelet = bootstrap_token::issue(state, config, publish, &api).await?;
            (api, kubelet)
        }
    };
    state.as_token.may_read(&api.token, secret.0).await?;
    let joins_by = plan::joins_by(&publish.node_bootstrap, Some(NODE_BOOTSTRAP_ACCOUNT)).unwrap_or_default();
    state.as_token.may_join(&kubelet.token, joins_by).await?;
    Ok(Tokens {
        issued: api.issued.min(kubelet.issued),
        expires: api.expires.min(kubelet.expires),
        life: api.life.min(kubelet.life),
        api: api.token,
        kubelet: kubelet.token,
    })
}

/// A token, and for how long it is good by the API server's clock. `Debug` does not show it.
#[derive(Clone)]
pub struct Issued {
    /// The token.
    pub token: String,
    /// When it was issued.
    pub issued: Timestamp,
    /// When it expires.
    pub expires: Timestamp,
    /// From the one to the other.
    pub life: Duration,
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
    let api: Api<ServiceAccount> = Api::namespaced(state.context.worker.client.clone(), CLOUD_INIT_SETTINGS);
    let before = state.context.worker.server_time.now();
    let issued = api.create_token_request(account, &PostParams::default(), &request).await;
    Ok(granted(issued.map_err(failed("issuing a token"))?, before, life))
}

/// What the API server has granted, which may be less than `asked`. It tells so in the answer's spec, in its status, or
/// only in the token itself: the least is believed. `before` is its clock as we know it, for tokens that say nothing.
fn granted(answer: TokenRequest, before: Timestamp, asked: Duration) -> Issued {
    // An answer without a token is not known to happen; such a one expires at once, and is asked for again.
    let (token, until) =
        answer.status.map_or((String::new(), before), |status| (status.token, status.expiration_timestamp.0));
    let claims = claims(&token);
    let issued = claims.map_or(before, |claims| claims.iat);
    let said = answer.spec.expiration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let said = said.map_or(asked, Duration::from_secs).min(asked);
    let by = |expires: Timestamp| Duration::try_from(expires.duration_since(issued)).unwrap_or_default();
    let expires = claims.map_or(until, |claims| claims.exp.min(until));
    let life = said.min(by(expires));
    let in_time = SignedDuration::try_from(life).unwrap_or_default();
    Issued { token, issued, expires: issued.saturating_add(in_time).unwrap_or(until), life }
}

/// What a JSON Web Token says about its own time.
#[derive(Clone, Copy)]
struct Claims {
    iat: Timestamp,
    exp: Timestamp,
}

fn claims(token: &str) -> Option<Claims> {
    #[derive(serde::Deserialize)]
    struct Seconds {
        iat: i64,
        exp: i64,
    }
    let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let Seconds { iat, exp } = serde_json::from_slice(&payload).ok()?;
    Some(Claims { iat: Timestamp::from_second(iat).ok()?, exp: Timestamp::from_second(exp).ok()? })
}

/// A connection on which each request carries a token of its own.
pub struct AsToken {
    client: Client,
    /// Since when what joins is known to be allowed to.
    believed: Mutex<Option<(String, tokio::time::Instant)>>,
}

impl AsToken {
    /// On a connection as nobody.
    pub fn new(client: Client) -> Self {
        Self { client, believed: Mutex::new(None) }
    }

    async fn may_read(&self, token: &str, secret: &str) -> Result<(), Error> {
        let read = ResourceAttributes {
            namespace: Some(CLOUD_INIT_SETTINGS.to_owned()),
            verb: Some("get".to_owned()),
            resource: Some("secrets".to_owned()),
            name: Some(secret.to_owned()),
            ..ResourceAttributes::default()
        };
        self.must_be_allowed(token, read).await
    }

    async fn may_join(&self, token: &str, joins_by: String) -> Result<(), Error> {
        let believed = |(known, since): &(String, tokio::time::Instant)| {
            *known == joins_by && since.elapsed() < BELIEVED
        };
        if lock(&self.believed).as_ref().is_some_and(believed) {
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
            self.must_be_allowed(token, join).await?;
        }
        *lock(&self.believed) = Some((joins_by, tokio::time::Instant::now()));
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ASKED: Duration = Duration::from_secs(24 * 3600);
    const NOW: i64 = 1_800_000_000;

    fn answer(said: Option<i64>, until: i64, claims: Option<(i64, i64)>) -> TokenRequest {
        let token = claims.map_or("opaque".to_owned(), |(iat, exp)| {
            format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(json!({"iat": iat, "exp": exp}).to_string()))
        });
        let until = Timestamp::from_second(until).unwrap().to_string();
        serde_json::from_value(json!({
            "spec": {"audiences": [], "expirationSeconds": said},
            "status": {"token": token, "expirationTimestamp": until},
        }))
        .unwrap()
    }

    #[test]
    fn the_least_that_the_api_server_says_is_what_it_grants() {
        let day = 24 * 3600;
        for (what, said, until, claims, life) in [
            ("as asked", Some(day), NOW + day, Some((NOW, NOW + day)), day),
            ("less, as it says", Some(600), NOW + 600, Some((NOW, NOW + 600)), 600),
            ("less, in the status only", Some(day), NOW + 600, None, 600),
            ("less, in the status and nowhere else", None, NOW + 600, Some((NOW, NOW + 600)), 600),
            ("less, in the token only", Some(day), NOW + day, Some((NOW, NOW + 600)), 600),
            // Those of Kubernetes' own pods live a year, and are to be renewed after an hour.
            ("more, in the token only", Some(3600), NOW + 3600, Some((NOW, NOW + 365 * day)), 3600),
            ("more than asked", Some(9 * day), NOW + 9 * day, Some((NOW, NOW + 9 * day)), day),
        ] {
            let issued = granted(answer(said, until, claims), Timestamp::from_second(NOW).unwrap(), ASKED);
            assert_eq!(issued.life.as_secs(), u64::try_from(life).unwrap(), "{what}");
            assert_eq!(issued.expires.as_second(), NOW + life, "{what}");
        }
    }

    #[test]
    fn our_clock_does_not_count() {
        for hours_off in [-30, 30] {
            let ours = Timestamp::from_second(NOW + hours_off * 3600).unwrap();
            let issued = granted(answer(Some(600), NOW + 600, Some((NOW, NOW + 600))), ours, ASKED);
            assert_eq!((issued.issued.as_second(), issued.expires.as_second()), (NOW, NOW + 600));
            assert_eq!(issued.life.as_secs(), 600);
        }
    }

    #[test]
    fn an_answer_without_a_token_is_good_for_nothing() {
        let issued = granted(TokenRequest::default(), Timestamp::from_second(NOW).unwrap(), ASKED);
        assert!(issued.life.is_zero() && issued.expires.as_second() == NOW);
    }
}
