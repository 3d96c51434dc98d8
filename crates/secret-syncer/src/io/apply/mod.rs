//! Carries out a plan. Each object has a file, with what is checked of it, how it is written, and how it is
//! deleted. These ask pure functions of `plan` about what they have just read; they have no rules of their
//! own.

pub mod account;
pub mod bootstrap_secret;
mod config;
pub mod kubeconfig_secret;
pub mod objects;
pub mod orphans;
pub mod provisioning_secret;
pub mod teardown;
pub mod token;

use std::time::Duration;

use osm_api::condition::Verdict;
use osm_api::config::Published;

use crate::io::apply::config::CONFIG;
use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::model::gathered::Gathered;
use crate::model::memory::Fact;
use crate::plan::findings::Cause;
use crate::plan::provisioning_secret::{document_name, opened};
use crate::plan::steps::{Plan, Publish, Step};
use crate::plan::{content, messages};

/// What was done, for the report.
#[derive(Debug)]
pub struct Applied {
    /// The content that this is about; see [`crate::model::view::ConfigView::content_id`].
    pub about: Option<String>,
    /// The condition `Published`; `None`: the status stays as it is.
    pub verdict: Option<Verdict>,
    /// What was just seen to be in force; `None`: what was published stays, unless the pool is gone.
    pub published: Option<Published>,
    /// Why the pool was published, if it was.
    pub published_for: Vec<Cause>,
    /// What belongs to another cluster and was left alone.
    pub foreign_cluster: Option<String>,
    pub requeue_after: Option<Duration>,
}

/// # Errors
/// Requests that failed; a conflict where what was gathered has changed since.
pub async fn apply(context: &Context, gathered: &Gathered, plan: Plan) -> Result<Applied, ApplyError> {
    let mut applied = Applied {
        about: gathered.config.as_ref().map(|config| config.content_id()),
        verdict: None,
        published: None,
        published_for: Vec::new(),
        foreign_cluster: plan.foreign_cluster,
        requeue_after: plan.requeue_after,
    };
    match plan.step {
        Step::None => {}
        Step::SetStatus(verdict) => applied.verdict = Some(verdict),
        Step::Keep(keep) => {
            provisioning_secret::keep(context, gathered, &keep).await?;
            applied.published = keep.published;
        }
        Step::Publish(publish) => {
            let outcome = Box::pin(publish_pool(context, gathered, &publish)).await;
            applied.published = learn(context, gathered, &publish, outcome)?;
            if applied.published.is_some() {
                applied.published_for = publish.causes();
            }
            // The plan for what exists now sets the timers.
            context.queue.add(gathered.name.clone());
        }
        Step::Teardown { objects, is_listed } => {
            teardown::retired(context, gathered, &objects, is_listed).await?;
            applied.verdict = Some(messages::torn_down());
        }
    }
    if let Some(published) = &applied.published {
        let verdict = || messages::published(&published.credential_expiration_time);
        applied.verdict = Some(plan.degraded.unwrap_or_else(verdict));
    }
    // Orphans are handled last: a failing orphan must not block publishing.
    for orphan in &plan.orphans {
        orphans::apply(context, &gathered.name, orphan).await;
    }
    Ok(applied)
}

/// Publishes a pool in the order of `docs/rotation.md`: nothing that a machine reads ever refers to what does
/// not exist yet. `None`: exactly this is published already.
///
/// # Errors
/// Requests that failed; documents that can't be generated; tokens that lack a right.
async fn publish_pool(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
) -> Result<Option<Published>, ApplyError> {
    let Some(documents) = config::documents(context, gathered, publish).await? else {
        return Ok(None);
    };
    provisioning_secret::label_again(context, &publish.ownership, &publish.out_of_sight).await?;
    account::ensure(context, gathered, &publish.ownership).await?;
    let token = token::issue(context, gathered, publish, documents.has_token_later()).await?;

    // All texts are made before the first of them is written.
    let documents = documents.with_token(&token)?;
    let name = &document_name(gathered, publish, &documents).map_err(ApplyError::TooManyDocuments)?;
    let texts = documents.texts(&token, name)?;
    let secrets = opened(&publish.kept, name);

    // The document is kept longer than the token lives.
    let document = provisioning_secret::store(context, gathered, publish, name, &documents, &token).await?;
    // Only now: another replica that works on the pool for a moment takes names out of the Role whose Secrets
    // don't exist.
    let is_open = account::open(context, gathered, &publish.ownership, &secrets).await?;
    // Only now: a right to join that is missing must not keep a document or a Role from being restored.
    token::check(context, publish, &token, name, is_open).await?;
    // Nothing more is published for a pool whose end was seen since the config was fetched.
    let config = context.shared.configs.get(&context.config_key(&gathered.name));
    if config.is_some_and(|config| !publish.is_allowed(gathered, &config)) {
        return Err(osm_runtime::Error::Conflict { what: CONFIG }.into());
    }
    let annotations = publish.annotations(&document.meta, &token);
    kubeconfig_secret::write(context, gathered, publish, &annotations, texts.kubeconfig, &token).await?;
    let (data, script) = (texts.bootstrap, texts.edge_script);
    let published = bootstrap_secret::write(context, gathered, publish, &annotations, data, script).await?;
    // The status follows, in `report`.
    Ok(Some(published))
}

/// Remembers what the outcome of a publish shows, and logs it.
///
/// # Errors
/// The failure, unless the next plan holds the content back, and says why.
fn learn(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
    outcome: Result<Option<Published>, ApplyError>,
) -> Result<Option<Published>, ApplyError> {
    let same = |from: &str| publish.wanted.made_from(from).map(Fact::Same);
    let fact = match &outcome {
        Ok(None) => content::recorded(gathered).and_then(same),
        Ok(Some(_)) => same(&publish.wanted.published_from),
        Err(error) => error.fact(gathered, publish),
    };
    let is_unfit = matches!(fact, Some(Fact::Unfit(_)));
    if let Some(fact) = fact {
        context.memory.learn(&gathered.name, fact);
    }
    match &outcome {
        Err(error) if is_unfit => {
            tracing::warn!(config = gathered.name, %error, "new content can't be published for now");
            return Ok(None);
        }
        // osc-controller logs the same pool, revision and digest when it has rendered that.
        Ok(Some(published)) => tracing::info!(
            config = gathered.name,
            pool = gathered.machine_deployment().map(tracing::field::display),
            revision = published.revision,
            digest = published.digest,
            because = publish.because(),
            "user data is published"
        ),
        _ => {}
    }
    outcome
}
