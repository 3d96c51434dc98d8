//! Values of types that have methods.

use anyhow::{Context, Result, bail};
use osm_gotemplate::methods::{Behavior, Encoded, Method};
use osm_gotemplate::{Value, standard};

/// A `providerconfig.NetworkConfig`, whose method has a pointer as its receiver, which may be nil.
pub(crate) static NETWORK: Behavior = Behavior::new(
    &[Method::of_pointer("IsStaticIPConfig", &[], |call| {
        let Value::Struct(fields) = call.receiver().underlying() else {
            return Ok(false.into());
        };
        let is_set = |name: &str| fields.field(name).is_some_and(Value::is_true);
        let servers = match fields.field("DNS").map(Value::underlying) {
            Some(Value::Struct(dns)) => dns.field("Servers").is_some_and(Value::is_true),
            _ => false,
        };
        Ok((is_set("CIDR") || is_set("Gateway") || servers).into())
    })],
    Encoded::AsValue,
);

/// A `net.IP`; the empty text is the nil slice.
pub(crate) fn ip(text: &str) -> Result<Value> {
    let address = (!text.is_empty()).then(|| text.parse().with_context(|| text.to_owned()));
    Ok(standard::ip(address.transpose()?))
}

/// A `time.Duration`.
pub(crate) fn duration(text: &str) -> Result<Value> {
    Ok(standard::duration(nanoseconds(text)?))
}

/// A `v1.Duration`, which embeds a `time.Duration` and has its methods.
pub(crate) fn kubernetes_duration(text: &str) -> Result<Value> {
    Ok(standard::embedding_duration("v1.Duration", nanoseconds(text)?))
}

/// Reads a duration such as `-1h29m59.5s`.
fn nanoseconds(text: &str) -> Result<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text),
    };
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let unit = rest.find(char::is_alphabetic).with_context(|| text.to_owned())?;
        let (number, after) = rest.split_at(unit);
        let end = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let in_seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            _ => bail!("{text}: an unknown unit"),
        };
        seconds += number.parse::<f64>().with_context(|| text.to_owned())? * in_seconds;
        rest = after;
    }
    #[allow(clippy::cast_possible_truncation)] // Durations of cases are short.
    Ok((sign * seconds * 1e9) as i64)
}
