//! The token of a pool: issues one, or takes that of an earlier publish, and checks what it may do before it
//! is published.

use std::time::Duration;

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
use crate::model::token::{Token, granted};
use crate::plan::findings::Cause;
use crate::plan::steps::Publish;
use crate::plan::{questions, renewal};

/// In errors.
const ACCOUNT: &str = "a pool's ServiceAccount";

/// A token of the pool's ServiceAccount, which exists. `is_in_document`: a document has it in it.
///
/// # Errors
/// Requests that failed; [`ApplyError::TokenRefused`].
pub async fn provide(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
    is_in_document: bool,
) -> Result<Token, ApplyError> {
    if let Some(token) = renewal::reusable(gathered, publish) {
        return Ok(token.clone());
    }
    let account = names::pool_account(&gathered.pool);
    let token = request(context, gathered, &account, publish.life).await?;
    context.memory.learn(&gathered.name, Fact::Issued(token.clone()));
    if renewal::is_of_another_account(gathered, &token) {
        let api: Api<ServiceAccount> = context.in_namespace();
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

/// Checks that the token may request certificates and open this Secret, unless that [is](questions::is_known)
/// [known](questions::is_readable).
///
/// # Errors
/// Requests that failed; [`ApplyError::RightMissing`]; [`ApplyError::TokenRefused`].
pub async fn check(
    context: &Context,
    causes: &[Cause],
    token: &Token,
    secret: &str,
    is_as_written: bool,
) -> Result<(), ApplyError> {
    let probe = &context.token_probe;
    if !questions::is_known(probe.found_joinable()) {
        probe.may_join(&token.text).await?;
    }
    if !questions::is_readable(probe.found_readable(), causes, is_as_written) {
        probe.may_read(&token.text, secret).await?;
    }
    Ok(())
}

/// It ends with the ServiceAccount.
async fn request(
    context: &Context,
    gathered: &Gathered,
    account: &str,
    life: Duration,
) -> Result<Token, ApplyError> {
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
    let api: Api<ServiceAccount> = context.in_namespace();
    let answer = api
        .create_token_request(account, &PostParams::default(), &request)
        .await
        .map_err(failed("issuing a token"))?;
    let renew_at = |issued, life| renewal::renew_at(issued, life, &gathered.pool);
    granted(answer, life, renew_at).ok_or(ApplyError::TokenUnreadable)
}
