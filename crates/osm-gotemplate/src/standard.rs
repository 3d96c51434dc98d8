//! Values of types of Go's standard library, with their methods.

use std::net::IpAddr;
use std::rc::Rc;

use crate::functions::durations;
use crate::value::{List, Named, Struct, Type, UintKind, Value};

/// Nanoseconds of a second.
const SECOND: i64 = 1_000_000_000;

/// A `net.IP`. Go prints a nil one as `<nil>`.
#[must_use]
pub fn ip(address: Option<IpAddr>) -> Value {
    let byte = Type::Uint(UintKind::Uint8);
    let Some(address) = address else {
        let none = Value::List(List::nil(byte));
        return Value::Named(Named::with_text("net.IP", none, "<nil>"));
    };
    let bytes = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    let items = bytes.map(|byte| Value::Uint(byte.into(), UintKind::Uint8));
    let bytes = Value::List(List::new(byte, items.into()));
    Value::Named(Named::with_text("net.IP", bytes, address.to_string()))
}

/// A `[]net.IP`.
#[must_use]
pub fn ips(addresses: impl IntoIterator<Item = IpAddr>) -> Value {
    let bytes = Type::List(Rc::new(Type::Uint(UintKind::Uint8)));
    let element = Type::Named("net.IP".into(), Rc::new(bytes));
    let items = addresses.into_iter().map(|address| ip(Some(address))).collect();
    Value::List(List::new(element, items))
}

/// A `time.Duration`.
#[must_use]
pub fn duration(nanoseconds: i64) -> Value {
    Value::Named(Named::with_methods(
        "time.Duration",
        Value::int64(nanoseconds),
        Some(durations::format(nanoseconds).into()),
        duration_methods(nanoseconds),
    ))
}

/// A struct of type `name` whose only field is an embedded `time.Duration`, so that it has the methods of one.
#[must_use]
pub fn embedding_duration(name: &str, nanoseconds: i64) -> Value {
    let embedded = ("Duration".into(), duration(nanoseconds));
    Value::Named(Named::with_methods(
        name,
        Value::Struct(Struct::new(vec![embedded])),
        Some(durations::format(nanoseconds).into()),
        duration_methods(nanoseconds),
    ))
}

/// The methods without arguments of a `time.Duration`, but for `String`.
fn duration_methods(nanoseconds: i64) -> Vec<(Rc<str>, Value)> {
    let whole = |unit: i64| Value::int64(nanoseconds / unit);
    // As Go computes it: whole units, and the fraction of the rest.
    #[allow(clippy::cast_precision_loss)]
    let part =
        |unit: i64| Value::float((nanoseconds / unit) as f64 + (nanoseconds % unit) as f64 / unit as f64);
    vec![
        ("Seconds".into(), part(SECOND)),
        ("Minutes".into(), part(60 * SECOND)),
        ("Hours".into(), part(3600 * SECOND)),
        ("Milliseconds".into(), whole(1_000_000)),
        ("Microseconds".into(), whole(1_000)),
        ("Nanoseconds".into(), whole(1)),
    ]
}

/// Go's `time.ParseDuration`, in nanoseconds.
///
/// # Errors
/// Go's text.
pub fn parse_duration(text: &str) -> Result<i64, String> {
    durations::parse(text)
}

/// How Go prints a duration, such as `2m0s`.
#[must_use]
pub fn duration_text(nanoseconds: i64) -> String {
    durations::format(nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_print_as_in_go() {
        let texts = ["0s", "1.5s", "2m0s", "1h0m5s", "36h0m0s", "500ms", "1h0m0.25s"];
        let read = ["0s", "1500ms", "2m", "1h5s", "36h", "500ms", "1h250ms"];
        let written = read.map(|text| parse_duration(text).map(duration_text));
        assert_eq!(written, texts.map(|text| Ok(text.to_owned())));
    }
}
