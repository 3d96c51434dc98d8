//! Why a function fails.

use crate::budget::Exhausted;

/// Why a function fails. Go prints it after `error calling NAME: `.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("{0}")]
    Failed(String),
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
}

impl Problem {
    pub(crate) fn new(problem: impl Into<String>) -> Self {
        Self::Failed(problem.into())
    }
}
