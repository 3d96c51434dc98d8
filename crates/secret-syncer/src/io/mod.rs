//! Everything that holds a client. [`gather`] only reads; [`apply`] carries out a plan; [`report`] writes status, Events and metrics.

pub mod apply;
pub mod caches;
pub mod context;
pub mod error;
pub mod gather;
pub mod join_right;
pub mod report;
pub mod reporting;
pub mod sources;
pub mod token;
pub mod token_probe;
pub mod watches;
