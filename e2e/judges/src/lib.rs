//! Judges of rendered documents: the programs that read user data on a node, made stricter than the node is.
//!
//! Each judge takes named texts and returns `Ok(())`, or [`Complaints`] that name for each finding the
//! document, the place and the problem. A judge that cannot work, because a package is missing or a build
//! failed, is a complaint too. Judges install, download or build what they need on first use and keep it in
//! `${XDG_CACHE_HOME:-$HOME/.cache}/osm/judges`. A process judges each text once, so batches and repetitions
//! are cheap.
//!
//! [`judge_user_data`] is the one call that a test of a profile makes. Judges block; in async tests that is
//! fine.
//!
//! The crate also holds what every kind of test uses to get its programs: Debian packages ([`packages`]), Go
//! modules ([`go_module`]) and cargo ([`cargo_tool`]). It knows no cluster and no machine.

pub mod cargo_tool;
mod cloud_config;
mod complaint;
mod containerd;
mod coreos_cloudinit;
pub mod go_module;
mod ignition;
mod kubelet;
mod machine_config;
pub mod packages;
mod program;
mod script;
mod systemd;
mod upstream_osm;
mod user_data;

pub use cloud_config::{cloud_config, cloud_init_modules_missing};
pub use complaint::{Complaint, Complaints};
pub use containerd::{containerd_config, containerd_configs, hosts_toml};
pub use coreos_cloudinit::{coreos_apply, coreos_cloud_configs, coreos_read};
pub use ignition::{ignition_apply, ignition_configs, ignition_read};
pub use kubelet::{
    KUBELET_MINORS, Statement, kubelet_configs, kubelet_feature_gates, kubelet_fields, kubelet_validation,
};
pub use machine_config::{MachineConfig, MachineUnit, MachineUser};
pub use program::gotemplate_program;
pub use script::{python_scripts, shell_scripts};
pub use upstream_osm::{upstream_osm_module, upstream_osm_profiles};
pub use user_data::{
    File, UserData, judge_coreos_user_data_batch, judge_user_data, judge_user_data_batch, user_data_files,
};
