//! What a user cluster of a fleet may cost the process, and what it is found to do beyond that. An API server
//! can answer whatever it likes, and other clusters are served by the same process.
//!
//! The cluster of the release, and the only cluster of a process, have no bounds: who can exceed them there
//! harms no other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use osm_api::Reason;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;

use crate::settings;

/// Bytes of an answer. A page of [`PAGE_OF_LARGE`] objects fits, each of which has 1.5 MiB, the most that etcd
/// takes.
pub(crate) const ANSWER: usize = 8 << 20;

/// Objects in a page of a list of kinds that can have hundreds of kilobytes.
pub(crate) const PAGE_OF_LARGE: u32 = 5;

/// Bytes of an event of a watch: as many as an object may have that is decoded.
pub(crate) const LINE: usize = crate::object::MAX_OBJECT_BYTES;

/// Bytes that each answer and event may have. Of the larger ones, a few at a time are read for all clusters, so
/// that many clusters that send them take no more memory than these. Answers of almost all clusters are smaller.
pub(crate) const SMALL: usize = 256 << 10;

/// How many are read at the same time.
const LARGE: usize = 4;

/// Time in which a large one waits for its turn and comes to its end.
pub(crate) const TIME_TO_BE_LARGE: Duration = Duration::from_secs(10);

/// Time of a list, with all its pages.
pub(crate) const TIME_OF_LIST: Duration = Duration::from_secs(60);

/// Longest pause before a list that has not ended in this time begins again. One of 100,000 objects takes two seconds
/// of a core.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// Objects that a watch keeps of each pool that the cluster may have, such as its Secrets and ServiceAccounts.
const OBJECTS_OF_POOL: usize = 10;

/// Objects that a watch keeps in a service that reads no settings: Machines and Nodes are many more than pools.
const OBJECTS: usize = 20_000;

/// Bytes of JSON of each pool that the cluster may have, where free text of it is kept. All pools share them.
const TEXT_OF_POOL: usize = 32 << 10;

/// Pools of a cluster while no valid settings are known.
const POOLS: usize = 200;

/// Events of all watches in a second, and how many may come at once after a pause.
const EVENTS: u32 = 200;
const BURST: u32 = 2000;

/// Time after which a cluster that exceeds the rate of events is said to do so, and for which a problem is
/// reported after it was last found: it may come again with each retry.
const LASTING: Duration = Duration::from_secs(60);

/// A connection of which a request was answered so recently lives: one that doesn't is closed within this time.
const LIVES: Duration = Duration::from_secs(20);

/// The turns of large answers.
pub(crate) fn turns() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(LARGE))
}

/// Those of one cluster. Cheap to clone.
#[derive(Clone)]
pub struct Bounds(Arc<Inner>);

struct Inner {
    settings: settings::Receiver,
    /// By reason and by what has it.
    problems: watch::Sender<BTreeMap<(Reason, String), Problem>>,
    events: Mutex<Events>,
    /// When the last request was answered.
    answered: Mutex<Option<Instant>>,
    /// One list at a time: what it takes, it takes once and not for each kind.
    lists: Semaphore,
    large: Arc<Semaphore>,
}

struct Problem {
    message: String,
    /// `None`: until it is taken back.
    until: Option<Instant>,
}

struct Events {
    /// When those that were seen are as many as may come by then.
    paid_at: Instant,
    throttled_since: Option<Instant>,
}

impl Bounds {
    /// `large` is that of all clusters.
    pub(crate) fn new(settings: settings::Receiver, large: &Arc<Semaphore>) -> Self {
        Self(Arc::new(Inner {
            settings,
            problems: watch::Sender::default(),
            events: Mutex::new(Events {
                paid_at: Instant::now(),
                throttled_since: None,
            }),
            answered: Mutex::default(),
            lists: Semaphore::new(1),
            large: large.clone(),
        }))
    }

    /// The largest number of objects that a watch keeps.
    pub(crate) fn objects(&self) -> usize {
        self.pools().map_or(OBJECTS, |pools| OBJECTS_OF_POOL * pools)
    }

    /// The largest number of bytes of JSON of the objects of which free text is kept.
    pub(crate) fn text(&self) -> usize {
        TEXT_OF_POOL * self.pools().unwrap_or(POOLS)
    }

    fn pools(&self) -> Option<usize> {
        let settings = self.0.settings.borrow();
        let pools = settings.as_ref()?.settings.limits.machine_deployments;
        usize::try_from(pools).ok()
    }

