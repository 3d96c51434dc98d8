//! The services, and what each may do, where and why. The chart, the tests and the demo take their roles from
//! the table.
//!
//! ```text
//! grant          a right, its reason, and where it is granted
//! installation   what the rights of one installation depend on
//! table          what each service may do
//! service        the services, with their rows of the table
//! objects        the objects that grant all of this
//! ```

mod grant;
mod installation;
mod objects;
mod service;
mod table;

#[cfg(test)]
mod tests;

pub use self::grant::{ClusterKind, Grant, Right};
pub use self::installation::Installation;
pub use self::objects::{Names, RENEWAL, node_client, objects, renewal};
pub use self::service::Service;
pub use self::table::{CLIENT_SIGNER, GoLease};
