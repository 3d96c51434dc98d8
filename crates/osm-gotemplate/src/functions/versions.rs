//! Semantic versions.

use super::constraints::Constraints;
use super::table::table;
use super::version::Version;
use super::version_methods::to_value;
use super::{Call, Problem};
use crate::value::{Pointer, Value};

table! {
    "semver": (String) -> "*semver.Version", "Returns the version, with methods such as `Major`, `Prerelease`, `LessThan` and `IncMinor`.",
        (r#"{{ (semver "v1.2.3-beta.1").Major }}"#) => "1", semver;
    "semverCompare": (String, String) -> "bool", "Returns whether the version meets the constraint; only constraints with a prerelease match prereleases.",
        r#"">= 1.30, < 1.33" "1.31.4""# => "true", semver_compare;
}

fn version(call: &Call<'_>, index: usize) -> Result<Version, Problem> {
    call.budget.read(call.text(index).len())?;
    Version::parse(call.text(index)).map_err(Problem::new)
}

fn semver(call: &Call<'_>) -> Result<Value, Problem> {
    let version = to_value(&version(call, 0)?, call)?;
    Ok(Value::Pointer(Pointer::to_value(version)))
}

fn semver_compare(call: &Call<'_>) -> Result<Value, Problem> {
    call.budget.read(call.text(0).len())?;
    let constraints = Constraints::parse(call.text(0)).map_err(Problem::new)?;
    Ok(constraints.check(&version(call, 1)?).into())
}
