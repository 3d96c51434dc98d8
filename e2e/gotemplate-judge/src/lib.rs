//! Compares `osm-gotemplate` with Go's `text/template` and sprig.
//!
//! A [`Case`] is templates, data with Go's types ([`data`]), and what Go made of them: an output or an error text. The Go program is
//! `e2e/judges/gotemplate`. Its recorded cases are the files of `cases/`, which tests run without Go. `cargo xtask gotemplate`
//! makes them again: from the hand-written inputs in `inputs/`, from tables, and from a generator of random templates.
//!
//! [`mod@compare`] finds what differs. Differences that are meant are the table [`deviations::DEVIATIONS`].

pub mod case;
pub mod compare;
pub mod data;
pub mod deviations;
mod layout;
mod named;
mod types;

pub use case::Case;
pub use compare::{Difference, Verdict, compare};
