//! Judges of what we render: the tools that read it on a node, made as strict as the node is unforgiving.
//!
//! Each judge takes named texts and returns `Ok(())`, or a [`Verdict`] that says for each complaint which document, where and what. A judge that
//! can't work (a package missing, a build failed) is a complaint too. What a judge needs is installed, downloaded or built on first use and
//! kept in `${XDG_CACHE_HOME:-$HOME/.cache}/osm/judges`. Each text is judged once per process: give many at once, and don't be afraid
//! of repetitions.
//!
//! [`judge_user_data`] is the one call that a test of a profile makes. Judges block; in async tests that is fine.

mod cloud_config;
mod containerd;
mod coreos_cloudinit;
mod ignition;
mod kubelet;
mod program;
mod script;
mod systemd;
mod user_data;
mod verdict;

pub use cloud_config::{cloud_config, cloud_init_schema};
pub use containerd::{containerd_config, containerd_configs, hosts_toml};
pub use coreos_cloudinit::{
    CoreosConfig, CoreosUnit, CoreosUser, coreos_apply, coreos_cloud_configs, coreos_read,
};
pub use ignition::{
    IgnitionConfig, IgnitionUnit, IgnitionUser, ignition_apply, ignition_configs, ignition_read,
};
pub use kubelet::{KUBELET_MINORS, kubelet_config, kubelet_configs, kubelet_feature_gates, kubelet_fields};
pub use script::{python_scripts, shell_script, shell_scripts};
pub use systemd::systemd_units;
pub use user_data::{
    File, UserData, judge_coreos_user_data_batch, judge_user_data, judge_user_data_batch, user_data_files,
};
pub use verdict::{Complaint, Verdict};
