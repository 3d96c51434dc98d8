//! The code that the services share: flags, telemetry, clients, caches, the reconcile runner and the admin
//! server.
//!
//! This crate knows neither rendering nor any of the services.
//!
//! # Why not `kube::runtime::Controller`
//!
//! The services use kube's client. They have a [watch], a [cache], a [queue] and a [runner] of their own, for
//! seven reasons:
//!
//! 1. **Controllers read their own writes.** A reflector's store lags behind the controller's own writes, so
//!    that a reconcile would repeat them. [`cache::Cache`] records each write with the resourceVersion of the
//!    answer; the newer version wins.
//! 2. **Keys exist without objects.** osc-controller reconciles the name that a MachineDeployment claims, and
//!    secret-syncer cleans up after configs that no longer exist. `Controller` reconciles objects of its
//!    store, and skips deleted ones.
//! 3. **Ownership moves between replicas.** [`replicas`] divide the keys. A replica must drop a key that it
//!    has lost and reconcile one that it has gained, though no object has changed.
//! 4. **A conflict is not a failure.** [`runner`] repeats a reconcile whose write was refused with 409, and
//!    counts it apart from failures. Events during the back-off don't lengthen it.
//! 5. **The model tests are deterministic.** Keys, timers and random numbers come from [`queue`] and
//!    [`environment`], so that a seed reproduces a run. `Controller` schedules within streams that a test
//!    can't order.
//! 6. **One object affects no other.** [`object`] decodes each object from its own text, so that one that
//!    can't be decoded hides no other.
//! 7. **A watch that is silent takes little memory.** kube keeps a buffer of 8 KiB or more for each, and a fleet
//!    has thousands.

#![allow(missing_docs)] // Not published: a doc comment that only repeats the name would not help.

pub mod admin;
pub mod admission;
mod answer;
pub mod args;
pub mod bounds;
pub mod cache;
pub mod client;
pub mod cluster;
pub mod cluster_gauge;
pub mod connection;
pub mod connection_role;
pub mod controller;
mod decoded;
pub mod definitions;
pub mod environment;
pub mod error;
pub mod events;
pub mod fleet;
pub mod followed;
pub mod foreign_cluster;
mod kubeconfig;
pub mod metrics;
pub mod object;
mod port;
pub mod process;
mod proxy;
pub mod queue;
pub mod read;
pub mod readiness;
pub mod replicas;
pub mod request;
pub mod rights;
pub mod runner;
pub mod scope;
pub mod served;
pub mod server_time;
pub mod service;
pub mod settings;
pub mod settings_watch;
pub mod shared_problem;
mod startup_check;
pub mod status;
pub mod telemetry;
pub mod threads;
pub mod transport;
pub mod upstream_osm;
pub mod watch;

pub use admission::AdmissionArgs;
pub use kube::Api;

pub use args::{CommonArgs, ProfileArgs};
pub use cluster::Cluster;
pub use connection::Connection;
pub use controller::Controller;
pub use environment::Environment;
pub use metrics::Metrics;
pub use process::Process;
pub use readiness::Readiness;
pub use request::Error;
pub use scope::Scope;
