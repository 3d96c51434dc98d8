//! Owns the token of a pool: issues one, or takes that of an earlier publish, and checks what it may do before
//! it is published. It ends with the ServiceAccount.

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use osm_api::names;
use osm_runtime::Api;
use osm_runtime::request::failed;

use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::model::gathered::Gathered;
use crate::model::memory::Fact;
use crate::model::token::Token;
use crate::plan::steps::Publish;
use crate::plan::token::{granted, is_known, is_of_another_account, is_readable, reusable};

/// A token of the pool's ServiceAccount, which exists. `is_in_document`: a document has it in it.
///
/// # Errors
/// Requests that failed; [`ApplyError::TokenRefused`].
pub async fn issue(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
    is_in_document: bool,
) -> Result<Token, ApplyError> {
    const ACCOUNT: &str = "a pool's ServiceAccount";
    if let Some(token) = reusable(gathered, publish) {
        return Ok(token.clone());
    }
    let (pool, life) = (gathered.pool(), gathered.token_lifetime);
    let account = names::pool_account(&pool);
    let api: Api<ServiceAccount> = context.in_namespace();
    let spec = TokenRequestSpec {
        // Empty: the API server's own audience.
        audiences: Vec::new(),
        expiration_seconds: Some(i64::try_from(life.as_secs()).unwrap_or(i64::MAX)),
        bound_object_ref: None,
    };
    let request = TokenRequest {
        spec,
        ..TokenRequest::default()
    };
    let answer = api
        .create_token_request(&account, &PostParams::default(), &request)
        .await
        .map_err(failed("issuing a token"))?;
    let token = granted(answer, life, &pool).ok_or(ApplyError::TokenUnreadable)?;
    context.memory.learn(&gathered.name, Fact::Issued(token.clone()));
    if is_of_another_account(gathered, &token) {
        let live = api.get(&account).await.map_err(failed(ACCOUNT))?;
        context.caches.wrote_account(&live);
        return Err(osm_runtime::Error::Conflict { what: ACCOUNT }.into());
    }
    // Otherwise each attempt would leave a document with another token in it while the API server refuses
    // tokens.
    if is_in_document && !context.token_probe.is_accepted(&token.text).await? {
        return Err(ApplyError::TokenRefused);
    }
    Ok(token)
}

/// Checks that the token may request certificates and open this Secret, unless that [is](is_known)
/// [known](is_readable).
///
/// # Errors
/// Requests that failed; [`ApplyError::RightMissing`]; [`ApplyError::TokenRefused`].
pub async fn check(
    context: &Context,
    publish: &Publish,
    token: &Token,
    secret: &str,
    is_as_written: bool,
) -> Result<(), ApplyError> {
    let probe = &context.token_probe;
    if !is_known(probe.found_joinable()) {
        probe.may_join(&token.text).await?;
    }
    if !is_readable(probe.found_readable(), &publish.causes(), is_as_written) {
        probe.may_read(&token.text, secret).await?;
    }
    Ok(())
}
