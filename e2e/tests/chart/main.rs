//! The Helm chart: what it renders, and its installation on a real API server.

// The lints' exceptions for tests don't reach helpers of tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

mod alerts;
mod flags;
mod fleet;
mod gitops;
mod installing;
mod kkp;
mod kubeone;
mod manifest;
mod page;
mod prometheus;
mod rendering;
mod replace_machines;
mod tasks;
mod tutorial;
mod values;
