//! Tells people: status, Events on failure and on recovery, metrics, log lines.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use osm_api::condition::{self, PUBLISHED, Verdict};
use osm_api::config::{OperatingSystemConfigStatus, Published};
use osm_runtime::request::failed;
use osm_runtime::runner::Failure;
use osm_runtime::{Context, RequestError, status};
use prometheus::{IntCounterVec, IntGauge, Opts};

use crate::apply::{Applied, PublishedPlan};
use crate::eternal_tokens;
use crate::state::{Inner, State, lock};
use crate::view::ConfigView;
use crate::{Error, FIELD_MANAGER};

/// A request that fails once is tried again before anybody hears of it; one that goes on failing is told.
const TOLD_AFTER: SignedDuration = SignedDuration::from_secs(10);

/// Metrics of this controller.
pub struct Metrics {
    publishes: IntCounterVec,
    earliest_expiry: IntGauge,
    /// Secrets with a token without end that others have left.
    pub foreign_credentials: IntGauge,
}

impl Metrics {
    /// Registers them.
    ///
    /// # Errors
    /// Names that are taken.
    pub fn new(context: &Context) -> Result<Self, prometheus::Error> {
        let publishes =
            Opts::new("publishes_total", "Bootstrap Secrets written, by cause; one may have several.");
        let metrics = Self {
            publishes: IntCounterVec::new(publishes, &["cause"])?,
            earliest_expiry: IntGauge::new(
                "credentials_earliest_expiry_timestamp_seconds",
                "When the first credential of any pool expires, in seconds since 1970; 0 without pools.",
            )?,
            foreign_credentials: eternal_tokens::metric(&context.metrics)?,
        };
        context.metrics.register(metrics.publishes.clone())?;
        context.metrics.register(metrics.earliest_expiry.clone())?;
        Ok(metrics)
    }
}

/// Reports how a reconcile went; returns when to look again.
///
/// # Errors
/// The failure of the reconcile itself, or of writing the status.
pub async fn report(
    state: &State,
    name: &str,
    outcome: Result<Applied, Error>,
) -> Result<Option<Duration>, Error> {
    let stranger = match &outcome {
        Ok(applied) => applied.stranger.clone(),
        Err(Error::ClusterChanged(problem)) => Some(problem.clone()),
        // Nothing new is known.
        Err(_) => None,
    };
    if outcome.is_ok() || stranger.is_some() {
        state.strangers.note(name, stranger.as_deref());
    }
    let config = state.configs.get(&format!("{}/{name}", state.context.args.namespace));
    let Some(config) = config else {
        state.forget(name);
        return outcome.map(|applied| applied.again);
    };
    match outcome {
        Ok(applied) => {
            lock(&state.failing).remove(name);
            for cause in &applied.published_for {
                state.metrics.publishes.with_label_values(&[&format!("{cause:?}")]).inc();
            }
            if let Some((verdict, published)) = applied.status {
                if applied.about != Some((config.uid.clone(), config.generation)) {
                    // It has become another one, or has other content, of which this does not tell.
                    return Err(RequestError::Conflict { what: "the OperatingSystemConfig" }.into());
                }
                let published = match published {
                    PublishedPlan::Last => config.status.published.clone(),
                    PublishedPlan::Now(published) => Some(published),
                    PublishedPlan::Nothing => None,
                };
                note_expiry(state, name, published.as_ref());
                say(state, &config, verdict, published).await?;
            }
            Ok(applied.again)
        }
        Err(error) => {
            let now = state.context.worker.server_time.now();
            let since = *lock(&state.failing).entry(name.to_owned()).or_insert(now);
            // A conflict is no failure, unless it goes on.
            let passing = matches!(&error, Error::Request(error) if error.may_pass());
            if !passing || now.duration_since(since) >= TOLD_AFTER {
                let verdict = Verdict {
                    type_: PUBLISHED,
                    status: false,
                    reason: error.reason(),
                    message: error.to_string(),
                };
                if let Err(other) = say(state, &config, verdict, config.status.published.clone()).await {
                    tracing::debug!(config = name, %other, "the status can't be written either");
                }
            }
            Err(error)
        }
    }
}

async fn say(
    state: &State,
    config: &ConfigView,
    verdict: Verdict,
    published: Option<Published>,
) -> Result<(), Error> {
    state.census.count(&config.name, PUBLISHED, verdict.status, verdict.reason);
    let before = condition::find(&config.status.conditions, PUBLISHED);
    let condition = verdict.condition(
        &config.status.conditions,
        Some(config.generation),
        state.context.surroundings.now(),
    );
    if before == Some(&condition) && config.status.published == published {
        return Ok(());
    }
    let status = OperatingSystemConfigStatus { conditions: vec![condition], published, ..Default::default() };
    let (name, version) = (&config.name, &config.resource_version);
    let written = status::apply(&state.config_api(), FIELD_MANAGER, name, version, &status).await;
    state.wrote_config(&written.map_err(failed("the OperatingSystemConfig's status"))?);
    let turned = before
        .is_none_or(|before| before.reason != verdict.reason || (before.status == "True") != verdict.status);
    if turned {
        tracing::info!(
            config = config.name,
            published = verdict.status,
            reason = verdict.reason,
            "{}",
            verdict.message
        );
    }
    // Waiting for another controller, and the end of a pool, are no failures.
    let waits = ["AwaitingRendering", "AwaitingRevision", condition::REASON_UNDONE];
    let failed_before = before.is_some_and(|b| b.status != "True" && !waits.contains(&b.reason.as_str()));
    if turned && !verdict.status && !waits.contains(&verdict.reason) {
        state.context.management.events.warning(&config.reference, verdict.reason, &verdict.message).await;
    } else if verdict.status && failed_before {
        state.context.management.events.recovery(&config.reference, verdict.reason, &verdict.message).await;
    }
    Ok(())
}

/// When each pool's first credential expires, in seconds since 1970.
#[derive(Debug, Default)]
pub struct Expiries {
    of: HashMap<String, i64>,
    ordered: BTreeSet<(i64, String)>,
}

impl Expiries {
    /// Notes a pool's expiry, or that it has none.
    pub fn note(&mut self, pool: &str, expiry: Option<i64>) {
        if let Some(old) = self.of.remove(pool) {
            self.ordered.remove(&(old, pool.to_owned()));
        }
        if let Some(expiry) = expiry {
            self.of.insert(pool.to_owned(), expiry);
            self.ordered.insert((expiry, pool.to_owned()));
        }
    }

    /// The first of all; 0 where there is none.
    pub fn first(&self) -> i64 {
        self.ordered.first().map_or(0, |(at, _)| *at)
    }
}

/// Notes when the credentials of a pool expire; `None`: it has none, or they are counted elsewhere.
pub fn note_expiry(state: &Inner, pool: &str, published: Option<&Published>) {
    let expiry = published.and_then(|published| published.credential_expires.parse::<Timestamp>().ok());
    let mut expiries = lock(&state.expiries);
    expiries.note(pool, expiry.map(Timestamp::as_second));
    state.metrics.earliest_expiry.set(expiries.first());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_expiry_is_that_of_the_pools_that_are_there() {
        let mut expiries = Expiries::default();
        assert_eq!(expiries.first(), 0);
        expiries.note("a", Some(20));
        expiries.note("b", Some(10));
        assert_eq!(expiries.first(), 10);
        expiries.note("b", Some(30));
        assert_eq!(expiries.first(), 20);
        expiries.note("a", None);
        assert_eq!(expiries.first(), 30);
    }
}
