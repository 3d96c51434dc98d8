//! Readiness: a service is ready when everything it waits for has happened.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

/// What a service still waits for.
#[derive(Clone, Debug)]
pub struct Readiness {
    waiting: Arc<watch::Sender<BTreeMap<String, String>>>,
}

impl Default for Readiness {
    fn default() -> Self {
        Self { waiting: Arc::new(watch::Sender::new(BTreeMap::new())) }
    }
}

impl Readiness {
    /// Adds something to wait for; ready only after [`Gate::open`].
    pub fn gate(&self, name: impl Into<String>) -> Gate {
        let gate = Gate { readiness: self.clone(), name: name.into() };
        gate.close("not yet");
        gate
    }

    /// What is waited for and why, one line each; empty when ready.
    pub fn waiting(&self) -> Vec<String> {
        self.waiting.borrow().iter().map(|(name, why)| format!("{name}: {why}")).collect()
    }

    /// Returns once every gate whose name starts with `prefix` is open.
    pub async fn opened(&self, prefix: &str) {
        let mut waiting = self.waiting.subscribe();
        // The sender lives as long as `self`, so that this can't fail.
        let _ = waiting.wait_for(|waiting| !waiting.keys().any(|name| name.starts_with(prefix))).await;
    }
}

/// One thing that readiness depends on.
#[derive(Clone, Debug)]
pub struct Gate {
    readiness: Readiness,
    name: String,
}

impl Gate {
    /// It has happened.
    pub fn open(&self) {
        self.readiness.waiting.send_if_modified(|waiting| waiting.remove(&self.name).is_some());
    }

    /// It has not happened, or no longer holds.
    pub fn close(&self, why: impl Into<String>) {
        self.readiness.waiting.send_modify(|waiting| {
            waiting.insert(self.name.clone(), why.into());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn ready_when_every_gate_is_open() {
        let readiness = Readiness::default();
        let (a, b) = (readiness.gate("watch of a"), readiness.gate("b"));
        assert!(readiness.opened("watch of ").now_or_never().is_none());
        a.open();
        assert!(readiness.opened("watch of ").now_or_never().is_some());
        assert_eq!(readiness.waiting(), ["b: not yet"]);
        b.open();
        assert!(readiness.waiting().is_empty());
        a.close("gone");
        assert_eq!(readiness.waiting(), ["watch of a: gone"]);
    }
}
