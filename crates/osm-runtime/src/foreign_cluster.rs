//! Objects that belong to another cluster than the one that a kubeconfig leads to. While there are any, the
//! service is not ready, and `/readyz` has what was found and what to do.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::cluster::Cluster;
use crate::readiness::Gate;

/// Name of the gate that is closed while there is one.
pub const GATE: &str = "another cluster";

/// The problems found, by the name of the OperatingSystemConfig.
pub struct ForeignCluster {
    gate: Gate,
    found: Mutex<BTreeMap<String, String>>,
}

impl ForeignCluster {
    pub fn new(cluster: &Cluster) -> Self {
        let gate = cluster.gates.gate(GATE);
        gate.open();
        Self {
            gate,
            found: Mutex::default(),
        }
    }

    /// Records the problem of the config `name`; `None`: it has none, or does not exist.
    pub fn note(&self, name: &str, problem: Option<&str>) {
        let mut found = self.found.lock();
        let changed = match problem {
            Some(problem) => found.insert(name.to_owned(), problem.to_owned()).as_deref() != Some(problem),
            None => found.remove(name).is_some(),
        };
        if !changed {
            return;
        }
        match found.first_key_value() {
            None => self.gate.open(),
            Some((first, problem)) => {
                let others = match found.len() {
                    1 => String::new(),
                    all => format!(" (and {} more)", all - 1),
                };
                self.gate.report(format!("{first}{others}: {problem}"));
            }
        }
    }
}
