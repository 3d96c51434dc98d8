//! The tokens of a pool: issues them, or takes those of an earlier publish, and checks what they may do before they are published.

use std::time::Duration;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use osm_api::Joining;
use osm_api::names::{self, NODE_BOOTSTRAP_ACCOUNT};
use osm_runtime::Api;
use osm_runtime::request::failed;

use crate::io::apply::{identity, objects, well_known};
use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::model::bound_to::bound_to;
use crate::model::gathered::Gathered;
use crate::model::memory::KeptTokens;
use crate::model::tokens::{Issued, Tokens, granted};
use crate::model::view::ROLE_TOKEN_BINDING;
use crate::plan::adoption::WellKnown;
use crate::plan::steps::Publish;
use crate::plan::{read_right, renewal};

/// The API server refuses to issue tokens for less.
const SHORTEST_LIFE: Duration = Duration::from_secs(600);

/// Tokens that are about to be published.
pub struct Provided {
    pub tokens: Tokens,
    /// Value of the annotation [`names::BOUND_TO`].
    pub bound_to: String,
    /// Whether they were issued just now.
    pub are_new: bool,
}

/// The pool's token, and another one for its kubelets where all pools share an account for that; with everything that they are bound to.
///
/// # Errors
/// Requests that failed; [`ApplyError::ForeignSecret`].
pub async fn provide(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
) -> Result<Provided, ApplyError> {
    let account = identity::account(context, gathered, &publish.ownership).await?;
    let shared = match gathered.joining {
        Joining::Approved => None,
        Joining::Static => Some((
            identity::node_account(context, gathered).await?,
            binding_secret(context, gathered, publish).await?,
        )),
    };
    let uids = shared
        .as_ref()
        .map(|(node, binding)| [Some(node.as_str()), Some(binding.as_str())]);
    let bound_to = bound_to(Some(&account), uids).unwrap_or_default();
    if let Some(tokens) = renewal::reusable(gathered, publish, &bound_to) {
        return Ok(Provided {
            tokens: tokens.clone(),
            bound_to,
            are_new: false,
        });
    }
    let tokens = issue(
        context,
        gathered,
        publish,
        shared.as_ref().map(|(_, binding)| binding.as_str()),
    )
    .await?;
    let kept = KeptTokens {
        bound_to: bound_to.clone(),
        tokens: tokens.clone(),
    };
    context
        .memory
        .edit(&gathered.name, |memory| memory.tokens = Some(kept));
    Ok(Provided {
        tokens,
        bound_to,
        are_new: true,
    })
}

/// `binding`: uid of the Secret that a token of the shared account is bound to.
async fn issue(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
    binding: Option<&str>,
) -> Result<Tokens, ApplyError> {
    // It ends with the pool's ServiceAccount.
    let account = names::pool_account(&gathered.pool);
    let api = request(context, &account, None, publish.life);
    let (api, kubelet) = match binding {
        None => {
            let api = api.await?;
            (api.clone(), api)
        }
        Some(uid) => {
            let name = names::token_binding_secret_name(&gathered.pool);
            let bound = BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Secret".to_owned()),
                name: Some(name),
                uid: Some(uid.to_owned()),
            };
            let kubelet = request(context, NODE_BOOTSTRAP_ACCOUNT, Some(bound), publish.life);
            tokio::try_join!(api, kubelet)?
        }
    };
    let (issued, life) = (api.issued.min(kubelet.issued), api.life.min(kubelet.life));
    Ok(Tokens {
        expires: api.expires.min(kubelet.expires),
        renew_at: renewal::renew_at(issued, life, &gathered.pool),
        api: api.token,
        kubelet: kubelet.token,
    })
}

/// The Secret without data that the pool's token of the shared account is bound to. Returns its uid.
async fn binding_secret(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
) -> Result<String, ApplyError> {
    if let Some(secret) = &gathered.existing.token_binding {
        return Ok(secret.meta.uid.clone());
    }
    let name = names::token_binding_secret_name(&gathered.pool);
    let metadata = objects::metadata(
        &publish.ownership,
        &context.clients.installation,
        &name,
        ROLE_TOKEN_BINDING,
    );
    let secret = objects::secret(metadata, None, false);
    let secret = well_known::put(context, gathered, WellKnown::TokenBinding, None, secret).await?;
    Ok(secret.meta.uid)
}

/// Checks that the tokens open what a node needs: this Secret, and the cluster. The API server is asked only where
/// [`read_right`] and [`join_right`](crate::plan::join_right) say so.
///
/// `is_as_written`: the API server has stored the pool's Role and RoleBinding as they were sent.
///
/// # Errors
/// Requests that failed; [`ApplyError::RightMissing`]; [`ApplyError::TokenRefused`].
pub async fn check(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
    provided: &Provided,
    secret: &str,
    is_as_written: bool,
) -> Result<(), ApplyError> {
    let (probe, tokens) = (&context.clients.token_probe, &provided.tokens);
    let checked = async {
        if read_right::has_to_be_asked(probe.found_readable(), &publish.causes(), is_as_written) {
            probe.may_read(&tokens.api, secret).await?;
        }
        probe.may_join(&tokens.kubelet, gathered.joining).await
    };
    forget_refused(context, gathered, checked.await)
}

/// Checks that the API server accepts the pool's token at all.
///
/// # Errors
/// As [`check`].
pub async fn accepted(context: &Context, gathered: &Gathered, provided: &Provided) -> Result<(), ApplyError> {
    let probe = &context.clients.token_probe;
    forget_refused(context, gathered, probe.is_accepted(&provided.tokens.api).await)
}

/// The API server may have another key to verify tokens with by now, so the next attempt gets new ones.
fn forget_refused(
    context: &Context,
    gathered: &Gathered,
    checked: Result<(), ApplyError>,
) -> Result<(), ApplyError> {
    if matches!(checked, Err(ApplyError::TokenRefused)) {
        context.memory.edit(&gathered.name, |memory| memory.tokens = None);
    }
    checked
}

/// A token of this ServiceAccount with the shortest life, for a question about its rights. It is kept nowhere.
///
/// # Errors
/// Requests that failed.
pub async fn for_question(context: &Context, account: &str) -> Result<String, ApplyError> {
    Ok(request(context, account, None, SHORTEST_LIFE).await?.token)
}

async fn request(
    context: &Context,
    account: &str,
    bound_object_ref: Option<BoundObjectReference>,
    life: Duration,
) -> Result<Issued, ApplyError> {
    let spec = TokenRequestSpec {
        // Empty: the API server's own audience.
        audiences: Vec::new(),
        expiration_seconds: Some(i64::try_from(life.as_secs()).unwrap_or(i64::MAX)),
        bound_object_ref,
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
