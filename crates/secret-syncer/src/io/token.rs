//! The tokens of a pool: issues them, or takes those of an earlier publish, and checks what they may do before they are published.

use std::collections::BTreeMap;
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
use crate::model::existing::WellKnown;
use crate::model::gathered::Gathered;
use crate::model::memory::Fact;
use crate::model::tokens::{Issued, Tokens, granted};
use crate::model::view::PURPOSE_TOKEN_BINDING;
use crate::plan::findings::Cause;
use crate::plan::steps::Publish;
use crate::plan::{questions, renewal};

/// In errors.
const ACCOUNT: &str = "a pool's ServiceAccount";

/// The API server refuses to issue tokens for less.
const SHORTEST_LIFE: Duration = Duration::from_secs(600);

/// The pool's token, and another one for its kubelets where all pools share an account for that; with everything that they are bound to.
/// `are_in_document`: a document has them in it.
///
/// # Errors
/// Requests that failed; [`ApplyError::ForeignSecret`]; [`ApplyError::TokenRefused`].
pub async fn provide(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
    are_in_document: bool,
) -> Result<Tokens, ApplyError> {
    identity::account(context, gathered, &publish.ownership).await?;
    let binding = match gathered.joining {
        Joining::Approved => None,
        Joining::Static => {
            identity::node_account(context, gathered).await?;
            Some(binding_secret(context, gathered, publish).await?)
        }
    };
    if let Some(tokens) = renewal::reusable(gathered, publish) {
        return Ok(tokens.clone());
    }
    let tokens = issue(context, gathered, publish, binding).await?;
    context.memory.learn(&gathered.name, Fact::Issued(tokens.clone()));
    if renewal::are_of_another_account(gathered, &tokens) {
        let account = names::pool_account(&gathered.pool);
        let api: Api<ServiceAccount> = context.in_namespace();
        let live = api.get(&account).await.map_err(failed(ACCOUNT))?;
        context.caches.wrote_account(&live);
        return Err(osm_runtime::Error::Conflict { what: ACCOUNT }.into());
    }
    if are_in_document {
        // Otherwise each attempt would leave a document with other tokens in it while the API server refuses tokens.
        let other = Some(&tokens.kubelet).filter(|kubelet| **kubelet != tokens.api);
        for token in [&tokens.api].into_iter().chain(other) {
            if !context.token_probe.is_accepted(token).await? {
                return Err(ApplyError::TokenRefused);
            }
        }
    }
    Ok(tokens)
}

/// `binding`: uid of the Secret that a token of the shared account is bound to.
async fn issue(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
    binding: Option<String>,
) -> Result<Tokens, ApplyError> {
    // It ends with the pool's ServiceAccount.
    let account = names::pool_account(&gathered.pool);
    let api = request(context, &account, None, publish.life);
    let (api, kubelet) = match binding {
        None => (api.await?, None),
        Some(uid) => {
            let bound = BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Secret".to_owned()),
                name: Some(names::token_binding_secret_name(&gathered.pool)),
                uid: Some(uid),
            };
            let kubelet = request(context, NODE_BOOTSTRAP_ACCOUNT, Some(bound), publish.life);
            let (api, kubelet) = tokio::try_join!(api, kubelet)?;
            (api, Some(kubelet))
        }
    };
    let bound_to = api
        .bound_to
        .iter()
        .chain(kubelet.iter().flat_map(|kubelet| &kubelet.bound_to));
    let bound_to: Vec<&str> = bound_to.map(String::as_str).collect();
    let bound_to = bound_to.join("/");
    let kubelet = kubelet.unwrap_or_else(|| api.clone());
    let (issued, life) = (api.issued.min(kubelet.issued), api.life.min(kubelet.life));
    Ok(Tokens {
        expires: api.expires.min(kubelet.expires),
        renew_at: renewal::renew_at(issued, life, &gathered.pool),
        api: api.token,
        kubelet: kubelet.token,
        bound_to,
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
        &context.installation,
        &name,
        PURPOSE_TOKEN_BINDING,
    );
    let secret = objects::secret(metadata, BTreeMap::new(), false);
    let secret = well_known::put(context, gathered, WellKnown::TokenBinding, None, secret).await?;
    Ok(secret.meta.uid)
}

/// Checks that the tokens may join and open this Secret, unless that [is](questions::is_known) [known](questions::is_readable).
///
/// # Errors
/// Requests that failed; [`ApplyError::RightMissing`]; [`ApplyError::TokenRefused`].
pub async fn check(
    context: &Context,
    joining: Joining,
    causes: &[Cause],
    tokens: &Tokens,
    secret: &str,
    is_as_written: bool,
) -> Result<(), ApplyError> {
    let probe = &context.token_probe;
    if !questions::is_known(probe.found_joinable()) {
        probe.may_join(&tokens.kubelet, joining).await?;
    }
    if !questions::is_readable(probe.found_readable(), causes, is_as_written) {
        probe.may_read(&tokens.api, secret).await?;
    }
    Ok(())
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
    let api: Api<ServiceAccount> = context.in_namespace();
    let answer = api
        .create_token_request(account, &PostParams::default(), &request)
        .await
        .map_err(failed("issuing a token"))?;
    granted(answer, life).ok_or(ApplyError::TokenUnreadable)
}
