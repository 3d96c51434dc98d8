//! Go's `net.IP`: bytes, which are an address if there are 4 or 16 of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::functions::{Call, Parameter};
use crate::methods::{Behavior, Encoded, Method, STRING};
use crate::problem::Problem;
use crate::value::{List, Named, Type, UintKind, Value};

/// The name of Go's type.
pub const IP: &str = "net.IP";

/// Go's `byte`.
pub(crate) const BYTE: Type = Type::Uint(UintKind::Uint8);

/// What an address takes.
const BYTES_OF_ADDRESS: usize = 1024;

static BEHAVIOR: Behavior = Behavior::new(
    &[
        STRING,
        Method::new("To4", &[], |call| made(call, to_4(&receiver(call)))),
        Method::new("To16", &[], |call| made(call, to_16(&receiver(call)))),
        Method::new("Equal", &[Parameter::Ip], |call| {
            if let Value::List(list) = call.any(1).underlying() {
                call.budget.read(size_of_val(list.items()))?;
            }
            let (one, other) = (receiver(call), bytes_of(call.any(1)));
            let canonical = |bytes: &[u8]| to_16(bytes).unwrap_or_else(|| bytes.to_vec());
            Ok((canonical(&one) == canonical(&other)).into())
        }),
        Method::new("IsGlobalUnicast", &[], |call| {
            is(call, |address| {
                !is_unspecified(address)
                    && !is_loopback(address)
                    && !is_multicast(address)
                    && !is_link_local(address)
                    && address != IpAddr::V4(Ipv4Addr::BROADCAST)
            })
        }),
        Method::new("IsInterfaceLocalMulticast", &[], |call| {
            is(
                call,
                |address| matches!(address, IpAddr::V6(address) if is_multicast_of(address, 1)),
            )
        }),
        Method::new("IsLinkLocalMulticast", &[], |call| {
            is(call, |address| match address {
                IpAddr::V4(address) => address.octets().starts_with(&[224, 0, 0]),
                IpAddr::V6(address) => is_multicast_of(address, 2),
            })
        }),
        Method::new("IsLinkLocalUnicast", &[], |call| is(call, is_link_local)),
        Method::new("IsLoopback", &[], |call| is(call, is_loopback)),
        Method::new("IsMulticast", &[], |call| is(call, is_multicast)),
        Method::new("IsPrivate", &[], |call| {
            is(call, |address| match address {
                IpAddr::V4(address) => address.is_private(),
                IpAddr::V6(address) => address.is_unique_local(),
            })
        }),
        Method::new("IsUnspecified", &[], |call| is(call, is_unspecified)),
    ],
    Encoded::AsAddress,
);

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
    of_bytes(bytes.as_ref().map(<[u8; 16]>::as_slice))
}

/// A `[]net.IP`.
#[must_use]
pub fn ips(addresses: impl IntoIterator<Item = IpAddr>) -> Value {
    let items = addresses.into_iter().map(|address| ip(Some(address))).collect();
    Value::List(List::new(ip_type(), items))
}

/// A `net.IP` of bytes that are values, which need not be an address.
pub(crate) fn ip_of(bytes: &[Value]) -> Value {
    let bytes: Vec<u8> = bytes.iter().map(byte).collect();
    of_bytes(Some(&bytes))
}

fn of_bytes(bytes: Option<&[u8]>) -> Value {
    let list = match bytes {
        Some(bytes) => {
            let items = bytes.iter();
            let items = items.map(|byte| Value::Uint((*byte).into(), UintKind::Uint8));
            List::new(BYTE, items.collect())
        }
        None => List::nil(BYTE),
    };
    let bytes = bytes.unwrap_or_default();
    let text = match address(bytes) {
        Some(address) => address.to_string(),
        None if bytes.is_empty() => "<nil>".to_owned(),
        None => bytes
            .iter()
            .fold("?".to_owned(), |text, byte| format!("{text}{byte:02x}")),
    };
    Value::Named(Named::with_behavior(
        IP,
        Value::List(list),
        Some(text.into()),
        &BEHAVIOR,
    ))
}

fn byte(value: &Value) -> u8 {
    match value {
        Value::Uint(byte, _) => u8::try_from(*byte).unwrap_or(0),
        _ => 0,
    }
}

fn bytes_of(value: &Value) -> Vec<u8> {
    match value.underlying() {
        Value::List(list) => list.items().iter().map(byte).collect(),
        _ => Vec::new(),
    }
}

fn receiver(call: &Call<'_>) -> Vec<u8> {
    bytes_of(call.receiver())
}

fn made(call: &Call<'_>, bytes: Option<Vec<u8>>) -> Result<Value, Problem> {
    call.budget.copy(BYTES_OF_ADDRESS)?;
    Ok(of_bytes(bytes.as_deref()))
}

fn is(call: &Call<'_>, test: impl FnOnce(IpAddr) -> bool) -> Result<Value, Problem> {
    Ok(address(&receiver(call)).is_some_and(test).into())
}

/// The address that bytes are. One of IPv4 may be mapped into IPv6.
fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Some(Ipv4Addr::from(bytes).into());
    }
    let bytes = <[u8; 16]>::try_from(bytes).ok()?;
    Some(Ipv6Addr::from(bytes).to_canonical())
}

fn to_4(bytes: &[u8]) -> Option<Vec<u8>> {
    match address(bytes)? {
        IpAddr::V4(address) => Some(address.octets().to_vec()),
        IpAddr::V6(_) => None,
    }
}

fn to_16(bytes: &[u8]) -> Option<Vec<u8>> {
    Some(match address(bytes)? {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    })
}

fn is_multicast_of(address: Ipv6Addr, scope: u8) -> bool {
    let [first, second, ..] = address.octets();
    first == 0xff && second & 0x0f == scope
}

fn is_unspecified(address: IpAddr) -> bool {
    address.is_unspecified()
}

fn is_loopback(address: IpAddr) -> bool {
    address.is_loopback()
}

fn is_multicast(address: IpAddr) -> bool {
    address.is_multicast()
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
