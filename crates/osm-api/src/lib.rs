//! Types, names and contracts that the services share. No I/O.
//!
//! - [`profile`], [`config`] and [`worker_cluster`]: the custom resources; [`custom_profile`]: KKP's kind of
//!   profile; [`content`]: how a config is read; [`definitions`]: what `crds/` is generated from.
//! - [`machine_deployment`], [`provider_spec`], [`pool`]: what is read of a MachineDeployment; [`pool_ref`]:
//!   its identity.
//! - [`machine`]: what is read of its Machines and MachineSets; [`node_name`]: the name that each machine's
//!   node has.
//! - [`settings`]: the one settings document of an installation; [`settings_patch`]: documents that change it
//!   for a pool or a cluster; [`cluster_endpoint`]: the API server that nodes find by it.
//! - [`gzip`]: compressed texts.
//! - [`kubelet_value`]: quantities, durations and thresholds as the kubelet reads them.
//! - [`system_names`]: names of packages, kernel modules and kernel parameters.
//! - [`names`], [`condition`], [`reason`], [`rbac`]: object names, conditions with their owners, their
//!   reasons, and each service's rights.
//!
//! This crate must not talk to anything: it knows shapes and rules, not clients.

pub mod cluster_endpoint;
pub mod condition;
pub mod config;
pub mod content;
pub mod custom_profile;
pub mod definitions;
pub mod digest;
mod files_and_units;
pub mod gzip;
pub mod kubelet_value;
pub mod labels;
pub mod machine;
pub mod machine_deployment;
pub mod names;
pub mod node_name;
pub mod pool;
pub mod pool_ref;
pub mod pool_settings;
mod preserved;
pub mod profile;
mod profile_config;
pub mod provider_spec;
pub mod rbac;
pub mod reason;
pub mod settings;
pub mod settings_patch;
pub mod strict;
pub mod system_names;
pub mod worker_cluster;

pub use cluster_endpoint::ClusterEndpoint;
pub use config::{OperatingSystemConfig, OperatingSystemConfigSpec, OperatingSystemConfigStatus};
pub use custom_profile::CustomOperatingSystemProfile;
pub use machine::{Machine, MachineSet};
pub use machine_deployment::MachineDeployment;
pub use pool::Pool;
pub use pool_ref::PoolRef;
pub use profile::{OperatingSystemProfile, OperatingSystemProfileSpec, OperatingSystemProfileStatus};
pub use reason::Reason;
pub use settings::Settings;
pub use worker_cluster::{WorkerCluster, WorkerClusterSpec, WorkerClusterStatus};
