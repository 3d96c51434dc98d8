//! Watches: the changes since a resourceVersion, one per line.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Server;
use super::request::{Request, Target};
use super::state::{Failure, Filter, text};
use super::wire::{Fault, Network};

struct Watch {
    server: Server,
    network: Arc<dyn Network>,
    kind: &'static str,
    filter: Filter,
    /// Everything up to here was looked at.
    version: u64,
    ends: Instant,
    /// Time between two bookmarks, and when the next one is due; `None`: only the end has one.
    bookmarks: Option<(Duration, Instant)>,
    /// Breaks off after so many events.
    left: Option<u32>,
    waiting: VecDeque<(Instant, String)>,
    /// `State::restored` when it began.
    restored: u64,
    over: bool,
}

/// The answer to a watch, line by line; an error is a connection that breaks.
pub(super) fn start(
    server: &Server,
    network: &Arc<dyn Network>,
    request: &Request,
    fault: Option<Fault>,
) -> Result<BoxStream<'static, Result<String, std::io::Error>>, Failure> {
    let Target::Objects { kind, namespace, .. } = &request.target else {
        return Err(Failure::unsupported("a watch of that"));
    };
    let filter = Filter::of(kind, namespace, request)?;
    if request.query("sendInitialEvents") == "true" {
        // Clients then list first.
        let message = "sendInitialEvents: Forbidden: this server has no lists by watch";
        return Err(Failure::new(422, "Invalid", message));
    }
    let version = match request.query("resourceVersion").parse() {
        Ok(version) if version > 0 => version,
        _ => return Err(Failure::unsupported("a watch from no particular resourceVersion")),
    };
    if fault == Some(Fault::Gone) || server.with(|state| state.has_forgotten(version)) {
        let expired = Failure::new(410, "Expired", format!("too old resource version: {version}"));
        return Ok(stream::iter([Ok(line("ERROR", &expired.status()))]).boxed());
    }
    let seconds = request.query("timeoutSeconds").parse().unwrap_or(300);
    let watch = Watch {
        server: server.clone(),
        network: network.clone(),
        kind: kind.plural,
        filter,
        version,
        ends: Instant::now() + Duration::from_secs(seconds),
        bookmarks: server
            .with(|state| state.bookmarks())
            .map(|every| (every, Instant::now() + every)),
        left: match fault {
            Some(Fault::Cut(after)) => Some(after),
            _ => None,
        },
        waiting: VecDeque::new(),
        restored: server.with(|state| state.restored),
        over: false,
    };
    Ok(stream::unfold(watch, Watch::next).boxed())
}

impl Watch {
    async fn next(mut self) -> Option<(Result<String, std::io::Error>, Self)> {
        if self.over {
            return None;
        }
        if self.left == Some(0) {
            self.over = true;
            return Some((Err(std::io::ErrorKind::ConnectionReset.into()), self));
        }
        let server = self.server.clone();
        loop {
            let news = server.news(self.kind)?;
            let news = news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            if server.with(|state| state.restored) != self.restored {
                self.over = true;
                return Some((Err(std::io::ErrorKind::ConnectionReset.into()), self));
            }
            self.read();
            if let Some((due, event)) = self.waiting.pop_front() {
                tokio::time::sleep_until(due).await;
                self.left = self.left.map(|left| left.saturating_sub(1));
                return Some((Ok(event), self));
            }
            let due = self.bookmarks.map_or(self.ends, |(_, next)| next.min(self.ends));
            if tokio::time::timeout_at(due, news).await.is_err() {
                self.over = due == self.ends;
                self.bookmarks = self.bookmarks.map(|(every, _)| (every, due + every));
                let metadata = json!({"resourceVersion": self.version.to_string()});
                let bookmark = json!({"metadata": metadata, "kind": "Bookmark", "apiVersion": "v1"});
                return Some((Ok(line("BOOKMARK", &bookmark)), self));
            }
        }
    }

    /// Takes what is new from the log.
    fn read(&mut self) {
        let Self {
            server,
            network,
            kind,
            filter,
            version,
            waiting,
            ..
        } = self;
        server.with(|state| {
            for logged in state.log_after(*version) {
                if logged.kind != *kind {
                    continue;
                }
                let fits = |object: &&Arc<Value>| filter.fits(object);
                let event = match (logged.old.as_ref().filter(fits), logged.new.as_ref().filter(fits)) {
                    (_, Some(new)) if logged.old.as_ref().filter(fits).is_none() => line("ADDED", new),
                    (_, Some(new)) => line("MODIFIED", new),
                    (Some(old), None) => {
                        // To a selector, what no longer fits is gone; it is shown as it was, with the new
                        // version.
                        let mut gone = (**old).clone();
                        if let Some(shown) = gone.pointer_mut("/metadata/resourceVersion") {
                            *shown = json!(logged.version.to_string());
                        }
                        line("DELETED", &gone)
                    }
                    (None, None) => continue,
                };
                waiting.push_back((logged.at + network.lag(kind, logged.version), event));
            }
            *version = state.version().max(*version);
        });
    }
}

fn line(type_: &str, object: &Value) -> String {
    debug_assert!(type_ == "ERROR" || !text(object, "resourceVersion").is_empty());
    format!("{}\n", json!({"type": type_, "object": object}))
}
