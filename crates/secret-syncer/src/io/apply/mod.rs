//! Carries out a plan, in the order that [`docs/rotation.md`](../../../../../docs/rotation.md) promises.
//! It asks pure functions of `plan` about what it has just read; it has no rules of its own.

pub mod identity;
mod live_config;
pub mod objects;
pub mod orphans;
pub mod provisioning_secret;
pub mod publish;
pub mod teardown;
pub mod well_known;

use std::time::Duration;

use osm_api::condition::Verdict;
use osm_api::config::Published;

use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::model::gathered::Gathered;
use crate::model::memory::Fact;
use crate::plan::findings::Cause;
use crate::plan::steps::{Plan, Step};
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

impl Applied {
    fn published(&mut self, degraded: Option<Verdict>, published: Published) {
        let verdict = || messages::published(&published.credential_expiration_time);
        self.verdict = Some(degraded.unwrap_or_else(verdict));
        self.published = Some(published);
    }
}

/// # Errors
/// Requests that failed; a conflict where what was gathered has changed since.
pub async fn apply(context: &Context, gathered: &Gathered, plan: Plan) -> Result<Applied, ApplyError> {
    let Plan {
        step,
        orphans,
        foreign_cluster,
        degraded,
        requeue_after,
    } = plan;
    let about = gathered.config.as_ref().map(|config| config.content_id());
    let mut applied = Applied {
        about,
        verdict: None,
        published: None,
        published_for: Vec::new(),
        foreign_cluster,
        requeue_after,
    };
    match step {
        Step::None => {}
        Step::SetStatus(verdict) => applied.verdict = Some(verdict),
        Step::Keep(keep) => {
            provisioning_secret::keep(context, gathered, &keep).await?;
            if let Some(published) = keep.published {
                applied.published(degraded, published);
            }
        }
        Step::Publish(publish) => {
            let outcome = Box::pin(publish::publish(context, gathered, &publish)).await;
            let fact = match &outcome {
                Ok(None) => content::recorded(gathered)
                    .and_then(|recorded| publish.wanted.made_from(recorded))
                    .map(Fact::Same),
                Ok(Some(_)) => publish
                    .wanted
                    .made_from(&publish.wanted.published_from)
                    .map(Fact::Same),
                Err(error) => error.fact(gathered, &publish),
            };
            let is_unfit = matches!(fact, Some(Fact::Unfit(_)));
            if let Some(fact) = fact {
                context.memory.learn(&gathered.name, fact);
            }
            let published = match outcome {
                // The next plan holds the content back, and says why.
                Err(error) if is_unfit => {
                    tracing::warn!(config = gathered.name, %error, "new content can't be published for now");
                    None
                }
                outcome => outcome?,
            };
            if let Some(published) = published {
                // osc-controller logs the same pool, revision and digest when it has rendered that.
                tracing::info!(
                    config = gathered.name,
                    pool = gathered.machine_deployment().map(tracing::field::display),
                    revision = published.revision,
                    digest = published.digest,
                    because = publish.because(),
                    "user data is published"
                );
                applied.published(degraded, published);
                applied.published_for = publish.causes();
            }
            // The plan for what exists now sets the timers.
            context.queue.add(gathered.name.clone());
        }
        Step::Teardown(all) => {
            teardown::confirm(context, gathered).await?;
            teardown::pool(context, &gathered.pool, &all.objects, all.is_listed).await?;
            applied.verdict = Some(messages::torn_down());
        }
    }
    // Orphans are handled last: a failing orphan must not block publishing.
    for orphan in &orphans {
        orphans::apply(context, &gathered.name, orphan).await;
    }
    Ok(applied)
}
