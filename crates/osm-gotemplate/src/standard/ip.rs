//! Go's `net.IP`: the bytes of an address.

use std::net::IpAddr;

use crate::methods::{Behavior, Encoded, STRING};
use crate::value::{List, Named, Type, UintKind, Value};

/// The name of Go's type.
pub const IP: &str = "net.IP";

/// Go's `byte`.
const BYTE: Type = Type::Uint(UintKind::Uint8);

static BEHAVIOR: Behavior = Behavior::new(&[STRING], Encoded::AsText);

/// The type `net.IP`.
#[must_use]
pub fn ip_type() -> Type {
    Type::Named(IP.into(), Type::List(BYTE.into()).into(), &BEHAVIOR)
}

/// A `net.IP`. Go prints a nil one as `<nil>`.
#[must_use]
pub fn ip(address: Option<IpAddr>) -> Value {
    let bytes = address.map(|address| match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    });
    let list = match bytes {
        Some(bytes) => {
            let items = bytes.into_iter();
            let items = items.map(|byte| Value::Uint(byte.into(), UintKind::Uint8));
            List::new(BYTE, items.collect())
        }
        None => List::nil(BYTE),
    };
    let text = address.map_or_else(
        || "<nil>".to_owned(),
        |address| address.to_canonical().to_string(),
    );
    Value::Named(Named::with_behavior(
        IP,
        Value::List(list),
        Some(text.into()),
        &BEHAVIOR,
    ))
}

/// A `[]net.IP`.
#[must_use]
pub fn ips(addresses: impl IntoIterator<Item = IpAddr>) -> Value {
    let items = addresses.into_iter().map(|address| ip(Some(address))).collect();
    Value::List(List::new(ip_type(), items))
}
