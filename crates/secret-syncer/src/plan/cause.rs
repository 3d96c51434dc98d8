//! Reasons to publish a pool.

/// Value of the label `cause` of the metric `publishes_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The documents have not been compared since this process started; perhaps nothing is to be done.
    Unverified,
    Missing,
    NewContent,
    NewRevision,
    Altered,
    TokensDead,
    RenewalDue,
    RoleAltered,
}
