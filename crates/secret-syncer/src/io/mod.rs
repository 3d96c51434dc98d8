//! Everything that holds a client. [`gather`] reads and writes nothing; [`apply`] carries out a plan and decides nothing; [`report`] alone
//! writes status, Events, metrics and the log of outcomes.

pub mod apply;
pub mod caches;
pub mod clients;
pub mod context;
pub mod error;
pub mod gather;
pub mod hmac_key;
pub mod join_right;
pub mod memory;
pub mod metrics;
pub mod program;
pub mod report;
pub mod reporting;
pub mod sources;
pub mod token_probe;
pub mod tokens;
pub mod watches;
