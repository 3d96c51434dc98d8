//! What the three services share: flags, telemetry, clients, caches, the reconcile runner and the admin server.
//!
//! It knows neither rendering nor any of the services.

pub mod admin;
pub mod args;
pub mod cache;
pub mod client;
pub mod events;
pub mod metrics;
pub mod queue;
pub mod readiness;
pub mod request;
pub mod rights;
pub mod runner;
pub mod service;
pub mod settings;
pub mod status;
pub mod telemetry;
pub mod watch;

pub use args::{CommonArgs, ProfileArgs};
pub use metrics::Metrics;
pub use readiness::Readiness;
pub use request::RequestError;
pub use service::Context;
