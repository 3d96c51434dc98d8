//! Machines and the servers that they reach, for tests of what runs on a node.
//!
//! [`machines`] boots virtual machines from user data, on a network that leads nowhere. [`serve`] has what a
//! machine reaches there, with faults on demand: a mirror, a registry, metadata and a relay in front of the
//! API server. [`release`] builds the programs that nodes download.
//!
//! The crate knows how nodes and servers behave, and nothing of the services under test.

pub mod machines;
pub mod release;
pub mod serve;
