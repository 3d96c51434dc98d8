//! Values of types of Go's standard library. Their only method is `String`.

mod duration;
mod ip;

pub use duration::{DURATION, duration, duration_type, embedding_duration, type_embedding_duration};
pub use ip::{IP, ip, ip_type, ips};
