//! Turns a profile, a pool and settings into user data.
//!
//! ```text
//! resolve(spec)   -> AcceptedProfile      the library applied, and checks that need no rendering
//! compile(&…)     -> Profile              every template parsed
//! Profile::render -> Rendered             the content of an OperatingSystemConfig, with markers for credentials, and what it downloads
//! user_data(…)    -> String               the document that a machine reads, credentials filled in
//! ```
//!
//! This crate is pure: no clock, network, environment or randomness, and the same input always gives the same output.
//! It must stand any template: time, memory and stack are bounded, and nothing panics.

mod clouds;
mod defaults;
mod downloads;
mod error;
mod golden;
mod handlebars;
mod kubelet;
mod late;
mod library;
mod model;
mod packages;
mod profile;
mod resolve;
mod samples;
mod size;
mod static_network;
mod subscription;
mod systems;
mod text;
mod texts;
mod user_data;
pub mod yaml;

use osm_api::profile::{OperatingSystemProfileSpec, ProfileConfig};

pub use defaults::{bless, blessed_version, content_hash, default_name, defaults};
pub use downloads::{Artefact, Download};
pub use error::{ProfileError, RenderError, TemplatePosition, UserDataError};
pub use golden::goldens;
pub use late::{LateValues, PREFIX as RESERVED_PREFIX};
pub use library::library_version;
pub use profile::{ClusterEndpoint, Profile, Rendered, compile};
pub use resolve::resolve;
pub use samples::{dry_run, dry_run_with, full_sample, plain_pools, sample_pools, stand_in_cluster};
pub use size::{Counted, SizeLimit, size_limit};
pub use user_data::{edge_script, placeholders, user_data};

/// A stage of a machine's setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// What the cloud hands to a new machine: fetches and applies the other.
    Bootstrap,
    /// What turns the machine into a worker node.
    Provisioning,
}

impl Stage {
    /// Both, in order.
    pub const ALL: [Self; 2] = [Self::Bootstrap, Self::Provisioning];

    /// Name of the stage's field in a spec.
    pub(crate) fn field(self) -> &'static str {
        match self {
            Self::Bootstrap => "bootstrapConfig",
            Self::Provisioning => "provisioningConfig",
        }
    }

    pub(crate) fn config(self, spec: &OperatingSystemProfileSpec) -> &ProfileConfig {
        match self {
            Self::Bootstrap => &spec.bootstrap_config,
            Self::Provisioning => &spec.provisioning_config,
        }
    }
}
