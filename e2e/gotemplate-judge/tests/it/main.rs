//! The engine beside what Go gave, and before the program that reads what it writes.

// The lints' exceptions for tests don't reach helpers of tests.
#![allow(clippy::unwrap_used)]

mod recorded;
mod yaml;
