//! Renders the content of user data from a profile, a pool and settings. osm-user-data writes the documents
//! from it.
//!
//! ```text
//! bases(spec, …)  -> Vec<Base>            the profiles that a profile extends
//! resolve(spec)   -> AcceptedProfile      bases and library applied, and checks that need no rendering
//! compile(&…)     -> Profile              every template parsed
//! Profile::render -> Rendered             the content of an OperatingSystemConfig, with markers for credentials, and what it downloads
//! validate::…     -> Refusal              whether a profile can be accepted
//! ```
//!
//! This crate is pure: it uses no clock, network, environment or randomness, and the same input always gives
//! the same output. Users write the templates, so time, memory and stack are bounded, and no template makes
//! this crate panic.
//!
//! A template language is an engine: `engine.rs` has the traits, `engines.rs` the list of languages.

#![allow(missing_docs)] // Not published: a doc comment that only repeats the name would not help.

mod additions;
mod budget;
mod checks;
mod containerd_version;
mod defaults;
mod downloads;
mod engine;
mod engines;
mod error;
mod extends;
mod go_templates;
mod handlebars;
mod kubelet;
mod library;
mod model;
mod no_proxy;
mod packages;
mod placement;
mod profile;
mod profile_secrets;
mod readable;
mod rendered_text;
mod resolve;
mod samples;
mod settings_warnings;
mod subscription;
mod template_walk;
mod time_servers;
pub mod validate;
mod verbatim;

pub use osm_api::ClusterEndpoint;

pub use defaults::{blessed_version, default_manifests, default_name, defaults};
pub use downloads::{Artefact, Download};
pub use error::{ProfileError, RenderError, TemplatePosition};
pub use extends::{Base, ProfileKey, bases};
pub use library::library_version;
pub use profile::{Profile, Rendered, compile, suits};
pub use readable::{is_credential, readable};
pub use resolve::{resolve, resolve_on};
pub use samples::{full_sample, plain_pools, sample_pools, stand_in_cluster};
pub use validate::dry_run;
