//! Values as the kubelet reads them: quantities, durations, reservations and eviction thresholds.
//!
//! A kubelet exits at start if it can't read a value, so no machine would have become a node with a value
//! that is refused here. Sources: the reference of `KubeletConfiguration` and the grammar of
//! `resource.Quantity` at kubernetes.io, and the format of `time.ParseDuration` at go.dev. No message repeats
//! a value.

/// The message for a text that is not a quantity.
pub const NO_QUANTITY: &str = "must be a quantity such as 200m, 1.5 or 512Mi";

/// The message for a text that is not a duration.
pub const NO_DURATION: &str = "must be a duration such as 30s, 2m or 1h30m";

/// Properties of a quantity. The exact value does not matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    /// It has a minus sign, and is not zero.
    pub negative: bool,
    pub zero: bool,
    /// The kubelet accepts it as a number of bytes, because it has no fraction of a byte.
    pub whole: bool,
}

/// Reads a quantity: a decimal number with perhaps a sign, a fraction and one of the suffixes `n u m k M G T
/// P E`, `Ki Mi Gi Ti Pi Ei`, or an exponent such as `e3`.
pub fn quantity(text: &str) -> Option<Quantity> {
    let (minus, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = unsigned
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (integer.is_empty() && fraction.is_empty()) {
        return None;
    }
    let places = i64::try_from(fraction.len()).ok()?;
    let whole = match suffix {
        "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei" => places == 0,
        _ => decimal_exponent(suffix)? >= places,
    };
    let zero = number.chars().all(|c| matches!(c, '0' | '.'));
    Some(Quantity {
        negative: minus && !zero,
        zero,
        whole,
    })
}

fn decimal_exponent(suffix: &str) -> Option<i64> {
    Some(match suffix {
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "" => 0,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        _ => {
            let digits = suffix.strip_prefix(['e', 'E'])?;
            // Rust takes the same signs; more digits than fit are too many for the kubelet as well.
            i64::from(digits.parse::<i32>().ok()?)
        }
    })
}

/// Reads a duration, in nanoseconds: numbers with units `ns us ms s m h`, one after another, and perhaps a
/// sign before them; or `0`.
pub fn duration(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut sum: i128 = 0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(number);
        let unit = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let nanoseconds: i128 = match unit {
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
        if integer.len() > 19 || (integer.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let digits = |digits: &str| match digits {
            "" => Some(0_i128),
            digits => digits.parse().ok(),
        };
        // Finer than a nanosecond is lost.
        let places = fraction.get(..fraction.len().min(18)).unwrap_or_default();
        let scale = 10_i128.checked_pow(u32::try_from(places.len()).ok()?)?;
        sum = sum
            .checked_add(digits(integer)?.checked_mul(nanoseconds)?)?
            .checked_add(digits(places)? * nanoseconds / scale)?;
        rest = after;
    }
    i64::try_from(sign * sum).ok()
}

/// Checks what is reserved of a resource (`kubeReserved`, `systemReserved`).
///
/// # Errors
/// A resource that can't be reserved, or a value that is not a quantity of at least 0.
pub fn reservation(resource: &str, text: &str) -> Result<(), &'static str> {
    if !["cpu", "memory", "ephemeral-storage", "pid"].contains(&resource) {
        return Err("can't be reserved: use cpu, memory, ephemeral-storage and pid");
    }
    match quantity(text) {
        None => Err(NO_QUANTITY),
        Some(quantity) if quantity.negative => Err("must not be negative"),
        Some(_) => Ok(()),
    }
}

/// Checks the name of an eviction signal.
///
/// # Errors
/// An unknown signal.
pub fn signal(name: &str) -> Result<(), &'static str> {
    const SIGNALS: [&str; 9] = [
        "memory.available",
        "allocatableMemory.available",
        "nodefs.available",
        "nodefs.inodesFree",
        "imagefs.available",
        "imagefs.inodesFree",
        "containerfs.available",
        "containerfs.inodesFree",
        "pid.available",
    ];
    SIGNALS.contains(&name).then_some(()).ok_or(
        "is not an eviction signal: use memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree or pid.available",
    )
}

/// Checks a threshold of eviction (`evictionHard`, `evictionSoft`).
///
/// # Errors
/// An unknown signal, or a value that is neither a quantity above 0 nor a share.
pub fn eviction_threshold(name: &str, text: &str) -> Result<(), &'static str> {
    const RULE: &str = "must be a quantity above 0 such as 100Mi, or a share such as 10%";
    signal(name)?;
    let good = match text.strip_suffix('%') {
        Some(percent) => number(percent).is_some_and(|share| (0.0..=100.0).contains(&share)),
        None => quantity(text).is_some_and(|quantity| !quantity.zero && !quantity.negative),
    };
    good.then_some(()).ok_or(RULE)
}

