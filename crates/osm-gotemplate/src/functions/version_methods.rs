//! Versions as values of Go's type `semver.Version`, and their methods.

use std::cmp::Ordering;

use super::version::Version;
use super::{Call, Parameter, Problem};
use crate::methods::{Behavior, Encoded, Method, NIL_POINTER, STRING};
use crate::value::{Named, Struct, UintKind, Value};

/// The name of Go's type.
pub(crate) const VERSION: &str = "semver.Version";

/// What a version takes, without its texts: six fields, with their names.
const BYTES_OF_VERSION: usize = 800;

static BEHAVIOR: Behavior = Behavior::new(
    &[
        STRING,
        Method::new("Major", &[], |call| field(call, "major")),
        Method::new("Minor", &[], |call| field(call, "minor")),
        Method::new("Patch", &[], |call| field(call, "patch")),
        Method::new("Prerelease", &[], |call| field(call, "pre")),
        Method::new("Metadata", &[], |call| field(call, "metadata")),
        Method::of_pointer("Original", &[], |call| field(call, "original")),
        Method::of_pointer("Compare", &[Parameter::Version], |call| {
            Ok(Value::int(compare(call)? as i64))
        }),
        Method::of_pointer("Equal", &[Parameter::Version], |call| {
            let is_nil = |index| from_value(call.any(index)).is_none();
            Ok((is_nil(0) == is_nil(1) && (is_nil(0) || compare(call)?.is_eq())).into())
        }),
        Method::of_pointer("LessThan", &[Parameter::Version], |call| {
            Ok(compare(call)?.is_lt().into())
        }),
        Method::of_pointer("GreaterThan", &[Parameter::Version], |call| {
            Ok(compare(call)?.is_gt().into())
        }),
    ],
    Encoded::AsText,
);

/// A version as a value of Go's type, which functions return by a pointer and methods without.
pub(super) fn to_value(version: &Version, call: &Call<'_>) -> Result<Value, Problem> {
    let text = version.to_string();
    let texts = version.original.len().saturating_add(text.len());
    call.budget
        .copy(texts.saturating_mul(2).saturating_add(BYTES_OF_VERSION))?;
    Ok(made(version, text))
}

fn made(version: &Version, text: String) -> Value {
    let number = |number| Value::Uint(number, UintKind::Uint64);
    let fields = vec![
        ("major".into(), number(version.major)),
        ("minor".into(), number(version.minor)),
        ("patch".into(), number(version.patch)),
        ("pre".into(), version.prerelease.as_str().into()),
        ("metadata".into(), version.metadata.as_str().into()),
        ("original".into(), version.original.as_str().into()),
    ];
    let fields = Value::Struct(Struct::new(fields));
    Value::Named(Named::with_behavior(
        VERSION,
        fields,
        Some(text.into()),
        &BEHAVIOR,
    ))
}

/// The version that a value or a pointer is; none for a nil pointer.
fn from_value(value: &Value) -> Option<Version> {
    let value = match value {
        Value::Pointer(pointer) => pointer.value()?,
        value => value,
    };
    let Value::Struct(fields) = value.underlying() else {
        return None;
    };
    let number = |name| match fields.field(name) {
        Some(Value::Uint(number, _)) => *number,
        _ => 0,
    };
    let text = |name| match fields.field(name) {
        Some(Value::String(text)) => text.to_string(),
        _ => String::new(),
    };
    Some(Version {
        major: number("major"),
        minor: number("minor"),
        patch: number("patch"),
        prerelease: text("pre"),
        metadata: text("metadata"),
        original: text("original"),
    })
}

fn version(call: &Call<'_>, index: usize) -> Result<Version, Problem> {
    let version = from_value(call.any(index)).ok_or_else(|| Problem::new(NIL_POINTER))?;
    call.budget.copy(version.original.len().saturating_mul(2))?;
    Ok(version)
}

fn field(call: &Call<'_>, name: &str) -> Result<Value, Problem> {
    match call.receiver().underlying() {
        Value::Struct(fields) => Ok(fields.field(name).cloned().unwrap_or(Value::Nil)),
        _ => Err(Problem::new(NIL_POINTER)),
    }
}

fn compare(call: &Call<'_>) -> Result<Ordering, Problem> {
    Ok(version(call, 0)?.compare(&version(call, 1)?))
}
