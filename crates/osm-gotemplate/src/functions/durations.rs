//! Go's `time.Duration`: a number of nanoseconds.

/// `time.ParseDuration`, none where it returns an error.
pub(crate) fn parse(text: &str) -> Result<i64, String> {
    let (is_negative, mut left) = match text.as_bytes().first() {
        Some(b'-') => (true, text.get(1..).unwrap_or_default()),
        Some(b'+') => (false, text.get(1..).unwrap_or_default()),
        _ => (false, text),
    };
    let failed = |problem: &str| format!("time: {problem} {}", quote(text));
    let invalid = || failed("invalid duration");
    if left == "0" {
        return Ok(0);
    }
    if left.is_empty() {
        return Err(invalid());
    }
    let mut sum = 0_u64;
    while !left.is_empty() {
        let end = left
            .find(|digit: char| !digit.is_ascii_digit())
            .unwrap_or(left.len());
        let (whole, mut rest) = left.split_at_checked(end).unwrap_or((left, ""));
        let mut fraction = "";
        if let Some(after_point) = rest.strip_prefix('.') {
            let end = after_point
                .find(|digit: char| !digit.is_ascii_digit())
                .unwrap_or(after_point.len());
            (fraction, rest) = after_point.split_at_checked(end).unwrap_or((after_point, ""));
        }
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let end = rest
            .find(|next: char| next.is_ascii_digit() || next == '.')
            .unwrap_or(rest.len());
        let (unit, after_unit) = rest.split_at_checked(end).unwrap_or((rest, ""));
        let whole: u64 = if whole.is_empty() {
            0
        } else {
            whole.parse().map_err(|_| invalid())?
        };
        if unit.is_empty() {
            return Err(failed("missing unit in duration"));
        }
        let nanoseconds = nanoseconds_of(unit)
            .ok_or_else(|| failed(&format!("unknown unit {} in duration", quote(unit))))?;
        let part = whole
            .checked_mul(nanoseconds)
            .and_then(|part| part.checked_add(of_fraction(fraction, nanoseconds)));
        let total = part
            .and_then(|part| sum.checked_add(part))
            .filter(|&total| total <= 1 << 63);
        sum = total.ok_or_else(invalid)?;
        left = after_unit;
    }
    let duration = if is_negative {
        0_i64.checked_sub_unsigned(sum)
    } else {
        i64::try_from(sum).ok()
    };
    duration.ok_or_else(invalid)
}

/// Calculates in floating-point numbers as Go does.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
fn of_fraction(digits: &str, nanoseconds: u64) -> u64 {
    let (mut number, mut scale) = (0_u64, 1.0_f64);
    for digit in digits.bytes() {
        // Digits beyond the range of 63 bits are left out.
        let longer = number
            .checked_mul(10)
            .and_then(|number| number.checked_add(u64::from(digit - b'0')));
        match longer.filter(|&longer| number <= (1 << 63) / 10 && longer <= 1 << 63) {
            Some(longer) => number = longer,
            None => break,
        }
        scale *= 10.0;
    }
    (number as f64 * (nanoseconds as f64 / scale)) as u64
}

fn nanoseconds_of(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// `Duration.String`
pub(crate) fn format(duration: i64) -> String {
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

/// Quotes a text as Go's package `time` does in its errors.
pub(super) fn quote(text: &str) -> String {
    quote_bytes(text.as_bytes())
}

/// [`quote`] of what need not be UTF-8.
pub(super) fn quote_bytes(text: &[u8]) -> String {
    let mut quoted = "\"".to_owned();
    for byte in text {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(*byte)]),
            b' '..=b'\x7f' => quoted.push(char::from(*byte)),
            _ => quoted.push_str(&format!("\\x{byte:02x}")),
        }
    }
    quoted.push('"');
    quoted
}
