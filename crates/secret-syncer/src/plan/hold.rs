//! The reasons why the content of a config is not published now. The published content is kept meanwhile: its
//! tokens are renewed, and what is damaged is restored from the [content](crate::model::published_content) in
//! the provisioning Secret.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use osm_api::condition::Verdict;
use osm_api::{Reason, names};

use crate::model::existing::ExistingObjects;
use crate::model::existing::Ownership;
use crate::model::gathered::Gathered;
use crate::model::memory::Unfit;
use crate::model::record::{Record, published_from};
use crate::model::view::ConfigView;
use crate::plan::content::Origin;
use crate::plan::messages;
use crate::plan::requeue::until;
use crate::plan::steps::Publish;

/// New content is held back.
#[derive(Debug)]
pub struct Hold {
    pub verdict: Verdict,
    /// It is only the turn of another controller. Short waits are normal and are not reported.
    pub is_wait: bool,
    /// It could not be published when it was last tried.
    pub is_unfit: bool,
}

/// A wait for a rendering or a revision is reported after this time. Most end sooner, and their condition
/// would only change twice.
const REPORT_AFTER: SignedDuration = SignedDuration::from_secs(3);

impl Hold {
    fn failure(reason: Reason, message: String) -> Self {
        Self {
            verdict: messages::not_published(reason, message),
            is_wait: false,
            is_unfit: false,
        }
    }

    fn wait(verdict: Verdict) -> Self {
        Self {
            verdict,
            is_wait: true,
            is_unfit: false,
        }
    }

    /// How long it is still too early to act on it.
    pub fn is_early(&self, gathered: &Gathered) -> Option<Duration> {
        let report_at = waiting_since(gathered)? + REPORT_AFTER;
        (self.is_wait && gathered.now < report_at).then(|| until(gathered.now, report_at))
    }
}

/// Since when there has been nothing to publish; `None` while there is.
pub fn waiting_since(gathered: &Gathered) -> Option<Timestamp> {
    let rendered = gathered.config.as_ref().and_then(|config| config.to_publish());
    let is_ready = rendered.is_some_and(|rendered| rendered.revision.is_some());
    (!is_ready).then(|| gathered.memory.waiting_since.unwrap_or(gathered.now))
}

/// Why the content of this config is held back; `None`: it may be published. `config` is of a pool that
/// exists.
pub fn of(gathered: &Gathered, config: &ConfigView) -> Option<Hold> {
    if let Some(hold) = unreadable(config) {
        return Some(hold);
    }
    if let Some(verdict) = beside_the_upstream_osm(gathered)
        && !is_lost(gathered, config)
    {
        return Some(Hold {
            verdict,
            is_wait: false,
            is_unfit: false,
        });
    }
    let Some(rendered) = &config.status.rendered else {
        return Some(Hold::wait(messages::waiting_for_rendering()));
    };
    // Machines of an edge pool are not created by machine-controller, so nothing sets a revision for them.
    if rendered.revision.is_none() && !config.is_edge {
        return Some(Hold::wait(messages::waiting_for_revision()));
    }
    if let Some(problem) = &gathered.outdated_definitions {
        return Some(Hold::failure(
            Reason::DefinitionsOutdated,
            messages::outdated_definitions(problem),
        ));
    }
    let inputs = match &gathered.inputs {
        Ok(inputs) => inputs,
        Err(problem) => return Some(Hold::failure(problem.reason(), problem.to_string())),
    };
    let published_from = published_from(&rendered.digest, &inputs.references);
    let unfit = known_unfit(gathered, config, &published_from)?;
    Some(Hold {
        is_unfit: true,
        ..Hold::failure(unfit.reason, unfit.message.clone())
    })
}

/// What is said of a pool while the upstream OSM runs.
pub fn beside_the_upstream_osm(gathered: &Gathered) -> Option<Verdict> {
    let message = messages::upstream_osm(gathered.upstream_osm.as_deref()?);
    Some(messages::not_published(Reason::UpstreamOSMRunning, message))
}

