//! Everything that holds a client. [`gather`] only reads; [`apply`] carries out a plan; [`report`] writes status, Events and metrics.
//! What to write, delete and remember is decided by [`mod@crate::plan`]. Of a pool, it remembers what a plan says, and the
//! [facts](crate::model::memory::Fact) that requests have shown.

pub mod apply;
pub mod caches;
pub mod context;
pub mod error;
pub mod gather;
pub mod report;
pub mod reporting;
pub mod sources;
pub mod token;
pub mod token_probe;
pub mod watches;
