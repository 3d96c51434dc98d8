//! Writes user data: the documents that machines read, from a rendered content and the values of its
//! credentials.
//!
//! ```text
//! user_data(content, stage, values) -> String    the document of a stage, credentials filled in
//! edge_script(…), kubelet_kubeconfig(…)          what is beside it
//! machine_stage(…)                               what a document puts on a machine, for people
//! ```
//!
//! This crate is what secret-syncer knows of rendering, so it contains no template language. It is pure, as
//! osm-render is.

#![allow(missing_docs)] // Not published: a doc comment that only repeats the name would not help.

mod cloud_init;
pub mod clouds;
mod coreos_cloudinit;
pub mod document;
mod edge;
pub mod error;
pub mod filled;
mod ignition;
pub mod kubeconfig_secret;
mod kubelet_kubeconfig;
pub mod late_bound;
mod machine;
pub mod reader;
pub mod scripts;
pub mod size;
pub mod stage;
pub mod static_network;
pub mod systems;
pub mod tree;
mod unit_text;
pub mod units;
pub mod yaml;

pub use clouds::{limit_bytes, size_limit};
pub use document::{plain_user_data, user_data};
pub use edge::edge_script;
pub use error::UserDataError;
pub use kubelet_kubeconfig::{kubelet_kubeconfig, late_bound_ids};
pub use late_bound::{LateValues, RESERVED_PREFIX, masks, placeholders};
pub use machine::{MachineFile, MachineStage, machine_stage, masked_machine_stage};
pub use size::{Counted, SizeLimit};
pub use stage::Stage;
