//! Go's `time.Duration`: a number of nanoseconds.

use crate::methods::{Behavior, Encoded, STRING};
use crate::value::{IntKind, Named, Struct, Type, Value};

/// The name of Go's type.
pub const DURATION: &str = "time.Duration";

static BEHAVIOR: Behavior = Behavior::new(&[STRING], Encoded::AsTextExceptInJson);

/// Of a struct that embeds a duration. JSON has its text, because such types have a method for that.
static EMBEDDING: Behavior = Behavior {
    embeds: true,
    ..Behavior::new(&[STRING], Encoded::AsTextInJson)
};

/// The type `time.Duration`.
#[must_use]
pub fn duration_type() -> Type {
    Type::Named(DURATION.into(), Type::Int(IntKind::Int64).into(), &BEHAVIOR)
}

/// A `time.Duration`.
#[must_use]
pub fn duration(nanoseconds: i64) -> Value {
    Value::Named(Named::with_behavior(
        DURATION,
        Value::int64(nanoseconds),
        Some(text(nanoseconds).into()),
        &BEHAVIOR,
    ))
}

/// The type of [`embedding_duration`].
#[must_use]
pub fn type_embedding_duration(name: &str) -> Type {
    Type::Named(name.into(), Type::Struct.into(), &EMBEDDING)
}

/// A struct of type `name` whose only field is an embedded `time.Duration`, so that it prints as one. Its
/// JSON is its text.
#[must_use]
pub fn embedding_duration(name: &str, nanoseconds: i64) -> Value {
    let embedded = ("Duration".into(), duration(nanoseconds));
    Value::Named(Named::with_behavior(
        name,
        Value::Struct(Struct::new(vec![embedded])),
        Some(text(nanoseconds).into()),
        &EMBEDDING,
    ))
}

/// `Duration.String`, such as `2m0s`.
fn text(duration: i64) -> String {
    let sign = if duration < 0 { "-" } else { "" };
    let nanoseconds = duration.unsigned_abs();
    let (unit, places) = match nanoseconds {
        0 => return "0s".to_owned(),
        1..1_000 => ("ns", 0),
        1_000..1_000_000 => ("\u{b5}s", 3),
        1_000_000..1_000_000_000 => ("ms", 6),
        _ => {
            let seconds = nanoseconds / 1_000_000_000;
            let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
            let rest = decimal(nanoseconds % 60_000_000_000, 9);
            return match (hours, minutes) {
                (0, 0) => format!("{sign}{rest}s"),
                (0, _) => format!("{sign}{minutes}m{rest}s"),
                _ => format!("{sign}{hours}h{minutes}m{rest}s"),
            };
        }
    };
    format!("{sign}{}{unit}", decimal(nanoseconds, places))
}

/// The number with so many decimal places, without zeros at the end.
fn decimal(number: u64, places: u32) -> String {
    let one = 10_u64.pow(places);
    let (whole, fraction) = (number / one, number % one);
    if fraction == 0 {
        return whole.to_string();
    }
    let fraction = format!("{fraction:0width$}", width = places as usize);
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_print_as_in_go() {
        const SECOND: i64 = 1_000_000_000;
        for (nanoseconds, expected) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5\u{b5}s"),
            (SECOND / 2, "500ms"),
            (3 * SECOND / 2, "1.5s"),
            (120 * SECOND, "2m0s"),
            (-3605 * SECOND, "-1h0m5s"),
            (3600 * SECOND + SECOND / 4, "1h0m0.25s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(text(nanoseconds), expected);
        }
    }
}