    /// Returns once a page of a list may be asked for; it ends when the permit is dropped.
    pub(crate) async fn list(&self) -> Option<SemaphorePermit<'_>> {
        self.0.lists.acquire().await.ok()
    }

    /// The turns of large answers of all clusters.
    pub(crate) fn large(&self) -> Arc<Semaphore> {
        self.0.large.clone()
    }

    /// Returns once a further event of the watch of `what` may be taken. Until then the watch isn't read, and
    /// the API server has to wait.
    pub(crate) async fn event(&self, what: &str) {
        let now = Instant::now();
        let (pause, since) = {
            let mut events = self.0.events.lock();
            events.paid_at = events.paid_at.max(now) + Duration::from_secs(1) / EVENTS;
            let ahead = events.paid_at - now;
            let burst = Duration::from_secs(1) * BURST / EVENTS;
            let pause = ahead.saturating_sub(burst);
            if !pause.is_zero() {
                events.throttled_since.get_or_insert(now);
            } else if ahead < burst / 2 {
                // Not at once: a pause may be longer than it has to.
                events.throttled_since = None;
            }
            (pause, events.throttled_since)
        };
        if since.is_some_and(|since| now - since >= LASTING) {
            let message = format!(
                "for more than a minute there are more than {EVENTS} events a second, of {what} at least, so the newest state is known \
                 late; find out which client changes these objects"
            );
            self.note(Reason::TooManyEvents, "events", message);
        }
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }

    /// A request was answered, or a part of an answer has come.
    pub(crate) fn answered(&self) {
        *self.0.answered.lock() = Some(Instant::now());
    }

    /// A request was not answered in time. If others are, the API server is slow; else the connection may be
    /// dead.
    pub(crate) fn late(&self, problem: &dyn std::fmt::Display) {
        let answered = *self.0.answered.lock();
        if answered.is_some_and(|at| at.elapsed() < LIVES) {
            let message = format!("{problem}; check the load of that API server, and the network to it");
            self.note(Reason::Slow, "", message);
        }
    }

    /// Reports a problem of `what` for some time.
    pub(crate) fn note(&self, reason: Reason, what: &str, message: String) {
        let until = Some(Instant::now() + LASTING);
        self.set(reason, what, Some(Problem { message, until }));
    }

    /// Reports a problem of `what` until there is none (`None`).
    pub(crate) fn stands(&self, reason: Reason, what: &str, message: Option<String>) {
        let until = None;
        self.set(reason, what, message.map(|message| Problem { message, until }));
    }

    fn set(&self, reason: Reason, what: &str, problem: Option<Problem>) {
        self.0.problems.send_if_modified(|problems| {
            let key = (reason, what.to_owned());
            let message = problem.as_ref().map(|problem| problem.message.clone());
            let before = match problem {
                Some(problem) => problems.insert(key, problem),
                None => problems.remove(&key),
            };
            before.map(|before| before.message) != message
        });
    }

    /// What is wrong; `None`: nothing.
    pub(crate) fn problem(&self) -> Option<(Reason, String)> {
        self.0.problems.send_if_modified(|problems| {
            let now = Instant::now();
            problems.retain(|_, problem| problem.until.is_none_or(|until| until > now));
            false
        });
        let problems = self.0.problems.borrow();
        // `Slow` comes last: it may follow from the others.
        let ((reason, _), problem) = problems.last_key_value()?;
        Some((*reason, problem.message.clone()))
    }

    /// Returns once [`Bounds::problem`] may have changed since this was called.
    pub(crate) fn changed(&self) -> impl Future<Output = ()> + use<> {
        let mut problems = self.0.problems.subscribe();
        let ends = problems.borrow().values().filter_map(|it| it.until).min();
        async move {
            let changed = problems.changed();
            match ends {
                Some(at) => _ = tokio::time::timeout_at(at, changed).await,
                None => _ = changed.await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(bounds: &Bounds) -> Option<Reason> {
        bounds.problem().map(|(reason, _)| reason)
    }

    #[tokio::test(start_paused = true)]
    async fn events_beyond_the_rate_wait_and_are_reported_while_they_last() {
        let bounds = Bounds::new(settings::none(), &turns());
        let began = Instant::now();
        let events = async |number: u32| {
            for event in 0..number {
                bounds.event("pools").await;
                if began.elapsed().as_secs() > 0 && event % 50 == 0 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        };
        events(BURST).await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        events(EVENTS * 59).await;
        assert_eq!(reason(&bounds), None);
        events(EVENTS * 3).await;
        assert!(
            (61..=63).contains(&began.elapsed().as_secs()),
            "{:?}",
            began.elapsed()
        );
        assert_eq!(reason(&bounds), Some(Reason::TooManyEvents));
        let changed = bounds.changed();
        tokio::time::timeout(2 * LASTING, changed).await.unwrap();
        assert_eq!(reason(&bounds), None);
        events(BURST).await;
        assert_eq!(reason(&bounds), None, "a burst after a pause");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_is_slow_only_while_it_answers_others() {
        let bounds = Bounds::new(settings::none(), &turns());
        bounds.late(&"a");
        assert_eq!(reason(&bounds), None, "nothing was ever answered");
        bounds.answered();
        bounds.late(&"a");
        assert_eq!(reason(&bounds), Some(Reason::Slow));
        bounds.stands(Reason::TooLarge, "pools", Some("b".to_owned()));
        assert_eq!(reason(&bounds), Some(Reason::TooLarge));
        tokio::time::sleep(2 * LASTING).await;
        bounds.late(&"a");
        bounds.stands(Reason::TooLarge, "pools", None);
        assert_eq!(reason(&bounds), None, "the connection may be dead");
    }
}
