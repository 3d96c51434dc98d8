//! Objects that belong to another cluster than the one that a kubeconfig leads to. While there are any, the service says
//! that it is not ready, what it has found and what to do.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::Context;
use crate::readiness::Gate;

/// Reason of conditions and Events where an object is of another cluster.
pub const CLUSTER_CHANGED: &str = "ClusterChanged";

/// What was found, by the name of the OperatingSystemConfig that it is about.
pub struct Strangers {
    gate: Gate,
    found: Mutex<BTreeMap<String, String>>,
}

impl Strangers {
    /// Nothing has been found yet.
    pub fn new(context: &Context) -> Self {
        let gate = context.readiness.gate("another cluster");
        gate.open();
        Self { gate, found: Mutex::default() }
    }

    /// Notes what is wrong with `name`; `None`: nothing, or it is gone.
    pub fn note(&self, name: &str, problem: Option<&str>) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = match problem {
            Some(problem) => found.insert(name.to_owned(), problem.to_owned()).as_deref() != Some(problem),
            None => found.remove(name).is_some(),
        };
        if !changed {
            return;
        }
        if let Some(problem) = problem {
            tracing::error!(config = name, "{problem}");
        }
        match found.first_key_value() {
            None => self.gate.open(),
            Some((first, problem)) => {
                let others = match found.len() {
                    1 => String::new(),
                    all => format!(" (and {} more)", all - 1),
                };
                self.gate.close(format!("{first}{others}: {problem}"));
            }
        }
    }
}
