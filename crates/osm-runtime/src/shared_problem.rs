//! A problem that one task finds, and that reconciles read.

use std::sync::Arc;

use tokio::sync::watch;

#[derive(Clone, Debug, Default)]
pub struct SharedProblem(Arc<watch::Sender<Option<String>>>);

impl SharedProblem {
    /// What is wrong and what to do; `None`: nothing, or it could not be checked yet.
    pub fn problem(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    /// Returns whether there is a problem now and was none before, or the other way round.
    pub(crate) fn note(&self, problem: Option<String>) -> bool {
        let is = problem.is_some();
        let was = self.0.borrow().is_some();
        self.0.send_if_modified(|known| {
            let differs = *known != problem;
            *known = problem;
            differs
        });
        is != was
    }

    /// Tells of every change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<String>> {
        self.0.subscribe()
    }
}
