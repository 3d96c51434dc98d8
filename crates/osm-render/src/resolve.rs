//! Resolves a profile: puts it on its bases, checks everything that can be checked without rendering, and
//! applies the library.

use osm_api::digest;
use osm_api::profile::{
    AcceptedProfile, AcceptedSpec, MAX_CONTENT_BYTES, OperatingSystemProfileSpec, ParentProfile,
    stored_json_bytes,
};
use osm_user_data::late_bound;
use serde_json::Value;

use crate::error::{ProfileError, ensure, invalid};
use crate::extends::{self, Base, ProfileKey};
use crate::{additions, checks, library};

/// [`resolve_on`] for a profile that extends none that is stored.
///
/// # Errors
/// As there.
pub fn resolve(spec: &OperatingSystemProfileSpec) -> Result<AcceptedProfile, ProfileError> {
    resolve_on(spec, &extends::bases(&ProfileKey::default(), spec, |_, _| None)?)
}

/// Puts a profile on its `bases`, the nearest first, checks the whole, and applies the library: the
/// [library](crate::library_version)'s parts that the templates include become templates of the profile.
///
/// # Errors
/// The first mistake, with its path inside the spec of the profile or of the base that it is in.
/// [`ProfileError::reason`] is its kind.
pub fn resolve_on(
    spec: &OperatingSystemProfileSpec,
    bases: &[Base],
) -> Result<AcceptedProfile, ProfileError> {
    let composed = extends::compose(spec, bases)?;
    check(&composed).map_err(|error| as_written(spec, bases, error))?;
    let mut resolved = additions::lower(composed);
    let included = library::add_parts(&mut resolved)?;
    let extended = bases.iter().any(Base::is_of_library);
    let json = digest::canonical_json(&resolved).map_err(|_| unwritable())?;
    check_size(&json)?;
    Ok(AcceptedProfile {
        version: version(spec, bases),
        digest: digest::sha256_hex(json.as_bytes()),
        template_engine: resolved.template_engine,
        library_version: (included || extended).then(library::library_version),
        parents: recorded(bases)?,
        spec: AcceptedSpec(resolved),
    })
}

fn check(spec: &OperatingSystemProfileSpec) -> Result<(), ProfileError> {
    check_text(spec)?;
    checks::check(spec)
}

/// A mistake of a composed profile with the place that its author knows: no file has the indices of a
/// composed profile.
fn as_written(spec: &OperatingSystemProfileSpec, bases: &[Base], error: ProfileError) -> ProfileError {
    if let Err(own) = check(spec) {
        return own;
    }
    let of_base = bases
        .iter()
        .find_map(|base| Some((base.name(), check(&base.spec).err()?)));
    match of_base {
        Some((base, ProfileError::Invalid { path, problem })) => ProfileError::Extends {
            base: Some(base.to_owned()),
            path,
            problem,
        },
        // The profiles are valid, but not together.
        _ => error,
    }
}

/// The version of a profile and those of its bases. The library has a version of its own.
fn version(spec: &OperatingSystemProfileSpec, bases: &[Base]) -> String {
    let mut version = spec.version.clone();
    for base in bases.iter().filter(|base| !base.is_of_library()) {
        version.push_str(&format!(" on {} {}", base.name(), base.spec.version));
    }
    version
}

fn recorded(bases: &[Base]) -> Result<Vec<ParentProfile>, ProfileError> {
    let record = |base: &Base| {
        Ok(ParentProfile {
            namespace: base.key.namespace.clone(),
            name: base.key.name.clone(),
            version: base.spec.version.clone(),
            digest: digest::of(&base.spec).map_err(|_| unwritable())?,
        })
    };
    let stored = bases.iter().filter(|base| !base.is_of_library());
    stored.map(record).collect()
}

/// Checks size and text of a whole spec.
fn check_text(spec: &OperatingSystemProfileSpec) -> Result<(), ProfileError> {
    let tree = serde_json::to_value(spec).map_err(|_| unwritable())?;
    check_shape(&tree)?;
    check_size(&tree.to_string())?;
    match late_bound::find_reserved(&tree) {
        Some(path) => Err(ProfileError::ReservedText { path }),
        None => Ok(()),
    }
}

/// The deepest nesting of a spec. The services read objects of up to 128 levels, and `status.accepted.spec`
/// and an OperatingSystemConfig have a few more than the spec.
const MAX_DEPTH: usize = 100;

/// Longest key in bytes. The place of a text has all keys above it, and many texts can have the same.
const MAX_KEY: usize = 256;

fn check_shape(spec: &Value) -> Result<(), ProfileError> {
    for (field, value) in spec.as_object().into_iter().flatten() {
        let (depth, longest_key) = shape(value);
        let too_deep = format!("nested too deeply; remove levels until spec has at most {MAX_DEPTH}");
        ensure(depth < MAX_DEPTH, field, too_deep)?;
        let too_long = format!("has a key of {longest_key} bytes; shorten it to at most {MAX_KEY}");
        ensure(longest_key <= MAX_KEY, field, too_long)?;
    }
    Ok(())
}

/// Levels of lists and objects, and the length of the longest key.
fn shape(value: &Value) -> (usize, usize) {
    let inside = |(depth, longest): (usize, usize), value| {
        let (below, key) = shape(value);
        (depth.max(1 + below), longest.max(key))
    };
    match value {
        Value::Array(items) => items.iter().fold((1, 0), inside),
        Value::Object(fields) => {
            let longest = fields.keys().map(String::len).max().unwrap_or(0);
            fields.values().fold((1, longest), inside)
        }
        _ => (0, 0),
    }
}

fn unwritable() -> ProfileError {
    invalid("", "can't be written as JSON")
}

fn check_size(json: &str) -> Result<(), ProfileError> {
    match stored_json_bytes(json) {
        bytes if bytes > MAX_CONTENT_BYTES => Err(ProfileError::ContentTooLarge {
            bytes,
            limit: MAX_CONTENT_BYTES,
        }),
        _ => Ok(()),
    }
}
