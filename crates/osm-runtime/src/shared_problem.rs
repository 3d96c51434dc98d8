//! A problem that one task finds, and that reconciles read.

use std::sync::Arc;

use parking_lot::Mutex;

#[derive(Clone, Debug, Default)]
pub struct SharedProblem(Arc<Mutex<Option<String>>>);

impl SharedProblem {
    /// What is wrong and what to do; `None`: nothing, or it could not be checked yet.
    pub fn problem(&self) -> Option<String> {
        self.0.lock().clone()
    }

    /// Returns whether there is a problem now and was none before, or the other way round.
    pub(crate) fn note(&self, problem: Option<String>) -> bool {
        let is = problem.is_some();
        is != std::mem::replace(&mut *self.0.lock(), problem).is_some()
    }
}
