//! Semantic versions.

use super::constraints::Constraints;
use super::table::table;
use super::version::Version;
use super::version_methods::to_value;
use super::{Call, Problem, at_most};
use crate::value::{Pointer, Value};

table! {
    "semver": (String) -> "*semver.Version", "Returns the version, with methods such as `Major`, `Prerelease` and `LessThan`.",
        (r#"{{ (semver "v1.2.3-beta.1").Major }}"#) => "1", semver;
    "semverCompare": (String, String) -> "bool", "Returns whether the version meets the constraint; only constraints with a prerelease match prereleases.",
        r#"">= 1.30, < 1.33" "1.31.4""# => "true", semver_compare;
}

/// Longest version and constraint in bytes. Those of releases have some twenty.
const MAX_BYTES: usize = 256;

/// Steps for a version, and for each constraint, which regular expressions parse.
const STEPS: u64 = 16;

fn version(call: &Call<'_>, index: usize) -> Result<Version, Problem> {
    let text = short(call.text(index), "a version")?;
    call.budget.step(STEPS)?;
    Version::parse(text).map_err(Problem::new)
}

/// The text, unless it is too long.
fn short<'t>(text: &'t str, what: &str) -> Result<&'t str, Problem> {
    at_most(text, MAX_BYTES, what)
}

fn semver(call: &Call<'_>) -> Result<Value, Problem> {
    let version = to_value(&version(call, 0)?, call)?;
    Ok(Value::Pointer(Pointer::to_value(version)))
}

fn semver_compare(call: &Call<'_>) -> Result<Value, Problem> {
    let constraint = short(call.text(0), "a constraint on versions")?;
    // A constraint has at least two bytes with what separates it from the next one.
    let constraints = constraint.len() as u64 / 2 + 1;
    call.budget.step(constraints.saturating_mul(STEPS))?;
    let constraints = Constraints::parse(constraint).map_err(Problem::new)?;
    Ok(constraints.check(&version(call, 1)?).into())
}
