//! One semantic version, as `github.com/Masterminds/semver/v3` v3.3.0 parses and compares it.

use std::cmp::Ordering;
use std::fmt;
use std::sync::LazyLock;

use regex::Regex;

/// A version. Build metadata does not count when versions are compared.
#[derive(Clone, Debug, Default)]
pub(super) struct Version {
    pub(super) major: u64,
    pub(super) minor: u64,
    pub(super) patch: u64,
    pub(super) prerelease: String,
    pub(super) metadata: String,
    /// The text that was parsed.
    pub(super) original: String,
}

static VERSION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"^v?([0-9]+)(\.[0-9]+)?(\.[0-9]+)?",
        r"(-([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?",
        r"(\+([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?$"
    ))
    .ok()
});

impl Version {
    /// Parses a version, which may have a `v` before it and may lack the minor and patch number.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let captures = VERSION.as_ref().and_then(|version| version.captures(text));
        let captures = captures.ok_or("Invalid Semantic Version")?;
        let group = |index| captures.get(index).map_or("", |group| group.as_str());
        let version = Self {
            major: number(group(1))?,
            minor: number(group(2).trim_start_matches('.'))?,
            patch: number(group(3).trim_start_matches('.'))?,
            prerelease: group(5).to_owned(),
            metadata: group(8).to_owned(),
            original: text.to_owned(),
        };
        validate_prerelease(&version.prerelease)?;
        Ok(version)
    }

    /// Compares versions. One with a prerelease is lower than the one without.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        let numbers = |version: &Self| (version.major, version.minor, version.patch);
        numbers(self).cmp(&numbers(other)).then_with(|| {
            match (self.prerelease.as_str(), other.prerelease.as_str()) {
                ("", "") => Ordering::Equal,
                ("", _) => Ordering::Greater,
                (_, "") => Ordering::Less,
                (a, b) => compare_prereleases(a, b),
            }
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if !self.prerelease.is_empty() {
            write!(f, "-{}", self.prerelease)?;
        }
        if !self.metadata.is_empty() {
            write!(f, "+{}", self.metadata)?;
        }
        Ok(())
    }
}

/// What Go's library accepts, which includes empty parts.
fn validate_prerelease(prerelease: &str) -> Result<(), String> {
    for part in prerelease.split('.') {
        if is_number(part) {
            if part.len() > 1 && part.starts_with('0') {
                return Err("Version segment starts with 0".to_owned());
            }
        } else if !has_valid_characters(part) {
            return Err("Invalid Prerelease string".to_owned());
        }
    }
    Ok(())
}

fn has_valid_characters(part: &str) -> bool {
    part.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn is_number(part: &str) -> bool {
    part.bytes().all(|byte| byte.is_ascii_digit())
}

fn number(digits: &str) -> Result<u64, String> {
    if digits.is_empty() {
        return Ok(0);
    }
    let out_of_range = |_| {
        format!("Error parsing version segment: strconv.ParseUint: parsing \"{digits}\": value out of range")
    };
    digits.parse().map_err(out_of_range)
}

/// Compares prereleases part by part. A missing part is lower than every other.
pub(super) fn compare_prereleases(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.split('.'), b.split('.'));
    loop {
        let (part_of_a, part_of_b) = (a.next(), b.next());
        if part_of_a.is_none() && part_of_b.is_none() {
            return Ordering::Equal;
        }
        let order = compare_parts(part_of_a.unwrap_or_default(), part_of_b.unwrap_or_default());
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// Numbers are lower than texts, and compared as numbers if they are not too large for that.
fn compare_parts(a: &str, b: &str) -> Ordering {
    let number = |part: &str| part.parse::<u64>().ok().filter(|_| is_number(part));
    match (a, b) {
        _ if a == b => Ordering::Equal,
        ("", _) => Ordering::Less,
        (_, "") => Ordering::Greater,
        _ => match (number(a), number(b)) {
            (None, None) if a > b => Ordering::Greater,
            (None, None) | (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) if a > b => Ordering::Greater,
            (Some(_), Some(_)) => Ordering::Less,
        },
    }
}
