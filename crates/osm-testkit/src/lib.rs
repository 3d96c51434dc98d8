//! What tests, the demo and the benchmark stand on: a real etcd and kube-apiserver, a stand-in for machine-controller, child
//! processes that never outlive their owner, and judges of rendered documents.
//!
//! For development only: no service depends on this crate.

pub mod cargo_tool;
pub mod chaos;
pub mod cluster;
pub mod control_plane;
pub mod go_module;
pub mod helm;
pub mod installation;
pub mod invariants;
pub mod judge;
pub mod lab;
pub mod machine_controller;
pub mod memory;
pub mod packages;
pub mod process;
pub mod release;
pub mod serve;
pub mod tiny;
pub mod wait;

pub use control_plane::{ControlPlane, Options};
pub use process::Service;
pub use wait::{check, wait_for};
