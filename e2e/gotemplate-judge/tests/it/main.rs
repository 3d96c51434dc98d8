//! The engine beside what Go gave.

// The lints' exceptions for tests don't reach helpers of tests.
#![allow(clippy::unwrap_used, clippy::panic)]

mod case;
mod data;
mod named;
mod recorded;
mod types;