/// Checks what eviction reclaims at least (`evictionMinimumReclaim`).
///
/// # Errors
/// An unknown signal, or a value that is neither a quantity of at least 0 nor a share above 0.
pub fn minimum_reclaim(name: &str, text: &str) -> Result<(), &'static str> {
    const RULE: &str = "must be a quantity such as 100Mi, or a share above 0 such as 5%";
    signal(name)?;
    let good = match text.strip_suffix('%') {
        Some(percent) => number(percent).is_some_and(|share| share > 0.0),
        None => quantity(text).is_some_and(|quantity| !quantity.negative),
    };
    good.then_some(()).ok_or(RULE)
}

fn number(text: &str) -> Option<f64> {
    // Rust also reads words such as `inf`.
    let is_plain = text.chars().all(|c| c.is_ascii_digit() || ".-+eE".contains(c));
    text.parse().ok().filter(|_| is_plain)
}

/// Checks the size at which a container's log is rotated (`containerLogMaxSize`).
///
/// # Errors
/// A value that is not a whole number of bytes.
pub fn log_size(text: &str) -> Result<(), &'static str> {
    let whole = quantity(text).is_some_and(|quantity| quantity.whole);
    whole.then_some(()).ok_or("must be a size such as 100Mi")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        for good in "0 1 +1 -1 1.5 1. .5 100m 200Mi 1.5Gi 1e3 1E3 1e-3 1E 3k 12E 0.001u".split(' ') {
            assert!(quantity(good).is_some(), "{good}");
        }
        let bad = "| |-|.|1.2.3|1 Gi|1GB|1K|1ki|Mi|1e|1e3.5|10%|0x10|1,5|--1|1Mi |1e99999999999|\u{661}";
        for bad in bad.split('|') {
            assert_eq!(quantity(bad), None, "{bad:?}");
        }
        let of = |text| quantity(text).unwrap();
        assert!(of("-1Mi").negative && !of("-0").negative && of("-0.00Ki").zero && !of("0.01").zero);
        for text in "100Mi 1.5G 0.001k 1e3 5".split(' ') {
            assert!(of(text).whole, "{text}");
        }
        for text in "1.5Gi 1.50 1000m".split(' ') {
            assert!(!of(text).whole, "{text}");
        }
    }

    #[test]
    fn durations() {
        for (text, nanoseconds) in [
            ("0", 0),
            ("-0", 0),
            ("30s", 30_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5s", 1_500_000_000),
            (".5ms", 500_000),
            ("1.s", 1_000_000_000),
            ("-2us", -2_000),
            ("+1\u{b5}s1ns", 1_001),
            ("0.3333333333333333333h", 1_199_999_999_999),
        ] {
            assert_eq!(duration(text), Some(nanoseconds), "{text}");
        }
        for bad in "|+|-|1|s|1 s|30 seconds|1d|1h 30m|PT1H|1.2.3s|.s|1e3s".split('|') {
            assert_eq!(duration(bad), None, "{bad:?}");
        }
        // 292 years fit.
        assert!(duration("2562047h").is_some() && duration("2562048h").is_none());
    }

    #[test]
    fn reservations_thresholds_and_sizes() {
        type Check = fn(&str, &str) -> Result<(), &'static str>;
        let cases: [(Check, &str, &str, bool); 22] = [
            (reservation, "cpu", "200m", true),
            (reservation, "pid", "0", true),
            (reservation, "cpu", "-1", false),
            (reservation, "memory", "lots", false),
            (reservation, "storage", "1Gi", false),
            (eviction_threshold, "memory.available", "100Mi", true),
            (eviction_threshold, "nodefs.inodesFree", "5%", true),
            (eviction_threshold, "pid.available", "12.5%", true),
            (eviction_threshold, "memory.available", "0", false),
            (eviction_threshold, "memory.available", "-5%", false),
            (eviction_threshold, "memory.available", "101%", false),
            (eviction_threshold, "memory.available", "many%", false),
            (eviction_threshold, "memory.available", "nan%", false),
            (eviction_threshold, "memory.inodesFree", "5%", false),
            (eviction_threshold, "memory", "5%", false),
            (eviction_threshold, "available.memory", "5%", false),
            (minimum_reclaim, "nodefs.available", "0", true),
            (minimum_reclaim, "nodefs.available", "0%", false),
            (minimum_reclaim, "nodefs.available", "-1Mi", false),
            (|_, text| log_size(text), "", "10Mi", true),
            (|_, text| log_size(text), "", "1.5Mi", false),
            (|_, text| log_size(text), "", "big", false),
        ];
        for (i, (check, name, text, good)) in cases.into_iter().enumerate() {
            let verdict = check(name, text);
            assert_eq!(verdict.is_ok(), good, "case {i}: {name} {text}");
            assert!(text.len() < 2 || verdict.err().is_none_or(|problem| !problem.contains(text)));
        }
    }
}
