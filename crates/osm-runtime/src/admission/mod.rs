//! A validating admission webhook: an HTTPS server for AdmissionReviews of the API server.
//!
//! A webhook only reports earlier what a reconcile would report later, so that everything works without it.
//! This module owns the server, its certificate and the protocol. A [`Judge`] of the service decides about
//! objects, and must send no request.
//!
//! The server runs in one thread with a runtime of its own. However much is sent to it, the threads that
//! reconcile, renew Leases and answer probes stay free. It shares the memory of the process, so connections are
//! bounded. Whatever can't be judged in time is allowed with a warning, and deletion is never judged.

pub(crate) mod args;
mod certificate;
mod judge;
mod metrics;
mod review;
mod server;
#[cfg(test)]
mod tests;

pub use args::AdmissionArgs;
pub use judge::{Judge, Request, Verdict};
pub use metrics::AdmissionMetrics;
pub use server::{Webhook, spawn};
