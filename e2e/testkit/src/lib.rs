//! A real control plane for tests, the demo and `cargo xtask fleet`.
//!
//! [`control_plane`] runs etcd and kube-apiserver, and [`installation`] the services on them.
//! [`machine_controller`] is a stand-in for machine-controller, [`rollout`] for the controller of Deployments
//! and for nodes, and [`provisioning`] reads documents as machines do. [`upstream_osm`] runs the controller
//! of the upstream OSM, and [`secret_watch`] sees when bootstrap Secrets are absent. [`process`] starts child
//! processes that never outlive their owner, [`procfs`] reads what they use, and [`wait`] waits for
//! conditions.
//!
//! The crate is for development only: no service depends on it. Machines are in osm-lab, simulations in
//! osm-sim, judges in osm-judges.

pub mod control_plane;
pub mod cost;
pub mod fixtures;
pub mod helm;
pub mod installation;
pub mod machine_controller;
pub mod manifest;
pub mod process;
pub mod procfs;
pub mod progress;
pub mod provisioning;
pub mod rollout;
pub mod secret_watch;
pub mod upstream_osm;
pub mod wait;

pub use control_plane::{ControlPlane, Options};
pub use process::Service;
pub use wait::{check, wait_for};
