//! Values of types of Go's standard library, with their methods.

mod duration;
mod ip;

pub use duration::{
    DURATION, duration, duration_text, duration_type, embedding_duration, parse_duration,
    type_embedding_duration,
};
pub(crate) use ip::{BYTE, ip_of};
pub use ip::{IP, ip, ip_type, ips};
