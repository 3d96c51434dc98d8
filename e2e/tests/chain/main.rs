//! The whole chain on a real API server: the services turn a MachineDeployment into an OperatingSystemConfig
//! and Secrets. Each service has its own identity and only its own rights.

// The lints' exceptions for tests don't reach helpers of tests.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

mod admission;
mod approver;
mod canaries;
mod credentials;
mod custom_profiles;
mod fleet;
mod fleet_bounds;
mod fleet_rights;
mod go_templates;
mod idle;
mod joining;
mod joining_mode;
mod kkp;
mod loss;
mod machine_controller;
mod migrate;
mod osmctl;
mod outage;
mod privilege;
mod replicas;
mod restore;
mod rights;
mod rotation;
mod runbooks;
mod shared;
mod start;
mod takeover;
mod unreadable;
mod upstream_osm;
mod webhook_server;
mod world;
