//! Everything that holds a client. [`gather`] only reads; [`apply`] carries out a plan; [`report`] writes
//! status, Events and metrics. [`mod@crate::plan`] decides what to write, delete and remember. This layer
//! remembers what a plan says of a pool, and the [facts](crate::model::memory::Fact) that requests have
//! shown.

pub mod apply;
pub mod caches;
pub mod context;
pub mod error;
pub mod gather;
pub mod report;
pub mod reporting;
pub mod shared;
pub mod sources;
pub mod token_probe;
pub mod watches;
