//! The services on the API server in memory, and that server beside a real one.

// The lints' exceptions for tests don't reach helpers of tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod fleet;
mod ill_cluster;
mod memory;
mod model;
mod profiles;
mod watches;
