//! A simulation that the services run in, and what must hold there.
//!
//! [`memory`] is an API server in memory: it stores, validates, authorizes and watches as kube-apiserver does, on a clock that tests set.
//! The demo serves it to kubectl.
//! [`invariants`] observes the changes of an API server, real or simulated, and reports every promise of `docs/rotation.md` that is broken.
//! It knows names, labels and tokens, and nothing of the services. [`watching`] shows it what happens on a real API server.

pub mod invariants;
pub mod memory;
pub mod watching;
