//! Reasons to publish a pool.

/// Value of the label `cause` of the metric `publishes_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr, strum::VariantNames)]
pub enum Cause {
    /// Another program filled in the documents, and this process has not compared them yet; perhaps nothing is to be done.
    Unverified,
    Missing,
    NewContent,
    NewRevision,
    Modified,
    TokensInvalid,
    RenewalDue,
    RoleModified,
}
