//! A client that does nothing but send the writes of an implementation: for each change of a pool, a list of requests. The benchmark
//! compares an implementation with it, so that the cost beyond the writes is visible.
//!
//! [`writes`] is the file format of these lists, [`pool`] sends the requests of one pool, and [`watch`] decides which change happened.

pub mod pool;
pub mod watch;
pub mod writes;
