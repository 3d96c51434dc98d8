//! The problem that a step of composing reports. Only its caller knows the profile.

/// A field that is wrong, without the profile that it is in.
pub(super) struct Problem {
    /// Path inside the spec.
    pub(super) path: String,
    pub(super) problem: String,
}

impl Problem {
    pub(super) fn new(path: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            problem: problem.into(),
        }
    }
}
