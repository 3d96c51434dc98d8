//! Constraints on versions. This follows `constraints.go` of `github.com/Masterminds/semver/v3` v3.3.0
//! closely, with its regular expressions: results for wildcards, prereleases and odd notations are those of
//! the Go library.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::LazyLock;

use regex::Regex;

use super::version::{Version, compare_prereleases};

macro_rules! operators {
    () => {
        "=||!=|>|<|>=|=>|<=|=<|~|~>|\\^"
    };
}
/// A version in a constraint. `x`, `X` and `*` are wildcards.
macro_rules! pattern {
    () => {
        concat!(
            r"v?([0-9|x|X|\*]+)(\.[0-9|x|X|\*]+)?(\.[0-9|x|X|\*]+)?",
            r"(-([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?",
            r"(\+([0-9A-Za-z\-]+(\.[0-9A-Za-z\-]+)*))?"
        )
    };
}
/// Go's `\s`.
macro_rules! space {
    () => {
        r"[\t\n\f\r ]"
    };
}

/// One constraint: operator, version, and the parts of the version.
static CONSTRAINT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let expression = concat!(
        "^",
        space!(),
        "*(",
        operators!(),
        ")",
        space!(),
        "*(",
        pattern!(),
        ")",
        space!(),
        "*$"
    );
    Regex::new(expression).ok()
});
/// `1.2 - 1.4`
static RANGE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let between = concat!(")", space!(), "+-", space!(), "+(");
    Regex::new(
        &[
            space!(),
            "*(",
            pattern!(),
            between,
            pattern!(),
            ")",
            space!(),
            "*",
        ]
        .concat(),
    )
    .ok()
});
static FIND: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(concat!("(", operators!(), ")", space!(), "*(", pattern!(), ")")).ok());
/// Constraints with spaces or commas between.
static ALL: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let one = concat!(
        "(?:",
        operators!(),
        ")",
        space!(),
        "*(?:",
        pattern!(),
        ")",
        space!(),
        "*"
    );
    let next = concat!("(?:", space!(), "+|,", space!(), "*)");
    Regex::new(&["^(?:", space!(), "*", one, ")(?:", next, one, ")*$"].concat()).ok()
});

/// Alternatives of constraints that must all hold.
pub(super) struct Constraints(Vec<Vec<Constraint>>);

struct Constraint {
    operator: Operator,
    version: Version,
    /// Some part of the version is a wildcard or missing.
    is_open: bool,
    /// The minor number is the first such part.
    minor_is_open: bool,
    /// The patch number is the only such part.
    patch_is_open: bool,
}

#[derive(Clone, Copy)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    Less,
    GreaterOrEqual,
    LessOrEqual,
    Tilde,
    Caret,
}

impl Constraints {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = rewrite_ranges(text);
        let alternatives = text.split("||").map(|all| {
            if !ALL.as_ref().is_some_and(|constraints| constraints.is_match(all)) {
                return Err(improper(all));
            }
            let each = FIND.iter().flat_map(|constraint| constraint.find_iter(all));
            each.map(|constraint| Constraint::parse(constraint.as_str()))
                .collect()
        });
        Ok(Self(alternatives.collect::<Result<_, _>>()?))
    }

    pub(super) fn check(&self, version: &Version) -> bool {
        self.0
            .iter()
            .any(|all| all.iter().all(|constraint| constraint.check(version)))
    }
}

fn improper(constraint: &str) -> String {
    format!("improper constraint: {constraint}")
}

/// Replaces `1.2 - 1.4` by `>= 1.2, <= 1.4`.
fn rewrite_ranges(text: &str) -> Cow<'_, str> {
    RANGE.as_ref().map_or(Cow::Borrowed(text), |range| {
        range.replace_all(text, ">= $1, <= $11 ")
    })
}

impl Constraint {
    fn parse(text: &str) -> Result<Self, String> {
        let captures = CONSTRAINT
            .as_ref()
            .and_then(|constraint| constraint.captures(text));
        let captures = captures.ok_or_else(|| improper(text))?;
        let group = |index| captures.get(index).map_or("", |group| group.as_str());
        let is_open = |index| matches!(group(index).trim_start_matches('.'), "" | "x" | "X" | "*");
        let (major, minor, prerelease) = (group(3), group(4), group(6));
        let (version, minor_is_open, patch_is_open) = if is_open(3) {
            (format!("0.0.0{prerelease}"), false, false)
        } else if is_open(4) {
            (format!("{major}.0.0{prerelease}"), true, false)
        } else if is_open(5) {
            (format!("{major}{minor}.0{prerelease}"), false, true)
        } else {
            (group(2).to_owned(), false, false)
        };
        Ok(Self {
            operator: Operator::parse(group(1)),
            version: Version::parse(&version).map_err(|_| "constraint Parser Error")?,
            is_open: is_open(3) || is_open(4) || is_open(5),
            minor_is_open,
            patch_is_open,
        })
    }

