//! Go's `time.Duration`.

use crate::functions::{Call, Parameter, durations};
use crate::methods::{Behavior, Encoded, Method, STRING};
use crate::problem::Problem;
use crate::value::{Named, Struct, Type, Value};

/// The name of Go's type.
pub const DURATION: &str = "time.Duration";

/// Nanoseconds of a second.
const SECOND: i64 = 1_000_000_000;

const METHODS: &[Method] = &[
    STRING,
    Method::new("Seconds", &[], |call| in_units(call, SECOND)),
    Method::new("Minutes", &[], |call| in_units(call, 60 * SECOND)),
    Method::new("Hours", &[], |call| in_units(call, 3600 * SECOND)),
    Method::new("Milliseconds", &[], |call| {
        Ok(Value::int64(receiver(call) / 1_000_000))
    }),
    Method::new("Microseconds", &[], |call| {
        Ok(Value::int64(receiver(call) / 1_000))
    }),
    Method::new("Nanoseconds", &[], |call| Ok(Value::int64(receiver(call)))),
    Method::new("Abs", &[], |call| made(call, receiver(call).saturating_abs())),
    Method::new("Truncate", &[Parameter::Duration], |call| {
        let (duration, unit) = (receiver(call), call.int(1));
        made(
            call,
            if unit > 0 {
                duration - duration % unit
            } else {
                duration
            },
        )
    }),
    Method::new("Round", &[Parameter::Duration], |call| {
        made(call, round(receiver(call), call.int(1)))
    }),
];

static BEHAVIOR: Behavior = Behavior::new(METHODS, Encoded::AsTextExceptInJson);

/// Of a struct that embeds a duration. JSON has its text, because such types have a method for that.
static EMBEDDING: Behavior = Behavior {
    embeds: true,
    ..Behavior::new(METHODS, Encoded::AsTextInJson)
};

/// The type `time.Duration`.
#[must_use]
pub fn duration_type() -> Type {
    Type::Named(
        DURATION.into(),
        Type::Int(crate::value::IntKind::Int64).into(),
        &BEHAVIOR,
    )
}

/// A `time.Duration`.
#[must_use]
pub fn duration(nanoseconds: i64) -> Value {
    Value::Named(Named::with_behavior(
        DURATION,
        Value::int64(nanoseconds),
        Some(durations::format(nanoseconds).into()),
        &BEHAVIOR,
    ))
}

/// The type of [`embedding_duration`].
#[must_use]
pub fn type_embedding_duration(name: &str) -> Type {
    Type::Named(name.into(), Type::Struct.into(), &EMBEDDING)
}

/// A struct of type `name` whose only field is an embedded `time.Duration`, so that it has the methods of one. Its JSON is its text.
#[must_use]
pub fn embedding_duration(name: &str, nanoseconds: i64) -> Value {
    let embedded = ("Duration".into(), duration(nanoseconds));
    Value::Named(Named::with_behavior(
        name,
        Value::Struct(Struct::new(vec![embedded])),
        Some(durations::format(nanoseconds).into()),
        &EMBEDDING,
    ))
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

/// What a duration takes.
const BYTES_OF_DURATION: usize = 256;

fn made(call: &Call<'_>, nanoseconds: i64) -> Result<Value, Problem> {
    call.budget.copy(BYTES_OF_DURATION)?;
    Ok(duration(nanoseconds))
}

fn receiver(call: &Call<'_>) -> i64 {
    match call.receiver().underlying() {
        Value::Int(nanoseconds, _) => *nanoseconds,
        Value::Struct(fields) => match fields.field("Duration").map(Value::underlying) {
            Some(Value::Int(nanoseconds, _)) => *nanoseconds,
            _ => 0,
        },
        _ => 0,
    }
}

/// As Go computes it: whole units, and the fraction of the rest.
#[allow(clippy::cast_precision_loss, clippy::unnecessary_wraps)]
fn in_units(call: &Call<'_>, unit: i64) -> Result<Value, Problem> {
    let nanoseconds = receiver(call);
    let (whole, rest) = (nanoseconds / unit, nanoseconds % unit);
    Ok(Value::float(whole as f64 + rest as f64 / unit as f64))
}

/// The nearest multiple of a unit, the larger one of two.
fn round(duration: i64, unit: i64) -> i64 {
    if unit <= 0 {
        return duration;
    }
    let rest = (duration % unit).abs();
    let smaller = duration - duration % unit;
    if rest < unit - rest {
        smaller
    } else {
        smaller.saturating_add(if duration < 0 { -unit } else { unit })
    }
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
