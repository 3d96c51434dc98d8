//! What the three services share: flags, telemetry, clients, caches, the reconcile runner and the admin server.
//!
//! It knows neither rendering nor any of the services.

pub mod admin;
pub mod args;
mod backoff;
pub mod cache;
pub mod client;
pub mod connection;
pub mod definitions;
pub mod events;
pub mod kubeconfig;
pub mod metrics;
pub mod queue;
pub mod readiness;
pub mod replicas;
pub mod request;
pub mod rights;
pub mod runner;
pub mod server_time;
pub mod service;
pub mod settings;
pub mod status;
pub mod strangers;
pub mod surroundings;
pub mod telemetry;
pub mod watch;

pub use args::{CommonArgs, ProfileArgs, WorkerArgs};
pub use connection::Connection;
pub use metrics::Metrics;
pub use readiness::Readiness;
pub use request::RequestError;
pub use service::Context;
pub use surroundings::Surroundings;
