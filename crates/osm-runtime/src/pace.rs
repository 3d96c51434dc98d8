//! Back-pressure of an API server: after an answer that asks for it, every request of the process to that cluster waits.
//!
//! API Priority and Fairness refuses requests of a flow, here those of the service's ServiceAccount, and not those of an object. If only the
//! refused object waited, each of the others would be refused as well. As in client-go, `Retry-After` decides how long to wait.
//! There is no limit of requests per second, as in controllers of today: the server knows its load better than a client does. What a service
//! sends at the same time is bounded by `--concurrency`.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::Environment;
use crate::backoff::Backoff;

/// The longest pause that a server can ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(30);
/// Pauses where a server is unavailable and does not ask for any. They double with each failure in a row.
const FIRST_PAUSE: Duration = Duration::from_millis(125);
const LONGEST_PAUSE: Duration = Duration::from_millis(2500);

/// The pace that one API server allows. Clones share it.
#[derive(Clone)]
pub(crate) struct Pace {
    environment: Environment,
    state: Arc<Mutex<State>>,
}

struct State {
    /// The end of the last pause.
    until: Instant,
    /// When that pause began; `None`: there has been none. Requests that were sent before say nothing that is new.
    since: Option<Instant>,
    unavailable: Backoff,
}

impl Pace {
    pub(crate) fn new(environment: &Environment) -> Self {
        let now = Instant::now();
        let state = State {
            until: now,
            since: None,
            unavailable: Backoff::new(environment, FIRST_PAUSE, LONGEST_PAUSE),
        };
        Self {
            environment: environment.clone(),
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Returns after the pause that there is now, if there is one. Requests that waited go one after the other, within a quarter of the time
    /// that they waited. A pause that begins meanwhile is not for them: while a server is unavailable, each failure begins one, and a
    /// request that waited for all of them would never be sent.
    pub(crate) async fn wait(&self) {
        let left = self.left();
        if !left.is_zero() {
            tokio::time::sleep(left.mul_f64(1.0 + self.environment.fraction() / 4.0)).await;
        }
    }

    /// How long the pause still is.
    pub(crate) fn left(&self) -> Duration {
        self.state.lock().until.saturating_duration_since(Instant::now())
    }

    /// Notes the answer to a request that was sent then; `None`: there was none. Returns whether a pause begins.
    pub(crate) fn note(&self, sent: Instant, answer: Option<(u16, &HeaderMap)>) -> bool {
        let asked = answer.and_then(|(code, headers)| retry_after(code, headers));
        let is_unavailable = answer.is_none_or(|(code, _)| is_refusal(code));
        let mut state = self.state.lock();
        // Of requests in flight, the first that fails counts.
        let is_news = state.since.is_none_or(|since| sent > since);
        if !is_unavailable {
            if is_news {
                state.unavailable.reset();
            }
            return false;
        }
        let pause = match asked {
            Some(asked) => asked.min(LONGEST_ASKED),
            None if is_news => state.unavailable.failed(),
            None => return false,
        };
        let now = Instant::now();
        let begins = now >= state.until;
        if begins {
            state.since = Some(now);
        }
        state.until = state.until.max(now + pause);
        begins
    }
}

/// Whether a server refused a request without looking at it, so that it may be sent again.
pub(crate) fn is_refusal(code: u16) -> bool {
    matches!(code, 429 | 503)
}

/// The delay that an answer asks for. Kubernetes sends seconds, never a date.
fn retry_after(code: u16, headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER).filter(|_| is_refusal(code))?;
    let seconds: u64 = value.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(retry_after: &str) -> HeaderMap {
        HeaderMap::from_iter([(RETRY_AFTER, retry_after.parse().unwrap())])
    }

    async fn waited(pace: &Pace) -> f64 {
        let before = Instant::now();
        pace.wait().await;
        before.elapsed().as_secs_f64()
    }

    fn pace() -> Pace {
        Pace::new(&Environment::default())
    }

    #[tokio::test(start_paused = true)]
    async fn all_requests_wait_as_long_as_the_server_asks_and_no_longer_than_half_a_minute() {
        for (code, header, least) in [(429, "3", 3.0), (503, "2", 2.0), (429, "86400", 30.0)] {
            let pace = pace();
            assert!(pace.note(Instant::now(), Some((code, &headers(header)))));
            let waits = futures::future::join_all((0..100).map(|_| waited(&pace))).await;
            assert!(
                waits
                    .iter()
                    .all(|wait| (least..least * 1.25 + 0.01).contains(wait)),
                "{code} {header}: {waits:?}"
            );
            let distinct: std::collections::BTreeSet<_> =
                waits.iter().map(|wait| (wait * 1000.0) as u64).collect();
            assert!(distinct.len() > 50, "they don't go at once: {waits:?}");
            assert_eq!(waited(&pace).await, 0.0);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_unavailable_server_is_asked_less_and_less_until_it_answers() {
        let (pace, empty) = (pace(), HeaderMap::new());
        for round in 0..10 {
            let sent = Instant::now();
            // All requests in flight fail, and count as one failure.
            for in_flight in 0..8 {
                let answer = (in_flight % 2 == 0).then_some((503, &empty));
                pace.note(sent, answer);
            }
            let (wait, least) = (waited(&pace).await, (0.125 * 2f64.powi(round)).min(2.5));
            assert!(
                (least..least * 2.5 + 0.01).contains(&wait),
                "round {round}: {wait}"
            );
        }
        pace.note(Instant::now(), Some((200, &empty)));
        pace.note(Instant::now(), None);
        assert!(waited(&pace).await < 0.5);
    }

    #[tokio::test(start_paused = true)]
    async fn no_request_waits_for_the_failures_of_all_others() {
        let pace = pace();
        let began = Instant::now();
        let requests = (0..50).map(|_| async {
            for _ in 0..10 {
                pace.wait().await;
                pace.note(Instant::now(), None);
            }
            began.elapsed().as_secs_f64()
        });
        let took = futures::future::join_all(requests).await;
        assert!(took.iter().all(|seconds| *seconds < 10.0 * 6.3), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn errors_that_say_nothing_about_load_slow_nothing_down() {
        let (pace, asked) = (pace(), headers("5"));
        for code in [200, 400, 401, 403, 404, 409, 410, 422, 500, 504] {
            assert!(!pace.note(Instant::now(), Some((code, &asked))), "{code}");
            assert_eq!(waited(&pace).await, 0.0, "{code}");
        }
    }
}
