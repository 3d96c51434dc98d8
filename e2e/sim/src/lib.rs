//! A simulation that the services run in, and what must hold there.
//!
//! [`memory`] is an API server in memory: it stores, validates, authorizes and watches as kube-apiserver
//! does, on a clock that tests set. The demo serves it to kubectl. [`invariants`] observes its changes, and
//! reports every promise of `docs/rotation.md` that is broken. It knows names, labels and tokens, and nothing
//! of the services. [`hostile_server`] stands in for the API server of a user cluster and misbehaves.

pub mod hostile_server;
pub mod invariants;
pub mod memory;
