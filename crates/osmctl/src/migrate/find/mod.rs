//! What the Go implementation has left in a cluster.
//!
//! ```text
//! marks           how objects of the Go implementation, and of the chart of OSM, are named
//! pods            what the pods of a workload run, mount and refer to
//! seen            the lists of a cluster; the only module that sends requests
//! configurations  webhook configurations, and the Services that they call
//! permissions     ServiceAccounts, and the bindings and Roles that give them permissions
//! sort            lists → the objects of the Go implementation, by the Deployments and by what refers to them
//! ```

mod configurations;
#[cfg(test)]
pub mod fixtures;
mod marks;
mod permissions;
mod pods;
mod seen;
mod sort;

pub use self::configurations::calls_any;
pub use self::marks::controller_container;
pub use self::pods::{command_line, mounted};
pub use self::seen::{read, webhooks};
pub use self::sort::{Found, sort};