/// Whether the pool was published, as its documents show, and nothing says what: the upstream OSM deletes the
/// config and the bootstrap Secret of every pool, also where it can render none, and osc-controller has
/// restored the config. So what that holds is published, or no machine boots while the upstream OSM runs.
fn is_lost(gathered: &Gathered, config: &ConfigView) -> bool {
    let is_recorded = config.status.published.is_some() || record(gathered, config).is_some();
    !is_recorded && !gathered.existing.provisioning.is_empty()
}

/// What is remembered of this content of the config: that it can't be published for now.
fn known_unfit<'a>(gathered: &'a Gathered, config: &ConfigView, published_from: &str) -> Option<&'a Unfit> {
    let unfit = gathered.memory.unfit.as_ref()?;
    let is_it = unfit.generation == config.generation && unfit.published_from == published_from;
    (is_it && gathered.now < unfit.until).then_some(unfit)
}

/// What can't be published is tried again with the first reconcile after this time. The cause may be gone: a
/// policy or a quota of the API server, or a document of the pool. It is a minute less than the longest time
/// between two reconciles, which another clock measures: otherwise that one can come a moment too early.
const UNFIT_FOR: SignedDuration = SignedDuration::from_mins(9);

/// What to remember where content can't be published, so that the next plans hold it back, and renew and
/// restore what is published. `None`: nothing is, or it was tried though it is known to be unfit, so there is
/// nothing to put first.
pub fn unfit(gathered: &Gathered, publish: &Publish, reason: Reason, message: String) -> Option<Unfit> {
    let config = gathered.config.as_ref()?;
    record(gathered, config)?;
    let is_of_config = matches!(publish.wanted.origin, Origin::Config { .. });
    let published_from = &publish.wanted.published_from;
    let is_news = known_unfit(gathered, config, published_from).is_none();
    (is_of_config && is_news).then(|| Unfit {
        generation: config.generation,
        published_from: published_from.clone(),
        reason,
        message,
        until: gathered.now + UNFIT_FOR,
    })
}

/// Set for a config that can't be decoded, or that has no pool of its own.
pub fn unreadable(config: &ConfigView) -> Option<Hold> {
    if let Some(owner) = config.pool_is_of.as_deref() {
        let message = messages::pool_of_another_config(owner);
        return Some(Hold::failure(Reason::ObjectUnreadable, message));
    }
    let problem = config.unreadable.as_deref()?;
    Some(Hold::failure(
        Reason::ObjectUnreadable,
        messages::unreadable(problem),
    ))
}

/// What the cluster says is published for the pool of a config; `None` where nothing trustworthy does.
///
/// Annotations of a bootstrap Secret that was altered prove nothing. Without them, the status is a hint: the
/// Secret that it names is used if it is the pool's. The status may lag behind, so it counts only for the
/// revision that machines are created with, since a revision never goes back.
pub fn record(gathered: &Gathered, config: &ConfigView) -> Option<Record> {
    let status = config.status.published.as_ref();
    let md = config.machine_deployment.as_ref()?;
    let ownership = Ownership::new(&gathered.name, &gathered.clusters.management, md);
    let ExistingObjects { bootstrap, .. } = &gathered.existing;
    let trusted = bootstrap
        .as_deref()
        .filter(|secret| secret.is_intact && ownership.is_on(&secret.meta));
    if let Some(secret) = trusted {
        let of = |name: &str| secret.meta.annotation(name).map(str::to_owned);
        return Some(Record {
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
    Some(Record {
        provisioning_secret: published.provisioning_secret.clone(),
        provisioning_uid: None,
        revision: published.revision.clone(),
        digest: published.digest.clone(),
        published_from: String::new(),
    })
}

/// What has to be read of what is published, because new content is held back.
pub fn needed_record(gathered: &Gathered) -> Option<Record> {
    let config = gathered.config.as_deref()?;
    let is_of_another = gathered.clusters.other_worker(config).is_some();
    if config.machine_deployment.is_none() || config.is_retired() || is_of_another {
        return None;
    }
    of(gathered, config).filter(|hold| hold.is_early(gathered).is_none())?;
    record(gathered, config)
}
