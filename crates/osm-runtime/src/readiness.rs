//! Readiness: a service is ready when every gate is open.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

/// Start of the name of the gate of a replica's own Lease.
pub const LEASE: &str = "Lease";
/// Start of the names of the gates of permissions.
pub const RIGHTS: &str = "permissions";
/// Name of the gate of the CustomResourceDefinitions.
pub const DEFINITIONS: &str = "CustomResourceDefinitions";
/// Start of the name of the gate of the settings.
pub const SETTINGS: &str = "settings";

/// What a service waits for. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Readiness {
    waiting: Arc<watch::Sender<BTreeMap<String, String>>>,
}

impl Default for Readiness {
    fn default() -> Self {
        Self {
            waiting: Arc::new(watch::Sender::new(BTreeMap::new())),
        }
    }
}

impl Readiness {
    /// Adds a gate, which is closed at first.
    pub fn gate(&self, name: impl Into<String>) -> Gate {
        let gate = Gate {
            readiness: self.clone(),
            name: name.into(),
        };
        gate.close("not yet");
        gate
    }

    /// The closed gates with their reasons, one line each.
    pub fn waiting(&self) -> Vec<String> {
        self.waiting
            .borrow()
            .iter()
            .map(|(name, why)| format!("{name}: {why}"))
            .collect()
    }

    /// Returns once every gate whose name starts with `prefix` is open.
    pub async fn opened(&self, prefix: &str) {
        self.until(|closed| !closed.iter().any(|name| name.starts_with(prefix)))
            .await;
    }

    /// Names of the closed gates.
    pub fn closed(&self) -> Vec<String> {
        self.waiting.borrow().keys().cloned().collect()
    }

    /// Returns once the names of the closed gates fulfil this.
    pub async fn until(&self, is_so: impl Fn(&[String]) -> bool) {
        let mut waiting = self.waiting.subscribe();
        let is_so = |waiting: &BTreeMap<String, String>| is_so(&waiting.keys().cloned().collect::<Vec<_>>());
        // The sender lives as long as `self`, so that this can't fail.
        let _ = waiting.wait_for(is_so).await;
    }
}

/// One thing that readiness depends on.
#[derive(Clone, Debug)]
pub struct Gate {
    readiness: Readiness,
    name: String,
}

impl Gate {
    pub fn open(&self) {
        self.readiness
            .waiting
            .send_if_modified(|waiting| waiting.remove(&self.name).is_some());
    }

    pub fn close(&self, why: impl Into<String>) {
        self.readiness.waiting.send_modify(|waiting| {
            waiting.insert(self.name.clone(), why.into());
        });
    }

    /// Closes the gate, and logs the problem unless it is the same as before.
    pub fn report(&self, problem: impl Into<String>) {
        let problem = problem.into();
        let is_new = self.readiness.waiting.send_if_modified(|waiting| {
            let before = waiting.insert(self.name.clone(), problem.clone());
            before.as_ref() != Some(&problem)
        });
        if is_new {
            tracing::error!("{}: {problem}", self.name);
        }
    }
}

/// Whether a service can't work while this gate is closed. Settings are not among them: the last valid ones
/// stay in force. Watches are not either, because an unavailable API server closes them for every replica.
pub fn is_vital(gate: &str) -> bool {
    gate.starts_with(RIGHTS) || gate.starts_with(DEFINITIONS)
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

    #[test]
    fn a_problem_closes_its_gate_until_it_is_resolved() {
        let readiness = Readiness::default();
        let gate = readiness.gate("permissions");
        gate.report("missing");
        gate.report("missing");
        assert_eq!(readiness.waiting(), ["permissions: missing"]);
        gate.report("unknown");
        assert_eq!(readiness.waiting(), ["permissions: unknown"]);
        gate.open();
        assert!(readiness.waiting().is_empty());
    }
}
