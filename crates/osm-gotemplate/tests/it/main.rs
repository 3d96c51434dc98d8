//! The language and its functions, as templates use and abuse them.

// The lints' exceptions for tests don't reach helpers of tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod hostile;
mod hostile_calls;
mod language;
mod positions;
mod work;
