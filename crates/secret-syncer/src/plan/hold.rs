//! Why the content of a config is not published now. What is published already is kept meanwhile: its tokens are renewed, and what is
//! damaged is restored from the [content](crate::model::published_content) in the provisioning Secret.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use osm_api::condition::Verdict;
use osm_api::{Reason, names};

use crate::model::existing::ExistingObjects;
use crate::model::gathered::{Gathered, PublishedRecord};
use crate::model::memory::Unfit;
use crate::model::ownership::OwnershipLabels;
use crate::model::published_from::published_from;
use crate::model::view::ConfigView;
use crate::plan::remember::remember;
use crate::plan::steps::{Content, Publish};
use crate::plan::waiting::{self, REPORT_AFTER};
use crate::plan::{messages, provisioning_secret};

/// New content is held back.
#[derive(Debug)]
pub struct Hold {
    pub verdict: Verdict,
    /// Short waits for another controller are normal and are not reported.
    report_after: SignedDuration,
}

impl Hold {
    fn now(reason: Reason, message: String) -> Self {
        Self {
            verdict: messages::not_published(reason, message),
            report_after: SignedDuration::ZERO,
        }
    }

    /// Whether it is more than the turn of another controller.
    pub fn is_failure(&self) -> bool {
        self.report_after.is_zero()
    }

    /// How long it is still too early to act on it.
    pub fn is_early(&self, now: Timestamp, since: Option<Timestamp>) -> Option<Duration> {
        waiting::is_early(now, since, self.report_after)
    }
}

/// Why the content of this config is held back; `None`: it may be published. `config` is of a pool that exists.
pub fn of(gathered: &Gathered, config: &ConfigView) -> Option<Hold> {
    if let Some(hold) = unreadable(config) {
        return Some(hold);
    }
    if let Some(problem) = &gathered.go_implementation {
        return Some(Hold::now(
            Reason::GoImplementationRunning,
            messages::go_implementation(problem),
        ));
    }
    let Some(rendered) = &config.status.rendered else {
        return Some(Hold {
            verdict: messages::waiting_for_rendering(),
            report_after: REPORT_AFTER,
        });
    };
    // Machines of an edge pool are not created by machine-controller, so nothing sets a revision for them.
    if rendered.revision.is_none() && !config.is_edge {
        return Some(Hold {
            verdict: messages::waiting_for_revision(),
            report_after: REPORT_AFTER,
        });
    }
    if let Some(problem) = &gathered.outdated_definitions {
        return Some(Hold::now(
            Reason::DefinitionsOutdated,
            messages::outdated_definitions(problem),
        ));
    }
    let inputs = match &gathered.inputs {
        Ok(inputs) => inputs,
        Err(problem) => return Some(Hold::now(problem.reason(), problem.to_string())),
    };
    let unfit = gathered.memory.unfit.as_ref()?;
    let published_from = published_from(&rendered.digest, &inputs.references);
    let is_it = unfit.config == config.resource_version && unfit.published_from == published_from;
    // What the API server has refused is tried again, but a renewal goes first.
    let is_over = unfit
        .until
        .is_some_and(|until| gathered.now >= until || !is_renewal_due(gathered))
        || (unfit.reason == Reason::TooManyDocuments && provisioning_secret::has_room(gathered));
    (is_it && !is_over).then(|| Hold::now(unfit.reason, unfit.message.clone()))
}

fn is_renewal_due(gathered: &Gathered) -> bool {
    let bootstrap = gathered.existing.bootstrap.as_ref();
    let renew_at = bootstrap.and_then(|secret| secret.meta.time(names::RENEW_AT));
    renew_at.is_some_and(|at| gathered.now >= at)
}

/// New content that the API server has refused waits for a renewal no longer than this.
const REFUSED_FOR: SignedDuration = SignedDuration::from_mins(10);

/// What to remember where new content can't be published, so that the next plan holds it back and renews what is published. `is_refusal`: the
/// API server has refused a request, and may take it later.
pub fn unfit(
    gathered: &Gathered,
    publish: &Publish,
    reason: Reason,
    message: String,
    is_refusal: bool,
) -> Option<Unfit> {
    match publish.content {
        Content::Config { .. } => Some(Unfit {
            config: gathered.config.as_ref()?.resource_version.clone(),
            published_from: publish.published_from.clone(),
            reason,
            message,
            until: is_refusal.then(|| gathered.now + REFUSED_FOR),
        }),
        Content::Published(_) => None,
    }
}

/// Set for a config that can't be decoded, or that has no pool of its own.
pub fn unreadable(config: &ConfigView) -> Option<Hold> {
    if let Some(owner) = config.pool_is_of.as_deref() {
        let message = messages::pool_of_another_config(owner);
        return Some(Hold::now(Reason::ObjectUnreadable, message));
    }
    let problem = config.unreadable.as_deref()?;
    Some(Hold::now(Reason::ObjectUnreadable, messages::unreadable(problem)))
}

/// What the cluster says is published for the pool of a config; `None` where nothing trustworthy does.
///
/// Annotations of a bootstrap Secret that was altered prove nothing. Without them, the status is a hint: the Secret that it names is used
/// if it is the pool's. The status may lag behind, so it counts only for the revision that machines are created with, since a revision
/// never goes back.
pub fn record(gathered: &Gathered, config: &ConfigView) -> Option<PublishedRecord> {
    let status = config.status.published.as_ref();
    let md = config.machine_deployment.as_ref()?;
    let ownership = OwnershipLabels::new(&gathered.name, &gathered.pool, &gathered.clusters.management, md);
    let ExistingObjects { bootstrap, .. } = &gathered.existing;
    let trusted = bootstrap
        .as_deref()
        .filter(|secret| secret.is_intact && ownership.are_on(&secret.meta));
    if let Some(secret) = trusted {
        let of = |name: &str| secret.meta.annotation(name).map(str::to_owned);
        return Some(PublishedRecord {
            provisioning_secret: of(names::PROVISIONING_SECRET)?,
            provisioning_uid: of(names::PROVISIONING_SECRET_UID),
            revision: of(names::MACHINE_DEPLOYMENT_REVISION)?,
            digest: status
                .map(|published| published.digest.clone())
                .unwrap_or_default(),
            published_from: of(names::PUBLISHED_FROM).unwrap_or_default(),
        });
    }
    let revision = config
        .status
        .rendered
        .as_ref()?
        .revision
        .as_deref()
        .unwrap_or_default();
    let published = status.filter(|published| published.revision == revision)?;
    Some(PublishedRecord {
        provisioning_secret: published.provisioning_secret.clone(),
        provisioning_uid: None,
        revision: published.revision.clone(),
        digest: published.digest.clone(),
        published_from: String::new(),
    })
}

/// What has to be read of what is published, because new content is held back.
pub fn needed_record(gathered: &Gathered) -> Option<PublishedRecord> {
    let config = gathered.config.as_deref()?;
    let is_of_another = gathered.clusters.other_worker(config).is_some();
    if config.machine_deployment.is_none() || config.is_retired() || is_of_another {
        return None;
    }
    let since = remember(gathered).waiting_since;
    of(gathered, config).filter(|hold| hold.is_early(gathered.now, since).is_none())?;
    record(gathered, config)
}
