//! The kubeconfig Secret, which the tokens of some pools are bound to: it exists before them, and is filled with them.

use jiff::Timestamp;
use osm_api::names;

use crate::io::apply::filled::Filled;
use crate::io::apply::well_known::Claim;
use crate::io::apply::{objects, teardown, well_known};
use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::io::tokens;
use crate::model::gathered::Gathered;
use crate::model::memory::KeptTokens;
use crate::model::tokens::Tokens;
use crate::model::view::{ROLE_KUBECONFIG, SecretView};
use crate::plan::adoption::WellKnown;
use crate::plan::kubeconfig_secret::are_reusable;
use crate::plan::steps::{KubeconfigSecret, KubeconfigSecretStep, Publish};

/// The Secret exists, perhaps with other content. One that is changed later keeps its content until then.
///
/// # Errors
/// Requests that failed; [`ApplyError::ForeignSecret`] where the name is taken.
pub async fn provide(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
    secret: &KubeconfigSecret,
) -> Result<SecretView, ApplyError> {
    match &secret.step {
        KubeconfigSecretStep::Keep { secret } => return Ok((**secret).clone()),
        KubeconfigSecretStep::Recreate { secret } => teardown::secret(context, secret).await?,
        KubeconfigSecretStep::Create => {}
    }
    let installation = &context.clients.installation;
    let mut metadata = objects::metadata(&publish.ownership, installation, &secret.name, ROLE_KUBECONFIG);
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(names::KEEP_UNTIL.to_owned(), secret.keep_until.to_string());
    let empty = objects::secret(metadata, None, false);
    match well_known::claim(context, gathered, WellKnown::Kubeconfig, &empty).await? {
        Claim::Created(secret) | Claim::Found(secret) => Ok(secret),
    }
}

/// The tokens of an earlier publish, or new ones. They open the Secret, which they are bound to as `bound_to` says.
///
/// # Errors
/// As [`tokens::issue`] and [`tokens::check`].
pub async fn tokens(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
    secret: &SecretView,
    bound_to: &str,
) -> Result<Tokens, ApplyError> {
    let kept = gathered.memory.tokens.as_ref();
    let tokens = match kept.filter(|kept| are_reusable(kept, bound_to, gathered.now)) {
        Some(kept) => kept.tokens.clone(),
        None => {
            let bound = (secret.meta.name.as_str(), secret.meta.uid.as_str());
            tokens::issue(context, gathered, publish, bound).await?
        }
    };
    // Tokens of an earlier publish may be refused by now.
    let checked = tokens::check(context, publish, &tokens, &secret.meta.name, false).await;
    // The API server may have another key to verify tokens with by now, so the next attempt gets new ones.
    let is_refused = matches!(checked, Err(ApplyError::RightMissing { .. }));
    let kept = (!is_refused).then(|| KeptTokens {
        bound_to: bound_to.to_owned(),
        tokens: tokens.clone(),
    });
    context.memory.edit(&gathered.name, |memory| memory.tokens = kept);
    checked.map(|()| tokens)
}

/// Writes the Secret as it is published with these tokens, over the one that exists.
///
/// # Errors
/// Requests that failed; a kubeconfig that can't be generated.
pub async fn fill(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
    existing: &SecretView,
    filled: &Filled<'_>,
    keep_until: Timestamp,
) -> Result<(), ApplyError> {
    let kubeconfig = filled.documents.kubeconfig(&filled.tokens)?;
    let entry = kubeconfig
        .as_deref()
        .map(|text| (names::KUBECONFIG_KEY, text.as_bytes()));
    let name = &existing.meta.name;
    let mut secret = filled.secret(context, gathered, publish, WellKnown::Kubeconfig, name, entry);
    let annotations = secret.metadata.annotations.get_or_insert_default();
    annotations.insert(names::KEEP_UNTIL.to_owned(), keep_until.to_string());
    well_known::put(context, gathered, WellKnown::Kubeconfig, Some(existing), secret).await
}