    fn check(&self, version: &Version) -> bool {
        let is_unwanted_prerelease = !version.prerelease.is_empty() && self.version.prerelease.is_empty();
        if is_unwanted_prerelease && (self.is_open || !matches!(self.operator, Operator::NotEqual)) {
            return false;
        }
        let order = version.compare(&self.version);
        match self.operator {
            Operator::Equal if self.is_open => self.check_tilde(version),
            Operator::Equal => order == Ordering::Equal,
            Operator::NotEqual => self.check_not_equal(version),
            Operator::Greater => self.check_greater(version),
            Operator::Less => order == Ordering::Less,
            Operator::GreaterOrEqual => order != Ordering::Less,
            Operator::LessOrEqual => self.check_less_or_equal(version),
            Operator::Tilde => self.check_tilde(version),
            Operator::Caret => self.check_caret(version),
        }
    }

    fn check_not_equal(&self, version: &Version) -> bool {
        let wanted = &self.version;
        if self.is_open {
            if wanted.major != version.major {
                return true;
            }
            if wanted.minor != version.minor && !self.minor_is_open {
                return true;
            }
            if self.minor_is_open {
                return false;
            }
            if wanted.patch != version.patch && !self.patch_is_open {
                return true;
            }
            if self.patch_is_open {
                let have_prerelease = !version.prerelease.is_empty() || !wanted.prerelease.is_empty();
                let order = compare_prereleases(&version.prerelease, &wanted.prerelease);
                return have_prerelease && order != Ordering::Equal;
            }
        }
        version.compare(wanted) != Ordering::Equal
    }

    fn check_greater(&self, version: &Version) -> bool {
        let wanted = &self.version;
        let is_greater = version.compare(wanted) == Ordering::Greater;
        match version.major.cmp(&wanted.major) {
            _ if !self.is_open => is_greater,
            Ordering::Greater => true,
            Ordering::Less => false,
            Ordering::Equal if self.minor_is_open => false,
            Ordering::Equal if self.patch_is_open => version.minor > wanted.minor,
            Ordering::Equal => is_greater,
        }
    }

    fn check_less_or_equal(&self, version: &Version) -> bool {
        let wanted = &self.version;
        if !self.is_open {
            return version.compare(wanted) != Ordering::Greater;
        }
        let is_above_minor =
            version.major == wanted.major && version.minor > wanted.minor && !self.minor_is_open;
        version.major <= wanted.major && !is_above_minor
    }

    fn check_tilde(&self, version: &Version) -> bool {
        let wanted = &self.version;
        if version.compare(wanted) == Ordering::Less {
            return false;
        }
        // `~0.0.0` is `>= 0.0.0`, and so is a lone wildcard.
        let is_zero = (wanted.major, wanted.minor, wanted.patch) == (0, 0, 0);
        if is_zero && !self.minor_is_open && !self.patch_is_open {
            return true;
        }
        version.major == wanted.major && (version.minor == wanted.minor || self.minor_is_open)
    }

    fn check_caret(&self, version: &Version) -> bool {
        let wanted = &self.version;
        if version.compare(wanted) == Ordering::Less {
            return false;
        }
        if wanted.major > 0 || self.minor_is_open {
            return version.major == wanted.major;
        }
        if version.major > 0 {
            return false;
        }
        if wanted.minor > 0 || self.patch_is_open {
            return version.minor == wanted.minor;
        }
        version.minor == 0 && version.patch == wanted.patch
    }
}

impl Operator {
    fn parse(text: &str) -> Self {
        match text {
            "!=" => Self::NotEqual,
            ">" => Self::Greater,
            "<" => Self::Less,
            ">=" | "=>" => Self::GreaterOrEqual,
            "<=" | "=<" => Self::LessOrEqual,
            "~" | "~>" => Self::Tilde,
            "^" => Self::Caret,
            _ => Self::Equal,
        }
    }
}
