//! Issues the tokens of nodes, bound to a Secret of their pool, and checks what they may do before they are published.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use osm_api::names::NODE_BOOTSTRAP_ACCOUNT;
use osm_runtime::Api;
use osm_runtime::request::failed;

use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::model::gathered::Gathered;
use crate::model::token_binding::KubeletToken;
use crate::model::tokens::{Issued, Tokens, granted};
use crate::plan::steps::Publish;
use crate::plan::{read_right, renewal};

/// The API server refuses to issue tokens for less.
const SHORTEST_LIFE: Duration = Duration::from_secs(600);

/// Issues the pool's token, and another one for its kubelets where they need one, bound to the Secret with this name and uid.
///
/// # Errors
/// Requests that failed.
pub async fn issue(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
    secret: (&str, &str),
) -> Result<Tokens, ApplyError> {
    let secret = Some(secret);
    let api = request(context, &publish.identity, secret, publish.life);
    let (api, kubelet) = match &publish.kubelet_token {
        KubeletToken::Pool => {
            let api = api.await?;
            (api.clone(), api)
        }
        KubeletToken::NodeAccount => tokio::try_join!(
            api,
            request(context, NODE_BOOTSTRAP_ACCOUNT, secret, publish.life)
        )?,
    };
    let (issued, life) = (api.issued.min(kubelet.issued), api.life.min(kubelet.life));
    Ok(Tokens {
        expires: api.expires.min(kubelet.expires),
        renew_at: renewal::renew_at(issued, life, &gathered.pool),
        api: api.token,
        kubelet: kubelet.token,
    })
}

/// Checks that the tokens open what a node needs: this Secret, and the cluster. The API server is asked only where
/// [`read_right`] and [`join_right`](crate::plan::join_right) say so.
///
/// `is_as_written`: the tokens are new, and the API server has stored the pool's Role and RoleBinding as they were sent.
///
/// # Errors
/// Requests that failed; [`ApplyError::RightMissing`].
pub async fn check(
    context: &Context,
    publish: &Publish,
    tokens: &Tokens,
    secret: &str,
    is_as_written: bool,
) -> Result<(), ApplyError> {
    let probe = &context.clients.token_probe;
    if read_right::has_to_be_asked(probe.found_readable(), &publish.causes, is_as_written) {
        probe.may_read(&tokens.api, secret).await?;
    }
    probe.may_join(&tokens.kubelet, &publish.kubelet_token).await
}

/// A token of this ServiceAccount with the shortest life, for a question about its rights. It is bound to nothing, and kept nowhere.
///
/// # Errors
/// Requests that failed.
pub async fn for_question(context: &Context, account: &str) -> Result<String, ApplyError> {
    Ok(request(context, account, None, SHORTEST_LIFE).await?.token)
}

async fn request(
    context: &Context,
    account: &str,
    secret: Option<(&str, &str)>,
    life: Duration,
) -> Result<Issued, ApplyError> {
    let spec = TokenRequestSpec {
        // Empty: the API server's own audience.
        audiences: Vec::new(),
        expiration_seconds: Some(i64::try_from(life.as_secs()).unwrap_or(i64::MAX)),
        bound_object_ref: secret.map(|(name, uid)| BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Secret".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
        }),
    };
    let request = TokenRequest {
        spec,
        ..TokenRequest::default()
    };
    let api: Api<ServiceAccount> = context.clients.in_namespace();
    let before = context.clients.cluster.worker.server_time.now();
    let issued = api
        .create_token_request(account, &PostParams::default(), &request)
        .await;
    Ok(granted(issued.map_err(failed("issuing a token"))?, before, life))
}
