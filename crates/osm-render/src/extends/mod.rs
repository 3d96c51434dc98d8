//! `spec.extends`: a profile that builds on another one, its *base*.
//!
//! [`bases`] finds the chain of bases, and [`compose()`] puts the profiles together: additive, and whatever
//! two profiles set differently is an error unless the upper one replaces or removes it. The result is an
//! ordinary spec without any of the fields that are about a base.

mod base;
mod chain;
mod compose;
mod modules;
mod stage;

pub use base::{Base, ProfileKey};
pub use chain::bases;
pub(crate) use compose::compose;
