//! Semantic versions.

use super::constraints::Constraints;
use super::table::table;
use super::version::Version;
use super::{Call, Problem};
use crate::value::{Named, Pointer, Struct, UintKind, Value};

table! {
    "semver": (String) -> "*semver.Version", "Returns the version, with the methods `Major`, `Minor`, `Patch`, `Prerelease`, `Metadata` and `Original`.",
        (r#"{{ (semver "v1.2.3-beta.1").Major }}"#) => "1", semver;
    "semverCompare": (String, String) -> "bool", "Returns whether the version meets the constraint; only constraints with a prerelease match prereleases.",
        r#"">= 1.30, < 1.33" "1.31.4""# => "true", semver_compare;
}

fn version(call: &Call<'_>, index: usize) -> Result<Version, Problem> {
    call.budget.read(call.text(index).len())?;
    Version::parse(call.text(index)).map_err(Problem::new)
}

/// What a version takes, without its texts: six methods and six fields, with their names.
const BYTES_OF_VERSION: usize = 1200;

fn semver(call: &Call<'_>) -> Result<Value, Problem> {
    let version = version(call, 0)?;
    call.budget.copy(
        call.text(0)
            .len()
            .saturating_mul(3)
            .saturating_add(BYTES_OF_VERSION),
    )?;
    let number = |number| Value::Uint(number, UintKind::Uint64);
    let parts = [
        ("Major", "major", number(version.major)),
        ("Minor", "minor", number(version.minor)),
        ("Patch", "patch", number(version.patch)),
        ("Prerelease", "pre", version.prerelease.as_str().into()),
        ("Metadata", "metadata", version.metadata.as_str().into()),
        ("Original", "original", version.original.as_str().into()),
    ];
    let methods = parts
        .iter()
        .map(|(method, _, value)| ((*method).into(), value.clone()));
    let fields = parts
        .iter()
        .map(|(_, field, value)| ((*field).into(), value.clone()));
    let value = Named::with_methods(
        "semver.Version",
        Value::Struct(Struct::new(fields.collect())),
        Some(version.to_string().into()),
        methods.collect(),
    );
    Ok(Value::Pointer(Pointer::to_value(Value::Named(value))))
}

fn semver_compare(call: &Call<'_>) -> Result<Value, Problem> {
    call.budget.read(call.text(0).len())?;
    let constraints = Constraints::parse(call.text(0)).map_err(Problem::new)?;
    Ok(constraints.check(&version(call, 1)?).into())
}
