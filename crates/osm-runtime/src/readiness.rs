//! Readiness: a service is ready when every gate is open.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::select_all;
use tokio::sync::watch;

/// Start of the name of the gate of a replica's own Lease.
pub const LEASE: &str = "Lease";
/// Start of the names of the gates of permissions.
pub const RIGHTS: &str = "permissions";
/// Name of the gate of the CustomResourceDefinitions.
pub const DEFINITIONS: &str = "CustomResourceDefinitions";
/// Start of the name of the gate of the settings.
pub const SETTINGS: &str = "settings";

/// Why a gate is closed at first.
pub const NOT_YET: &str = "not yet";

/// What a service waits for. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    /// The gates, and why they are closed; `None`: they are open.
    gates: Arc<watch::Sender<BTreeMap<String, Option<String>>>>,
    /// That of which this is a part.
    whole: Option<Arc<Readiness>>,
}

impl Readiness {
    /// Gates of a part of the service, which waits for those of the whole as well.
    pub fn part(&self) -> Self {
        Self {
            gates: Arc::default(),
            whole: Some(Arc::new(self.clone())),
        }
    }

    /// Adds a gate, which is closed at first.
    pub fn gate(&self, name: impl Into<String>) -> Gate {
        let gate = Gate {
            readiness: self.clone(),
            name: name.into(),
        };
        gate.close(NOT_YET);
        gate
    }

    /// The closed gates with their reasons, one line each; for a part, without those of the whole.
    pub fn waiting(&self) -> Vec<String> {
        let gates = self.gates.borrow();
        let closed = gates.iter().filter_map(|(name, why)| Some((name, why.as_ref()?)));
        closed.map(|(name, why)| format!("{name}: {why}")).collect()
    }

    /// Returns once every gate whose name starts with `prefix` is open.
    pub async fn opened(&self, prefix: &str) {
        self.until(|closed| !closed.iter().any(|name| name.starts_with(prefix)))
            .await;
    }

    /// Names of the closed gates.
    pub fn closed(&self) -> Vec<String> {
        let mut closed = Vec::new();
        for level in self.levels() {
            let gates = level.gates.borrow();
            let of_level = gates.iter().filter(|(_, why)| why.is_some());
            closed.extend(of_level.map(|(name, _)| name.clone()));
        }
        closed
    }

    /// Whether there are gates whose name starts with `prefix`, and all are closed; of a part, without those of
    /// the whole.
    pub fn are_all_closed(&self, prefix: &str) -> bool {
        let gates = self.gates.borrow();
        let mut those = gates
            .iter()
            .filter(|(name, _)| name.starts_with(prefix))
            .peekable();
        those.peek().is_some() && those.all(|(_, why)| why.is_some())
    }

    /// Returns once the names of the closed gates fulfil this.
    pub async fn until(&self, is_so: impl Fn(&[String]) -> bool) {
        let mut levels: Vec<_> = self.levels().map(|level| level.gates.subscribe()).collect();
        loop {
            levels.iter_mut().for_each(watch::Receiver::mark_unchanged);
            if is_so(&self.closed()) {
                return;
            }
            let changes = levels.iter_mut().map(|level| Box::pin(level.changed()));
            // The senders live as long as `self`, so that this can't fail.
            let _ = select_all(changes).await;
        }
    }

    /// This one and that of which it is a part.
    fn levels(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |level| level.whole.as_deref())
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
        self.readiness.gates.send_if_modified(|gates| {
            let before = gates.insert(self.name.clone(), None);
            before.flatten().is_some()
        });
    }

    pub fn close(&self, why: impl Into<String>) {
        self.readiness.gates.send_modify(|gates| {
            gates.insert(self.name.clone(), Some(why.into()));
        });
    }

    /// Closes the gate, and logs the problem unless it is the same as before.
    pub fn report(&self, problem: impl Into<String>) {
        let problem = problem.into();
        let is_new = self.readiness.gates.send_if_modified(|gates| {
            let before = gates.insert(self.name.clone(), Some(problem.clone()));
            before.flatten().as_ref() != Some(&problem)
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
    fn a_part_waits_for_the_whole_and_the_whole_for_no_part() {
        let whole = Readiness::default();
        let part = whole.part();
        let (of_whole, of_part) = (whole.gate("watch of a"), part.gate("watch of b"));
        let mut opened = Box::pin(part.opened("watch of "));
        assert!(opened.as_mut().now_or_never().is_none());
        assert!(part.are_all_closed("watch of ") && !part.are_all_closed("task "));
        of_part.open();
        assert!(opened.as_mut().now_or_never().is_none() && !part.are_all_closed("watch of "));
        assert_eq!(
            (part.waiting(), part.closed()),
            (vec![], vec!["watch of a".to_owned()])
        );
        of_whole.open();
        assert!(opened.now_or_never().is_some());
        of_part.close("gone");
        assert!(whole.waiting().is_empty());
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
