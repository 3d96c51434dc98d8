//! The API server's clock, as its answers show it. Lifetimes of credentials are measured by it, because the
//! clock of this host may be wrong by hours, or jump.

use std::sync::Arc;

use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::environment::Environment;

/// Answers have whole seconds and arrive late, so a smaller difference means nothing.
const PRECISION: SignedDuration = SignedDuration::from_secs(2);

/// Shared by all clients of one API server. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ServerTime {
    environment: Environment,
    /// By how much the API server's clock is ahead of this host's, as its last answer showed.
    ahead: Arc<Mutex<SignedDuration>>,
}

impl ServerTime {
    /// Uses the local clock until the API server has answered.
    pub fn new(environment: &Environment) -> Self {
        Self {
            environment: environment.clone(),
            ahead: Arc::default(),
        }
    }

    pub fn now(&self) -> Timestamp {
        let ahead = *self.ahead.lock();
        let now = self.environment.now().saturating_add(ahead);
        now.unwrap_or(Timestamp::MAX)
    }

    /// Notes the time of an answer. A proxy may have another clock, but only the API server adds `Audit-Id`
    /// to answers.
    pub fn note(&self, headers: &HeaderMap) {
        let text = |name: &str| headers.get(name)?.to_str().ok();
        let (Some(_), Some(date)) = (text("audit-id"), text("date")) else {
            return;
        };
        let Ok(server) = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(date) else {
            return;
        };
        let difference = server.duration_since(self.environment.now());
        let mut ahead = self.ahead.lock();
        if (difference - *ahead).abs() >= PRECISION {
            *ahead = difference;
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
            time.now()
                .duration_since(from.parse::<Timestamp>().unwrap())
                .abs()
                .as_secs()
        };
        assert!(time.now().duration_since(Timestamp::now()).abs() < PRECISION);
        time.note(&answer("Sat, 21 Nov 2026 18:54:06 GMT", false));
        time.note(&answer("soon", true));
        assert!(
            time.now().duration_since(Timestamp::now()).abs() < PRECISION,
            "neither is the API server's"
        );
        time.note(&answer("Sun, 06 Nov 1994 08:49:37 GMT", true));
        assert!(off(&time, "1994-11-06T08:49:37Z") < 5);
        time.note(&answer("Sat, 05 Nov 1994 08:49:37 GMT", true));
        assert!(off(&time, "1994-11-05T08:49:37Z") < 5, "its clock was put right");
    }

    #[test]
    fn a_difference_of_a_second_is_ignored() {
        let time = ServerTime::default();
        time.note(&answer("Sun, 06 Nov 1994 08:49:37 GMT", true));
        let before = time.now();
        time.note(&answer("Sun, 06 Nov 1994 08:49:36 GMT", true));
        assert!(time.now() >= before, "it does not run backwards");
    }
}
