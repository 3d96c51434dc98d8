//! Whether the CustomResourceDefinitions are known to be older than this program. [`crate::definitions`] finds it out.

use std::sync::Arc;

use parking_lot::Mutex;

/// Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct OutdatedDefinitions(Arc<Mutex<Option<String>>>);

impl OutdatedDefinitions {
    /// Which fields they lack and what to do; `None`: they are good, or could not be checked yet.
    pub fn problem(&self) -> Option<String> {
        self.0.lock().clone()
    }

    pub(crate) fn note(&self, problem: Option<String>) {
        *self.0.lock() = problem;
    }
}
