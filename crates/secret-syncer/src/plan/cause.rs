//! Reasons to publish a pool.

/// Value of the label `cause` of the metric `publishes_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
pub enum Cause {
    Missing,
    NewContent,
    NewRevision,
    Modified,
    TokensInvalid,
    RenewalDue,
    RoleModified,
}
