//! The API server's clock, read from its answers. Lives of credentials are measured by it: our own clock may be hours off,
//! or jump.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};

use crate::Surroundings;

/// Answers tell whole seconds, and have been on their way: a smaller difference says nothing.
const INEXACT: SignedDuration = SignedDuration::from_secs(2);

/// Shared by everything that talks to one API server; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ServerTime {
    seen: Arc<Mutex<Option<Seen>>>,
    surroundings: Surroundings,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    server: Timestamp,
    at: Instant,
}

impl Seen {
    fn now(self) -> Timestamp {
        let since = SignedDuration::try_from(self.at.elapsed()).unwrap_or_default();
        self.server.saturating_add(since).unwrap_or(Timestamp::MAX)
    }
}

impl ServerTime {
    /// Goes by our own clock until the API server has answered.
    pub fn new(surroundings: &Surroundings) -> Self {
        Self { seen: Arc::default(), surroundings: surroundings.clone() }
    }

    /// What the API server's clock shows; ours until it has answered once.
    pub fn now(&self) -> Timestamp {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.map_or_else(|| self.surroundings.now(), Seen::now)
    }

    /// Notes when an answer was given. Only the API server itself marks its answers with `Audit-Id`: a proxy before it
    /// may have a clock of its own.
    pub fn note(&self, headers: &HeaderMap) {
        let text = |name: &str| headers.get(name)?.to_str().ok();
        let (Some(_), Some(date)) = (text("audit-id"), text("date")) else { return };
        let Ok(server) = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(date) else { return };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let known = seen.is_some_and(|seen| seen.now().duration_since(server).abs() < INEXACT);
        if !known {
            *seen = Some(Seen { server, at: Instant::now() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(date: &str, audit_id: bool) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("date", date.parse().unwrap());
        if audit_id {
            headers.insert("audit-id", "5c0f".parse().unwrap());
        }
        headers
    }

    #[test]
    fn the_last_answer_of_the_api_server_counts() {
        let time = ServerTime::default();
        let off = |time: &ServerTime, from: &str| {
            time.now().duration_since(from.parse::<Timestamp>().unwrap()).abs().as_secs()
        };
        assert!(time.now().duration_since(Timestamp::now()).abs() < INEXACT);
        time.note(&answer("Sat, 21 Nov 2026 18:54:06 GMT", false));
        time.note(&answer("soon", true));
        assert!(time.now().duration_since(Timestamp::now()).abs() < INEXACT, "neither is the API server's");
        time.note(&answer("Sun, 06 Nov 1994 08:49:37 GMT", true));
        assert!(off(&time, "1994-11-06T08:49:37Z") < 5);
        time.note(&answer("Sat, 05 Nov 1994 08:49:37 GMT", true));
        assert!(off(&time, "1994-11-05T08:49:37Z") < 5, "its clock was put right");
    }

    #[test]
    fn a_second_more_or_less_is_no_news() {
        let time = ServerTime::default();
        time.note(&answer("Sun, 06 Nov 1994 08:49:37 GMT", true));
        let before = time.now();
        time.note(&answer("Sun, 06 Nov 1994 08:49:36 GMT", true));
        assert!(time.now() >= before, "it does not run backwards");
    }
}
